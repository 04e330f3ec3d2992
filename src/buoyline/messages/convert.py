"""`convert`: messages of one dialect in the form of another, and the losses on the way.

The messages are read into turns, brought into the order that the target wants, and written. A message that already has
the target's form stays the very same object, unless it has to be joined with another.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.dialect import Dialect
from buoyline.messages.jsonl import is_object
from buoyline.messages.losses import Loss, Losses
from buoyline.messages.model import CachePoint, Json, Media, Part, Reasoning, ResultPart, Role, Text, ToolResult, Turn
from buoyline.messages.pairing import with_results_after_calls, with_tool_names, with_valid_ids
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

    Each result follows its call. For Anthropic and Bedrock the roles take turns, ids have the characters that they
    accept, and system messages at the beginning go beside the messages. For OpenAI each result is a message; for
    AgentScope rounds of calls and results are one message. `Converted.losses` lists every part of a message's meaning
    that cannot be kept; it does not list details of JSON that are no content, such as white space in arguments.

    >>> convert([{"role": "user", "content": "Ahoy"}], to="bedrock").messages
    [{'role': 'user', 'content': [{'text': 'Ahoy'}]}]

    Args:
        messages: A conversation, or its end; of any known dialects.
        to: Name of the dialect wanted, e.g. ``"bedrock"``.
        from_: Name of the dialect of all messages, or one for each; by default each is detected.

    Raises:
        ConfigError: A dialect is not known.
        MessageError: A message does not have its dialect's form; the error says which.
    """
    if to not in dialect_names():
        known = ", ".join(dialect_names())
        raise ConfigError("to", f"{to!r} is no dialect to convert to; choose one of {known}")
    target = dialect_named(to)
    dialects = _dialects(messages, from_)
    own = {number for number, dialect in enumerate(dialects) if dialect.name == to}
    read = [_read(message, dialects[number], Losses(to, number)) for number, message in enumerate(messages)]
    losses = Losses(to)
    turns, system = _arranged([turn for found, _ in read for turn in found], own, target, losses)
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


def _dialects(messages: Sequence[Any], from_: str | Sequence[str] | None) -> Sequence[Dialect]:
    if isinstance(from_, str):
        return [dialect_named(from_)] * len(messages)
    if from_ is None:
        return [_numbered(number, partial(detect, message)) for number, message in enumerate(messages)]
    if len(from_) != len(messages):
        raise ConfigError("from_", f"{len(from_)} dialects for {len(messages)} messages; name one for each, or one")
    return [dialect_named(name) for name in from_]


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


def _arranged(turns: Sequence[Turn], own: Collection[int], target: Dialect, losses: Losses) -> tuple[list[Turn], str]:
    """Return the turns in the order and with the parts that *target* takes, and the system prompt beside them."""
    system = ""
    if not target.has_system_messages:
        turns, system = _without_system(turns, losses)
    turns = with_tool_names(with_results_after_calls(turns, own, losses), own, everywhere=target.names_results)
    turns = [
        turn if turn.number in own else replace(turn, parts=tuple(_placed(turn, target, losses.at(turn.number))))
        for turn in turns
    ]
    if target.alternates_roles:
        turns = with_valid_ids(list(_not_empty(turns, own, losses)), own, losses)
    return turns, system


def _placed(turn: Turn, target: Dialect, losses: Losses) -> Iterator[Part]:
    """Yield the parts of *turn* that have a place; text replaces media without one."""
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
