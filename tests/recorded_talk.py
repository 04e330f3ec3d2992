"""Recorded sessions as talks of an agent: what users said, what the model said and called, what the tools gave."""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

Raw = dict[str, Any]

INTERRUPTED = "[no result was recorded]"
"""What a tool gives for a call that has none: agents answer each."""


@dataclass(frozen=True)
class Called:
    """A call, and what came of it."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    result: str

    @property
    def key(self) -> tuple[str, str]:
        """What a tool knows of the call."""
        return self.name, json.dumps(self.arguments, sort_keys=True)


@dataclass(frozen=True)
class Step:
    """One answer of a model."""

    thought: str
    text: str
    calls: tuple[Called, ...] = ()


@dataclass
class Turn:
    """What a user said, and all answers up to the one without calls."""

    words: str
    steps: list[Step] = field(default_factory=list[Step])


@dataclass(frozen=True)
class Talk:
    """A whole session.

    Attributes:
        system: What stood before the first user's words.
        turns: The rest. Messages that no agent could have in its own history are the user's words here: later ones of
            the system, results of nobody's calls.
    """

    system: str
    turns: Sequence[Turn]

    @property
    def names(self) -> list[str]:
        """The tools that were called."""
        return sorted({call.name for turn in self.turns for step in turn.steps for call in step.calls})


class Results:
    """What tools give for the calls of one step."""

    def __init__(self) -> None:
        self._waiting: deque[Called] = deque()

    def expect(self, step: Step) -> None:
        """Take note of what is called now; all that was called before has been answered."""
        assert not self._waiting, "a call was not carried out"
        self._waiting.extend(step.calls)

    def take(self, name: str, arguments: dict[str, Any]) -> str:
        """Return what was recorded for the oldest such call."""
        key = (name, json.dumps(arguments, sort_keys=True))
        called = next(call for call in self._waiting if call.key == key)
        self._waiting.remove(called)
        return called.result


def talk_of(
    path: Path, chance: Random, *, breaks: float = 0.0, has_unique_ids: bool = False, needs_ids: bool = False
) -> Talk:
    """Read a recording.

    Args:
        path: Its file.
        chance: Decides where the model stops and a user asks it to go on.
        breaks: How likely that is behind a step.
        has_unique_ids: AgentScope takes a call for answered whose id has a result in the same reply; so an id that
            occurs in a turn once more is given another one.
        needs_ids: Strands passes over calls without an id; so they all have the same one.
    """
    messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    system = _text(messages.pop(0)) if messages[0]["role"] == "system" else "You are an agent."
    if needs_ids:
        _name_nameless(messages)
    turns, words = list[Turn](), list[str]()
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            if message["role"] != "tool" or not _is_answer(messages, at):
                words.append(_text(message))
            continue
        ends_turn = not turns or not turns[-1].steps[-1].calls
        if words or ends_turn:
            if not ends_turn:
                turns[-1].steps.append(Step("", "I stop here."))
            turns.append(Turn("\n".join(word for word in words if word.strip()) or f"Go on after {at}."))
            words = []
        elif chance.random() < breaks:
            turns[-1].steps.append(Step("", f"I pause at {at}."))
            turns.append(Turn(f"Go on after {at}."))
        turns[-1].steps.append(_step(messages, at))
    if turns[-1].steps[-1].calls:
        turns[-1].steps.append(Step("", "I stop here."))
    return Talk(system, [_renamed(turn) for turn in turns] if has_unique_ids else turns)


def _name_nameless(messages: Sequence[Raw]) -> None:
    for message in messages:
        for call in message.get("tool_calls") or ():
            call["id"] = call["id"] or "call"
        if message["role"] == "tool":
            message["tool_call_id"] = message["tool_call_id"] or "call"


def _renamed(turn: Turn) -> Turn:
    seen, steps = set[str](), list[Step]()
    for step in turn.steps:
        calls = list[Called]()
        for number, call in enumerate(step.calls):
            call_id = call.call_id if call.call_id not in seen else f"{call.call_id}-{len(steps)}-{number}"
            seen.add(call_id)
            calls.append(Called(call_id, call.name, call.arguments, call.result))
        steps.append(Step(step.thought, step.text, tuple(calls)))
    return Turn(turn.words, steps)


def _step(messages: Sequence[Raw], at: int) -> Step:
    message, answers = messages[at], dict(_answers(messages, at))
    calls = tuple(
        Called(call["id"], call["function"]["name"], _arguments(call), answers.get(number, INTERRUPTED))
        for number, call in enumerate(message.get("tool_calls") or ())
    )
    text = _text(message).strip()
    return Step(message.get("reasoning_content") or "", text or ("" if calls else "(nothing)"), calls)


def _answers(messages: Sequence[Raw], at: int) -> Iterable[tuple[int, str]]:
    """Yield what follows the assistant's message *at* before the next one, by the number of the call it answers."""
    open_ids: list[str | None] = [call["id"] for call in messages[at].get("tool_calls") or ()]
    for message in messages[at + 1 :]:
        if message["role"] == "assistant":
            return
        if message["role"] == "tool" and message["tool_call_id"] in open_ids:
            number = open_ids.index(message["tool_call_id"])
            open_ids[number] = None
            yield number, _text(message)


def _is_answer(messages: Sequence[Raw], at: int) -> bool:
    before = next((place for place in reversed(range(at)) if messages[place]["role"] == "assistant"), None)
    if before is None:
        return False
    return len(list(_answers(messages[: at + 1], before))) > len(list(_answers(messages[:at], before)))


def _arguments(call: Raw) -> dict[str, Any]:
    try:
        found: Any = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        found = call["function"]["arguments"]
    return found if isinstance(found, dict) else {"input": found}


def _text(message: Raw) -> str:
    content = message["content"] or ""
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text") or f"[{block['type']}]" for block in content)
