"""Reading a recorded conversation, in whichever of the usual forms somebody has it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages.claude_code import is_claude_code, read_claude_code
from buoyline.messages.dialect import detect, dialect_named
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.message import Message

_EXPECTED = (
    "expected one message a line, a JSON array of messages, an object with 'messages', or a session file of Claude Code"
)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded conversation.

    Attributes:
        messages: In order, each of a known dialect.
        form: How the file spells it, in words.
        skipped: How many records of the file are no messages, by what they are.
        compactions: How many compactions of the recorded agent's own are in it; their summaries are user messages.
    """

    messages: list[dict[str, Any]]
    form: str
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    compactions: int = 0


def read_recording(content: bytes, source: str, dialect: str | None = None) -> Recording:
    """Read a conversation: JSON lines, an array, an object with ``messages``, or a session file of Claude Code.

    The form is detected by the content. The ``system`` prompt of an object becomes the first message.

    Args:
        content: Of the file.
        source: Its name, for errors.
        dialect: Of the messages; left out: detected, message by message.

    Raises:
        MessageError: It has none of these forms, or something in it is no message of the dialect; the error says
            where, what was expected, and what was found.
        ConfigError: There is no such dialect.
    """
    values, unit = _values(content, source)
    form = {"line": "JSON lines", "message": "JSON array"}[unit]
    if unit == "line" and is_claude_code(values):
        session = read_claude_code(values)
        _check(session.messages, f"{source}, message", dialect)
        return Recording(session.messages, "Claude Code session", session.skipped, session.compactions)
    if len(values) == 1 and is_object(whole := values[0]) and "role" not in whole and "messages" in whole:
        values, unit, form = _wrapped(whole, source), "message", "JSON object with 'messages'"
    _check(values, f"{source}, {unit}", dialect, first=1 if unit == "line" else 0)
    return Recording(values, form)


def _values(content: bytes, source: str) -> tuple[list[Any], str]:
    """Return the JSON values of a file, and what each of them is: a ``line``, or a ``message`` of an array."""
    stripped = content.removeprefix(b"\xef\xbb\xbf").rstrip()
    if not stripped:
        raise MessageError(f"{source}: is empty; {_EXPECTED}")
    lines = stripped.split(b"\n")
    if (len(lines) > 1 and lines[0].strip()[-1:] in (b"[", b"{", b",")) or not lines[0].strip():
        return _flat([_whole(stripped, source)])
    values = [_line(line, f"{source}, line {number}") for number, line in enumerate(lines, 1)]
    return _flat(values)


def _flat(values: list[Any]) -> tuple[list[Any], str]:
    """Return the items of an array that is all that a file holds, or else *values*, one a line."""
    if len(values) == 1 and is_array(values[0]):
        return list(values[0]), "message"
    return values, "line"


def _whole(content: bytes, source: str) -> Any:
    try:
        return parse(content)
    except MessageError as error:
        raise MessageError(f"{source}: {error.reason}; {_EXPECTED}") from error


def _line(line: bytes, place: str) -> Any:
    if not line.strip():
        raise MessageError(f"{place}: is blank; each line holds one message")
    try:
        return parse(line)
    except MessageError as error:
        raise MessageError(f"{place}: {error.reason}; {_EXPECTED}") from error


def _wrapped(whole: Mapping[str, Any], source: str) -> list[Any]:
    """Return the messages of a request's body, its system prompt first."""
    messages, system = whole["messages"], whole.get("system")
    if not is_array(messages):
        raise MessageError(f"{source}: 'messages' must be a list of messages, not {type(messages).__name__}")
    return [*([{"role": "system", "content": system}] if system else []), *messages]


def _check(messages: Sequence[Any], place: str, dialect: str | None, *, first: int = 0) -> None:
    if not messages:
        raise MessageError(f"{place.rpartition(',')[0]}: holds no messages; {_EXPECTED}")
    for number, message in enumerate(messages, first):
        try:
            _check_message(message, dialect)
        except MessageError as error:
            raise MessageError(f"{place} {number}: {error.reason}") from error


def _check_message(message: Any, dialect: str | None) -> None:
    """Make sure that *message* can be read, kept and, in the dialect that was named, seen whole.

    Raises:
        MessageError: It cannot. Another dialect's calls and results would pass for text, and never be offloaded.
    """
    if dialect is None:
        detect(message).view(message)
    else:
        unseen = _unseen(message, dialect)
        if unseen:
            raise MessageError(unseen)
    spell(message)


def _unseen(message: Any, dialect: str) -> str:
    """Say which calls and results of *message* only another dialect than *dialect* sees; ``""`` if there are none."""
    seen = dialect_named(dialect).view(message)
    try:
        other = detect(message)
    except MessageError:
        return ""  # the named dialect alone knows it
    for what, there, here in _calls_and_results(other.view(message), seen):
        if there > here:
            return f"has a {what} of the dialect {other.name} that {dialect} does not see; name {other.name}, or none"
    return ""


def _calls_and_results(one: Message, other: Message) -> Iterator[tuple[str, int, int]]:
    yield "tool call", len(one.calls), len(other.calls)
    yield "tool result", len(one.results), len(other.results)
