"""`convert`: messages of one dialect in the form of another, and the losses on the way.

The messages are read into turns, brought into the order that the target wants, and written. A message that already has
the target's form stays the very same object, unless it has to be joined with another.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.dialect import Dialect
from buoyline.messages.jsonl import is_object
from buoyline.messages.losses import Loss, Losses
from buoyline.messages.model import (
    CachePoint,
    Json,
    Media,
    Part,
    Reasoning,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.registry import detect, dialect_named, dialect_names

_Read = TypeVar("_Read")

_IN_PROMPT: Final[Mapping[type[object], str]] = {Media: "medium", Json: "value", CachePoint: "cachepoint"}
"""Parts of a system message that a system prompt, which is text, cannot hold."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Messages in another dialect, possibly more or fewer than were given.

    Attributes:
        losses: The values that have no place there, or another form, in the order of the messages given.
        system: The text of the system messages at the beginning, if the dialect sends it beside the messages.
    """

    messages: list[Any]
    losses: tuple[Loss, ...] = ()
    system: str = ""


def convert(messages: Sequence[Any], to: str, from_: str | Sequence[str] | None = None) -> Converted:
    """Convert *messages* to the dialect *to*; none of them is changed.

    They are a conversation, or its end. *from_* names their dialect, or one for each; by default each is detected.

    Each result follows its call. For Anthropic and Bedrock the roles take turns, ids have the characters that they
    accept, and system messages at the beginning go beside the messages. For OpenAI each result is a message; for
    AgentScope rounds of calls and results are one message. `Converted.losses` lists every part of a message's meaning
    that cannot be kept; it does not list details of JSON that are no content, such as white space in arguments.

    >>> convert([{"role": "user", "content": "Ahoy"}], to="bedrock").messages
    [{'role': 'user', 'content': [{'text': 'Ahoy'}]}]

    Raises:
        ConfigError: A dialect is not known.
        MessageError: A message does not have its dialect's form; the error says which.
    """
    if to not in dialect_names():
        known = ", ".join(dialect_names())
        raise ConfigError("to", f"{to!r} is no dialect to convert to; choose one of {known}")
    target = dialect_named(to)
    if from_ is None:
        dialects = [_numbered(number, partial(detect, message)) for number, message in enumerate(messages)]
    elif isinstance(from_, str):
        dialects = [dialect_named(from_)] * len(messages)
    elif len(from_) == len(messages):
        dialects = [dialect_named(name) for name in from_]
    else:
        raise ConfigError("from_", f"{len(from_)} dialects for {len(messages)} messages; name one for each, or one")
    own = {number for number, dialect in enumerate(dialects) if dialect.name == to}
    read = [_read(message, dialects[number], Losses(to, number)) for number, message in enumerate(messages)]
    losses, system = Losses(to), ""
    turns = [turn for found, _ in read for turn in found]
    if not target.has_system_messages:
        turns, system = _without_system(turns, losses)
    turns = with_tool_names(with_results_after_calls(turns, own, losses), own, everywhere=target.names_results)
    turns = [
        turn if turn.number in own else replace(turn, parts=tuple(_placed(turn, target, losses.at(turn.number))))
        for turn in turns
    ]
    if target.alternates_roles:
        turns = with_valid_ids(list(_not_empty(turns, own, losses)), own, losses)
    made: list[Any] = []
    kept: set[int] = set()
    for group in _groups(turns, own, target, losses):
        number = group[0].number
        if number in own and group == read[number][0]:
            kept.add(number)
            made.append(messages[number])
        else:
            made += target.write(group, losses.at(number))
    of_reading = [loss for number, (_, lost) in enumerate(read) if number not in kept for loss in lost.found]
    return Converted(made, tuple(sorted([*of_reading, *losses.found], key=lambda loss: loss.message)), system)


def _read(message: Any, dialect: Dialect, losses: Losses) -> tuple[list[Turn], Losses]:
    turns = list(_numbered(losses.message, lambda: dialect.read(message, losses)))
    role = message.get("role", "assistant") if is_object(message) else getattr(message, "role", "assistant")
    if role != "assistant" and any(turn.role == "assistant" for turn in turns):
        losses.note(f"calls or reasoning of role {role!r}", "they are the model's there")
    return turns, losses


def _numbered(number: int, read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except MessageError as error:
        raise MessageError(f"message {number}: {error.reason}") from error


def _placed(turn: Turn, target: Dialect, losses: Losses) -> Iterator[Part]:
    """Yield the parts of *turn* that have a place in *target*; text replaces media without one."""
    for part in turn.parts:
        match part:
            case Media():
                yield _placed_media(part, turn.role, target, losses)
            case Reasoning() if (why := target.refuses_reasoning(part)) is not None:
                losses.note("hidden reasoning" if part.hidden else "reasoning", why)
            case CachePoint() if not target.has_cache_points:
                losses.note("cache point")
            case ToolResult():
                inner = (
                    _placed_media(one, turn.role, target, losses) if isinstance(one, Media) else one
                    for one in part.parts
                )
                yield replace(part, parts=tuple(inner))
            case _:
                yield part


def _placed_media(media: Media, role: Role, target: Dialect, losses: Losses) -> ResultPart:
    if role == "assistant" and not target.model_sends_media:
        return losses.left_out(media, "the model shows no media there")
    why = target.refuses_media(media)
    if why is not None:
        return losses.left_out(media, why)
    if media.name and media.kind != "document" and not target.names_media:
        losses.note(f"name {media.name!r} of {media.kind}")
    return media


def _without_system(turns: Sequence[Turn], losses: Losses) -> tuple[list[Turn], str]:
    """Take the system messages at the beginning out, and turn later ones into user messages."""
    count = next((place for place, turn in enumerate(turns) if turn.role != "system"), len(turns))
    texts = [_prompt(turn, losses.at(turn.number)) for turn in turns[:count]]
    others: list[Turn] = []
    for turn in turns[count:]:
        if turn.role == "system":
            losses.at(turn.number).note("role 'system'", "amid a conversation it is the user's")
        others.append(replace(turn, role="user") if turn.role == "system" else turn)
    return others, "\n\n".join(text for text in texts if text)


def _prompt(turn: Turn, losses: Losses) -> str:
    texts: list[str] = []
    for part in turn.parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif type(part) in _IN_PROMPT:
            losses.note(f"{_IN_PROMPT[type(part)]} in a system message")
    if turn.name or turn.metadata:
        losses.note("name and metadata of a system message")
    return "\n".join(texts)


def _not_empty(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> Iterator[Turn]:
    """Leave out messages without content: providers refuse them."""
    for turn in turns:
        if turn.number in own or any(not isinstance(part, CachePoint) for part in turn.parts):
            yield turn
        else:
            losses.at(turn.number).note("empty message", "it says nothing, and would be refused")


def _groups(turns: Sequence[Turn], own: Collection[int], target: Dialect, losses: Losses) -> list[list[Turn]]:
    """Return the turns of each message to write: those of one message of *own*, and those that *target* joins."""
    groups: list[list[Turn]] = []
    for turn in turns:
        last = groups[-1] if groups else []
        if last and last[-1].number == turn.number and turn.number in own:
            last.append(turn)
        elif last and target.joins(last, turn) and not (last[-1].number in own and turn.number in own):
            if last[-1].role == turn.role != "tool" and last[-1].number != turn.number:
                losses.at(turn.number).note(
                    "message of its own", f"it is one with message {last[-1].number}: roles take turns"
                )
            last.append(turn)
        else:
            groups.append([turn])
    return groups


# Pairs of calls and results: which result answers which call, even if ids repeat or are missing.

_ID: Final = re.compile("[a-zA-Z0-9_-]{1,64}")
"""An id that Anthropic and Bedrock accept."""

PartPlace: TypeAlias = tuple[int, int]
"""Number of a turn, and of a part in it."""


def with_results_after_calls(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> list[Turn]:
    """Move each result that comes late to the place behind its call, unless its message's number is in *own*."""
    calls = _calls_of_results(turns)
    kept: list[list[Part]] = [[] for _ in turns]
    moved: list[list[Part]] = [[] for _ in turns]
    for place, turn in enumerate(turns):
        into = kept[place]
        for number, part in enumerate(turn.parts):
            if isinstance(part, ToolResult):
                call = calls.get((place, number))
                is_late = call is not None and any(between.role != "tool" for between in turns[call[0] + 1 : place])
                into = kept[place]
                if call is not None and is_late and turn.number not in own:
                    into = moved[call[0]]
                    losses.at(turn.number).note("place of a result", "it follows its call at once now")
            into.append(part)  # a cache point follows its result
    made: list[Turn] = []
    for turn, stays, late in zip(turns, kept, moved, strict=True):
        if tuple(stays) == turn.parts:
            made.append(turn)
        elif stays:
            made.append(replace(turn, parts=tuple(stays)))
        if late:
            made.append(Turn("tool", tuple(late), number=turn.number))
    return made


def with_tool_names(turns: Sequence[Turn], own: Collection[int], *, everywhere: bool) -> list[Turn]:
    """Return *turns* whose results name their tool, *everywhere* or only if their call names another one."""
    calls = _calls_of_results(turns)

    def named(place: PartPlace, part: Part) -> Part:
        if not isinstance(part, ToolResult):
            return part
        call = calls.get(place)
        called = turns[call[0]].parts[call[1]] if call is not None else None
        known = called.name if isinstance(called, ToolCall) else ""
        if everywhere:
            return replace(part, name=part.name or known)
        return replace(part, name="") if part.name == known else part

    return _with_parts(turns, own, named)


def with_valid_ids(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> list[Turn]:
    """Return *turns* whose ids Anthropic and Bedrock accept: not empty, of few characters, each used once."""
    calls = _calls_of_results(turns)
    ids: dict[PartPlace, str] = {}
    used: set[str] = set()
    for place, turn in enumerate(turns):
        for number, part in enumerate(turn.parts):
            if isinstance(part, ToolCall):
                new = part.call_id if turn.number in own else _valid_id(part.call_id, (place, number), used)
                if new != part.call_id:
                    losses.at(turn.number).note(f"id {part.call_id!r} of a call", f"it is {new!r} now")
                ids[place, number] = new
                used.add(new)

    def with_id(place: PartPlace, part: Part) -> Part:
        if not isinstance(part, ToolCall | ToolResult):
            return part
        call = place if isinstance(part, ToolCall) else calls.get(place)
        new = ids[call] if call is not None else _valid_id(part.call_id, place, set())
        if call is None and new != part.call_id:
            noted = losses.at(turns[place[0]].number)
            noted.note(f"id {part.call_id!r} of a result without a call", f"it is {new!r} now")
        return part if new == part.call_id else replace(part, call_id=new)

    return _with_parts(turns, own, with_id)


def _calls_of_results(turns: Sequence[Turn]) -> dict[PartPlace, PartPlace]:
    """Return the place of the call for each result that answers one.

    Of several calls with one id it is the newest turn's, and within that turn the first that has no result yet.
    """
    waiting: dict[str, list[PartPlace]] = {}
    found: dict[PartPlace, PartPlace] = {}
    for place, turn in enumerate(turns):
        for number, part in enumerate(turn.parts):
            if isinstance(part, ToolCall):
                waiting.setdefault(part.call_id, []).append((place, number))
            elif isinstance(part, ToolResult) and (calls := waiting.get(part.call_id)):
                newest = calls[-1][0]
                chosen = next(call for call in calls if call[0] == newest)
                calls.remove(chosen)
                found[place, number] = chosen
    return found


def _valid_id(call_id: str, place: PartPlace, used: Collection[str]) -> str:
    """Return *call_id* if it is valid and not *used*, else an id that names the place of the call."""
    if _ID.fullmatch(call_id) and call_id not in used:
        return call_id
    readable = re.sub("[^a-zA-Z0-9_-]", "_", call_id)[:40] or "call"
    return f"{readable}-{place[0]}-{place[1]}"


def _with_parts(turns: Sequence[Turn], own: Collection[int], change: Callable[[PartPlace, Part], Part]) -> list[Turn]:
    made: list[Turn] = []
    for place, turn in enumerate(turns):
        changed = (change((place, number), part) for number, part in enumerate(turn.parts))
        made.append(turn if turn.number in own else replace(turn, parts=tuple(changed)))
    return made
