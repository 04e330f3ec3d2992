"""The session files of Claude Code, ``~/.claude/projects/<project>/<session>.jsonl``, as messages in Anthropic's form.

Such a file holds one record a line. Most records are no message, and the blocks of one answer are spread over several
records, possibly with tool results between them. Anthropic documents no schema; this follows recorded sessions of the
versions 2.1.7 to 2.1.29. The messages stay in the order of the file, abandoned branches included.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buoyline.messages.jsonl import is_object
from buoyline.messages.native import blocks_of

_SPEAKERS = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True)
class ClaudeCodeSession:
    """The conversation in a session file.

    Attributes:
        messages: In the order of the file; each has just a role and its content.
        skipped: How many records are not among them, by what they are, the most frequent first.
        compactions: How many compactions of Claude Code's own are recorded. Their summaries are user messages.
    """

    messages: list[dict[str, Any]]
    skipped: Mapping[str, int]
    compactions: int


def is_claude_code(records: Sequence[object]) -> bool:
    """Tell whether the lines of a file are records of Claude Code: messages wrapped in an object with a ``type``."""
    return any(is_object(record) and _is_message(record) for record in records)


def read_claude_code(records: Sequence[object]) -> ClaudeCodeSession:
    """Return the conversation that *records* hold.

    The records of a sub-agent are skipped, unless the file has no others: then the sub-agent's conversation is meant.

    Raises:
        MessageError: The content of a message is neither text, a list, nor null.
    """
    objects = [record for record in records if is_object(record)]
    is_of_sub_agent = all(record.get("isSidechain") is True for record in objects if _is_message(record))
    skipped = Counter({"lines without an object": len(records) - len(objects)})
    messages: list[dict[str, Any]] = []
    answers: dict[str, dict[str, Any]] = {}
    seen = set[str]()
    for record in objects:
        kind = _reason_to_skip(record, seen, is_of_sub_agent=is_of_sub_agent)
        skipped[kind] += bool(kind)
        if not kind:
            _add(record["message"], messages, answers)
    return ClaudeCodeSession(
        messages,
        {kind: count for kind, count in skipped.most_common() if count},
        sum(record.get("isCompactSummary") is True for record in objects),
    )


def _is_message(record: Mapping[str, Any]) -> bool:
    return "role" not in record and record.get("type") in _SPEAKERS and is_object(record.get("message"))


def _reason_to_skip(record: Mapping[str, Any], seen: set[str], *, is_of_sub_agent: bool) -> str:
    """Return what kind of record this is if it is no message of the conversation, else ``""``."""
    if not _is_message(record):
        kind = record.get("type")
        return kind if isinstance(kind, str) and kind not in _SPEAKERS else "unknown"
    if record.get("isSidechain") is True and not is_of_sub_agent:
        return "message of a sub-agent"
    if record.get("isApiErrorMessage") is True:  # Claude Code shows it to the user; no model has written or seen it
        return "error of the API"
    record_id = record.get("uuid")
    if isinstance(record_id, str) and record_id in seen:  # a resumed session repeats records
        return "repetition"
    if isinstance(record_id, str):
        seen.add(record_id)
    return ""


def _add(message: Mapping[str, Any], messages: list[dict[str, Any]], answers: dict[str, dict[str, Any]]) -> None:
    """Append *message*, or its blocks to the answer that they belong to, which may have results behind it by now."""
    answer_id, content = message.get("id"), message.get("content")
    found: dict[str, Any] = {"role": message.get("role"), "content": content}
    if not isinstance(answer_id, str) or message.get("role") != "assistant":
        messages.append(found)
    elif answer_id in answers:
        answers[answer_id]["content"] += blocks_of(content)
    else:
        found["content"] = [*blocks_of(content)]
        answers[answer_id] = found
        messages.append(found)
