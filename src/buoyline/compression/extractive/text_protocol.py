"""Agents that write their calls as text: commands in fences or tags, and observations as the user's messages.

`with_calls` gives such messages the form of calls and results, so that nothing else needs to know them. The form is
recognized from the whole conversation, since a person also writes code in fences. Source: the formats of SWE-agent
(fences, and tags with parameters), ReAct ("Action:" and "Action Input:"), and LangChain's JSON agents. Of other formats
both sides have to show one: most commands begin behind the same label, such as "RUN:", and most answers with the same
words, such as "Output:".
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.extractive.calls import arguments_of
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import WorkState
from buoyline.messages import Message, Text, ToolCall, ToolResult
from buoyline.messages.jsonl import is_object

MIN_CALLS: Final = 2
MIN_SHARE: Final = 0.6
"""Of the agent's messages that the user answers: so many must end with a call. One is enough if the system prompt shows
its form, or if the answer has that of an observation."""

MAX_PROMPT_CHARS: Final = 80
"""Of the end of an observation, for the prompt of a shell."""

MIN_OPENING_CHARS: Final = 30
"""Of a first line that two tasks share; observations share shorter ones."""

_DEMONSTRATES = re.compile(
    r"\A.{0,300}\b(?:demonstrations?|examples? (?:of|trajectory|session))\b", re.IGNORECASE | re.DOTALL
)
_DEMONSTRATION = re.compile(
    r"(?:^[^\n]*demonstration[^\n]*\n(?:[^\n]*\n){0,6}?)?^\W{0,9}DEMONSTRATION\W{0,9}$"
    r".*?^\W{0,9}END OF DEMONSTRATION\W{0,9}$",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)

_OBSERVED = re.compile(
    r"\s{0,9}(?:<(?:returncode|exit_code|output|stdout|observation|tool_result)\b|observation\b"
    r"|\W{0,3}(?:exit|return) ?(?:code|status)\b|\(open file\b)",
    re.IGNORECASE,
)
_PROMPT = re.compile(r"\n[\w@.~:/-]{0,60}[$#] ?\Z")
"""An observation begins with such a word, or ends with the prompt of a shell."""

_FENCE = re.compile(r"^(?:```|~~~)\w{0,20}[ \t]*\n", re.MULTILINE)
_CLOSING_TAG = re.compile(r"</(\w{1,60})>\Z")
_REACT = re.compile(
    r"\A(.*?)^Action:[ \t]*(\w[\w .-]{0,60}?)[ \t]*\n+Action[ _]Input:[ \t]*(\S.*)\Z", re.DOTALL | re.MULTILINE
)
_LABEL = re.compile(r"^([A-Z][A-Za-z _-]{1,30}):[ \t]*(?=\S)", re.MULTILINE)
_ANSWER = re.compile(r"\s{0,9}(?:\[\w[\w ]{0,30}\]|<\w{1,30}>|\w[\w ]{0,30}:)")
_PARAMETER = re.compile(r"<(\w{1,60})>")
MAX_TAG_CHARS: Final = 80
MAX_JSON_CHARS: Final = 60_000

_NAME_KEYS: Final = ("action", "tool", "tool_name", "command", "function")
_INPUT_KEYS: Final = ("action_input", "tool_input", "args", "arguments", "parameters", "input")
_THOUGHT_KEYS: Final = ("thought", "thoughts", "reasoning")
_NAME = re.compile(r"(?!.*(?:final|finish|answer|respon[ds]))\w[\w.-]{0,60}", re.IGNORECASE)
"""Of a tool; others end the work with words for the user."""

_TOOL = re.compile(r"(?:(?P<edits>edit|insert|create|replace|write)|open|view|goto|scroll)[a-z_-]*")
"""Names of the commands of an agent's own editor: they are tools and no programs of a shell."""


def with_calls(sources: Sequence[SourceMessage], known: WorkState | None = None) -> Sequence[SourceMessage]:
    """Return *sources*, not empty, with the calls that their texts hold; the same ones if it is no such agent.

    A demonstration before the task reads as the system's words: the task follows it, and it is nobody's work. *known*
    is the state of the work behind the messages before.
    """
    if any(source.message.calls or source.message.results for source in sources):
        return sources
    is_known = known is not None and known.writes_calls
    ends = [*(source.message.role for source in sources[1:]), "user"]
    asked = [at for at, end in enumerate(ends) if sources[at].message.role == "assistant" and end == "user"]
    found = {at: call_in(sources[at].message.text, f"text-{sources[at].index}") for at in asked}
    calls = {at: call for at, call in found.items() if call is not None} or _labelled(sources, asked)
    if not is_known and (not calls or len(calls) < MIN_SHARE * len(asked)):
        return sources
    if not is_known and len(calls) < MIN_CALLS and not _is_shown(sources, min(calls)):
        return sources
    changed = list(sources)
    is_waiting = known is not None and any(one.last == known.end - 1 for one in known.waiting)
    if is_known and is_waiting and sources[0].message.role == "user":
        changed[0] = replace(sources[0], message=_observed(sources[0], f"text-{sources[0].index - 1}", ""))
    begin = 0 if is_known else _shown_first(changed)
    for at, (words, call) in calls.items():
        if at < begin:
            continue
        changed[at] = replace(sources[at], message=Message("assistant", (Text(words), call) if words else (call,)))
        if at + 1 < len(sources):
            observed = sources[at + 1]
            changed[at + 1] = replace(observed, message=_observed(observed, call.call_id, call.name))
    return changed


def _labelled(sources: Sequence[SourceMessage], asked: Sequence[int]) -> dict[int, tuple[str, ToolCall]]:
    """Return the calls behind a label that most messages at *asked* share, if the answers begin alike; else none."""
    texts = {at: sources[at].message.text for at in asked}
    label = _shared(labels[-1] if (labels := _LABEL.findall(text)) else "" for text in texts.values())
    answers = [found[0] if (found := _ANSWER.match(sources[at + 1].message.text)) else "" for at in asked[:-1]]
    if not label or not _shared(answers):
        return {}
    calls: dict[int, tuple[str, ToolCall]] = {}
    for at, text in texts.items():
        places = [found for found in _LABEL.finditer(text) if found[1] == label]
        if places:
            words = text[: places[-1].start()].strip()
            calls[at] = words, _command(f"text-{sources[at].index}", text[places[-1].end() :])
    return calls


def _shared(words: Iterable[str]) -> str:
    """Return the most frequent of *words* if enough of them are equal, else an empty text."""
    counts = Counter(words)
    word, count = counts.most_common(1)[0] if counts else ("", 0)
    return word if count >= MIN_CALLS and count >= MIN_SHARE * counts.total() else ""


def _is_shown(sources: Sequence[SourceMessage], at: int) -> bool:
    """Return whether the message *at* holds a call: an observation follows, or the system prompt shows its form."""
    answer = sources[at + 1].message.text if at + 1 < len(sources) else ""
    if _OBSERVED.match(answer) or _PROMPT.search(answer[-MAX_PROMPT_CHARS:]):
        return True
    text = sources[at].message.text.rstrip()
    form = text[text.rfind("</") :] if text.endswith(">") else "```" if text.endswith("```") else "Action"
    return any(source.message.role == "system" and form in source.message.text for source in sources[:at])


def _observed(source: SourceMessage, call_id: str, name: str) -> Message:
    return Message("tool", (ToolResult(call_id, name, (Text(source.message.text),), is_error=False),))


def _shown_first(changed: list[SourceMessage]) -> int:
    """Give the messages of a demonstration to the system, in place; return the position of the task.

    It is in the message of the task, in a message of its own before it, or it is a conversation with a task of its own:
    then a later message of the user begins like the first one.
    """
    users = [at for at, source in enumerate(changed) if source.message.role == "user"]
    first = next(iter(users), 0)
    answered = next((at for at, source in enumerate(changed) if source.message.role == "assistant"), len(changed))
    begin = max((at for at in users if at < answered), default=first)
    opening = _opening(changed[begin])
    again = [at for at in users if at > answered and opening and _opening(changed[at]) == opening]
    is_shown = begin > first and _DEMONSTRATES.search(changed[first].message.text) is not None
    if again:
        begin = again[-1]
    elif not is_shown:
        begin = first
    for at in range(first, begin):
        changed[at] = _as_system(changed[at], changed[at].message.text)
    task = changed[begin] if users else None
    if task is not None and (found := _DEMONSTRATION.search(task.message.text)) is not None:
        rest = f"{task.message.text[: found.start()]}{task.message.text[found.end() :]}".strip()
        changed[begin] = replace(task, message=Message("user", (Text(rest),))) if rest else _as_system(task, found[0])
    return begin


def _opening(source: SourceMessage) -> str:
    """Return the first line of a message if it is long enough to tell a task."""
    line = source.message.text.strip().partition("\n")[0].strip()
    return line if len(line) >= MIN_OPENING_CHARS else ""


def _as_system(source: SourceMessage, text: str) -> SourceMessage:
    return replace(source, message=Message("system", (Text(text),)))


def call_in(text: str, call_id: str) -> tuple[str, ToolCall] | None:
    """Return the words before the call that ends *text*, and the call with *call_id*; None if it ends with none."""
    text = text.rstrip()
    fence = _FENCE.search(text) if text.endswith(("\n```", "\n~~~")) else None
    before, inner = ("", text) if fence is None else (text[: fence.start()].strip(), text[fence.end() : -len("\n```")])
    if (called := _json_call(inner, call_id)) is not None:
        return before or called[0], called[1]
    if (found := _REACT.match(text)) is not None:
        arguments = found[3] if found[3].startswith("{") else json.dumps({"input": found[3]})
        return found[1].strip(), ToolCall(call_id, found[2], arguments)
    if (closing := _CLOSING_TAG.search(text[-MAX_TAG_CHARS:])) is not None:
        before, _, inner = text.removesuffix(closing[0]).partition(f"<{closing[1]}>")
        inner = inner.strip()
        if inner.startswith("<") and (parameters := dict(_parameters(inner))):
            return before.strip(), ToolCall(call_id, closing[1], json.dumps(parameters))
        return (before.strip(), _command(call_id, inner)) if inner else None
    return (before, _command(call_id, inner)) if fence is not None and inner else None


def _json_call(text: str, call_id: str) -> tuple[str, ToolCall] | None:
    """Return the thought and the call of a JSON object that names a tool and its input; None if *text* is no such."""
    if not text.lstrip().startswith("{") or len(text) > MAX_JSON_CHARS:
        return None
    value = arguments_of(ToolCall(call_id, "", text))
    thought: object = next((value[key] for key in _THOUGHT_KEYS if key in value), "")
    name: object = next((value[key] for key in _NAME_KEYS if key in value), None)
    if is_object(name):
        value, name = name, name.get("name")
    given: object = next((value[key] for key in _INPUT_KEYS if key in value), None)
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or given is None:
        return None
    arguments = given if is_object(given) else {"input": given}
    return thought if isinstance(thought, str) else "", ToolCall(call_id, name, json.dumps(arguments))


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and content of each element, in linear time for as many that are not closed."""
    end, unclosed = 0, set[str]()
    for opening in _PARAMETER.finditer(text):
        name = opening[1]
        if opening.start() < end or name in unclosed:
            continue
        closing = text.find(f"</{name}>", opening.end())
        if closing < 0:
            unclosed.add(name)
            continue
        yield name, text[opening.end() : closing].strip()
        end = closing


def _command(call_id: str, text: str) -> ToolCall:
    """Return the call of a command: ``edit 1:1`` with the lines below it is the tool ``edit``, the rest a shell's."""
    first, _, rest = text.strip().partition("\n")
    name, _, words = first.partition(" ")
    tool = _TOOL.fullmatch(name)
    path = next((word.strip("\"'") for word in words.split() if "." in word and ":" not in word), "")
    if tool is None or (tool["edits"] and not (path or rest)):
        return ToolCall(call_id, "shell", json.dumps({"command": text.strip()}))
    arguments = {"path": path, "arguments": words}
    if tool["edits"] and rest:
        arguments["new"] = rest
    return ToolCall(call_id, name, json.dumps(arguments))
