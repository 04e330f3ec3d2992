"""`convert`: messages of one dialect in the form of another, and what of them has no place there.

Messages are read into blocks that every dialect shares, brought into the order that the target wants, and written. A
message that is of the target's dialect already stays the very same object, but where it has to be joined with another.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.conversion import agentscope, anthropic, bedrock, openai
from buoyline.messages.conversion.agentscope import AgentScopeTarget
from buoyline.messages.conversion.anthropic import AnthropicTarget
from buoyline.messages.conversion.bedrock import BedrockTarget
from buoyline.messages.conversion.blocks import (
    Answered,
    Block,
    CachePoint,
    Loss,
    Losses,
    Medium,
    Said,
    Thought,
    Turn,
    Value,
)
from buoyline.messages.conversion.openai import OpenAITarget
from buoyline.messages.conversion.pairing import named, side_by_side, with_valid_ids
from buoyline.messages.formats import left_out
from buoyline.messages.jsonl import is_object
from buoyline.messages.model import Role
from buoyline.messages.registry import detect, dialect_named

# What a conversion has to know of the dialect that it writes.


class Target(Protocol):
    """Writes one dialect.

    Attributes:
        takes_turns: The user, the tools among them, and the model have to take turns.
        has_system: A system message is a message there; else it is sent beside them.
        has_cache_points: The end of a cached prompt has a place.
        names_results: A result names its tool.
        shows_media: The model, too, may show media.
        names_media: Not only documents have names.
    """

    takes_turns: bool
    has_system: bool
    has_cache_points: bool
    names_results: bool
    shows_media: bool
    names_media: bool

    def refusal(self, medium: Medium) -> str | None:
        """Return why *medium* has no place; empty: for no reason beyond that; None where it has one."""
        ...

    def refuses(self, thought: Thought) -> str | None:
        """Return why *thought* has no place; None where it has one."""
        ...

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """Tell whether *turn* belongs into one message with the turns before it."""
        ...

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write the message that holds *group*, or several."""
        ...


def fitted(turn: Turn, target: Target, losses: Losses) -> Iterator[Block]:
    """Yield the blocks of *turn* as they have a place; text stands for media without one."""
    for block in turn.blocks:
        match block:
            case Medium():
                yield _shown(block, turn.role, target, turn.number, losses)
            case Thought() if (why := target.refuses(block)) is not None:
                losses.note(turn.number, "hidden reasoning" if block.hidden else "reasoning", why)
            case Answered():
                inner = tuple(
                    _shown(given, turn.role, target, turn.number, losses) if isinstance(given, Medium) else given
                    for given in block.blocks
                )
                yield Answered(block.call_id, block.name, inner, block.is_error)
            case _:
                yield block


def _shown(medium: Medium, role: Role, target: Target, number: int, losses: Losses) -> Medium | Said:
    if role == "assistant" and not target.shows_media:
        return left_out(medium, number, losses, "the model shows no media there")
    why = target.refusal(medium)
    if why is not None:
        return left_out(medium, number, losses, why)
    if medium.name and medium.kind != "document" and not target.names_media:
        losses.note(number, f"name {medium.name!r} of {medium.kind}")
    return medium


Read: TypeAlias = Callable[[Any, int, Losses], list[Turn]]

_READERS: Mapping[str, Read] = MappingProxyType(
    {
        "agentscope": agentscope.read,
        "anthropic": anthropic.read,
        "bedrock": bedrock.read,
        "openai": openai.read,
    }
)
_TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "agentscope": AgentScopeTarget(),
        "anthropic": AnthropicTarget(),
        "bedrock": BedrockTarget(),
        "openai": OpenAITarget(),
    }
)


@dataclass(frozen=True, slots=True)
class Converted:
    """Messages in another dialect.

    Attributes:
        messages: In order; as many as the dialect wants, which may be more or fewer than were given.
        losses: What has no place there, or another form, in the order of the messages given.
        system: What system messages at the beginning say, where the dialect sends that beside the messages.
    """

    messages: list[Any]
    losses: tuple[Loss, ...] = ()
    system: str = ""


def convert(messages: Sequence[Any], to: str, from_: str | Sequence[str] | None = None) -> Converted:
    """Convert *messages* to the dialect *to*; none of them is changed.

    A call and its results stand side by side. For Anthropic and Bedrock the roles take turns, ids are such as they
    take, and system messages at the beginning go beside the messages. For OpenAI each result is a message; for
    AgentScope rounds of calls and results are one. What belongs to a message's meaning and cannot be kept is in
    `Converted.losses`; that of JSON which is no content, such as white space in arguments, is not.

    >>> convert([{"role": "user", "content": "Ahoy"}], to="bedrock").messages
    [{'role': 'user', 'content': [{'text': 'Ahoy'}]}]

    Args:
        messages: A conversation, or its end; of any known dialects.
        to: Name of the dialect wanted, e.g. ``"bedrock"``.
        from_: Name of the dialect of all messages, or one for each; left out: detected for each.

    Raises:
        ConfigError: A dialect is not known.
        MessageError: A message is none of its dialect; the error says which.
    """
    if to not in _TARGETS:
        known = ", ".join(sorted(_TARGETS))
        raise ConfigError("to", f"{to!r} is no dialect to convert to; choose one of {known}")
    dialects = _dialects(messages, from_)
    own = {number for number, dialect in enumerate(dialects) if dialect == to}
    read = [_read(message, number, dialects[number], to) for number, message in enumerate(messages)]
    losses = Losses(to)
    turns, system = _arranged([turn for found, _ in read for turn in found], own, _TARGETS[to], losses)
    made: list[Any] = []
    kept: set[int] = set()
    for group in _groups(turns, own, _TARGETS[to], losses):
        number = group[0].number
        if number in own and list(group) == read[number][0]:
            kept.add(number)
            made.append(messages[number])
        else:
            made += _TARGETS[to].written(group, losses)
    of_reading = [loss for number, (_, lost) in enumerate(read) if number not in kept for loss in lost.found]
    return Converted(made, tuple(sorted([*of_reading, *losses.found], key=lambda loss: loss.message)), system)


def _dialects(messages: Sequence[Any], from_: str | Sequence[str] | None) -> Sequence[str]:
    if isinstance(from_, str):
        return [dialect_named(from_).name] * len(messages)
    if from_ is None:
        return [_numbered(number, lambda given: detect(given).name, message) for number, message in enumerate(messages)]
    names = [dialect_named(name).name for name in from_]
    if len(names) != len(messages):
        raise ConfigError("from_", f"{len(names)} dialects for {len(messages)} messages; name one for each, or one")
    return names


def _read(message: Any, number: int, dialect: str, to: str) -> tuple[list[Turn], Losses]:
    losses = Losses(to)
    turns: list[Turn] = _numbered(number, lambda given: _READERS[dialect](given, number, losses), message)
    role = message.get("role") if is_object(message) else getattr(message, "role", "assistant")
    if role != "assistant" and any(turn.role == "assistant" for turn in turns):
        losses.note(number, f"calls or reasoning of role {role!r}", "they are the model's there")
    return turns, losses


def _numbered(number: int, read: Callable[[Any], Any], message: Any) -> Any:
    try:
        return read(message)
    except MessageError as error:
        raise MessageError(f"message {number}: {error.reason}") from error


def _arranged(turns: list[Turn], own: Collection[int], target: Target, losses: Losses) -> tuple[list[Turn], str]:
    """Return the turns in the order and with the blocks that *target* takes, and the system prompt beside them."""
    system = ""
    if not target.has_system:
        turns, system = _without_system(turns, losses)
    turns = named(side_by_side(turns, own, losses), own, everywhere=target.names_results)
    turns = [
        turn if turn.number in own else replace(turn, blocks=tuple(_placed(turn, target, losses))) for turn in turns
    ]
    if target.takes_turns:
        turns = with_valid_ids(list(_spoken(turns, own, losses)), own, losses)
    return turns, system


def _placed(turn: Turn, target: Target, losses: Losses) -> Iterator[Any]:
    for block in fitted(turn, target, losses):
        if isinstance(block, CachePoint) and not target.has_cache_points:
            losses.note(turn.number, "cache point")
        else:
            yield block


def _without_system(turns: Sequence[Turn], losses: Losses) -> tuple[list[Turn], str]:
    """Take the system messages at the beginning out; those behind become the user's."""
    count = next((place for place, turn in enumerate(turns) if turn.role != "system"), len(turns))
    texts = [_prompt(turn, losses) for turn in turns[:count]]
    others: list[Turn] = []
    for turn in turns[count:]:
        if turn.role == "system":
            losses.note(turn.number, "role 'system'", "amid a conversation it is the user's")
        others.append(replace(turn, role="user") if turn.role == "system" else turn)
    return others, "\n\n".join(text for text in texts if text)


def _prompt(turn: Turn, losses: Losses) -> str:
    texts: list[str] = []
    for block in turn.blocks:
        if isinstance(block, Said):
            texts.append(block.text)
        elif isinstance(block, (Medium, Value, CachePoint)):
            losses.note(turn.number, f"{type(block).__name__.lower()} in a system message")
    if turn.name or turn.metadata:
        losses.note(turn.number, "name and metadata of a system message")
    return "\n".join(texts)


def _spoken(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> Iterator[Turn]:
    """Leave messages that say nothing out: providers refuse them."""
    for turn in turns:
        if turn.number in own or any(not isinstance(block, CachePoint) for block in turn.blocks):
            yield turn
        else:
            losses.note(turn.number, "empty message", "it says nothing, and would be refused")


def _groups(turns: Sequence[Turn], own: Collection[int], target: Target, losses: Losses) -> list[list[Turn]]:
    """Return what becomes one message each: turns of one message of *own*, and what *target* joins."""
    groups: list[list[Turn]] = []
    for turn in turns:
        last = groups[-1] if groups else []
        if last and last[-1].number == turn.number and turn.number in own:
            last.append(turn)
        elif last and target.joins(last, turn) and not (last[-1].number in own and turn.number in own):
            if last[-1].role == turn.role != "tool" and last[-1].number != turn.number:
                losses.note(
                    turn.number, "message of its own", f"it is one with message {last[-1].number}: roles take turns"
                )
            last.append(turn)
        else:
            groups.append([turn])
    return groups
