"""`convert`: messages of one dialect in the form of another, and the losses on the way.

The views of the messages are split into turns, calls and results are paired, and the target writes the turns. A message
that already has the target's form stays the very same object, unless a pair in it changes or it is joined with another.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias, TypeVar

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.dialect import Dialect, neighbors_joined, turns_of
from buoyline.messages.losses import Loss, Losses
from buoyline.messages.model import Part, Text, ToolCall, ToolResult, Turn
from buoyline.messages.registry import detect, dialect_named

T = TypeVar("T")

INTERRUPTED: Final = "[interrupted: no result was recorded]"
"""Answers a call without a result, which every provider refuses."""

_BEGINNING: Final = "[The conversation begins here.]"
"""Comes before the model's words if the target wants the user's first."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Messages in another dialect, possibly more or fewer than were given.

    Attributes:
        losses: The parts that have no place there, or another form, in the order of the messages given.
        system: The text of the system messages at the beginning, if the dialect sends it beside the messages.
    """

    messages: list[Any]
    losses: tuple[Loss, ...] = ()
    system: str = ""


def convert(messages: Sequence[Any], to: str, from_: str | Sequence[str] | None = None) -> Converted:
    """Convert *messages*, a conversation, to the dialect *to*; none of them is changed.

    *from_* names their dialect, or one for each; by default each is detected. What comes out is valid for the API: each
    result follows its call, a call without a result is answered by ``[interrupted: no result was recorded]``, a result
    without a call is the user's words. For Anthropic and Bedrock roles take turns, ids have the characters that they
    accept, no text is blank, and system messages at the beginning go beside the messages.

    `Converted.losses` names the parts that the dialect cannot hold. Ids, times, usage, metadata, annotations and cache
    points are not carried over.

    >>> convert([{"role": "user", "content": "Ahoy"}], to="bedrock").messages
    [{'role': 'user', 'content': [{'text': 'Ahoy'}]}]

    Raises:
        ConfigError: A dialect is not known.
        MessageError: A message does not have its dialect's form; the error says which.
    """
    target = dialect_named(to)
    if from_ is None:
        dialects = [_numbered(number, partial(detect, message)) for number, message in enumerate(messages)]
    elif isinstance(from_, str):
        messages = dialect_named(from_).grouped(messages)
        dialects = [dialect_named(from_)] * len(messages)
    elif len(from_) == len(messages):
        dialects = [dialect_named(name) for name in from_]
    else:
        raise ConfigError("from_", f"{len(from_)} dialects for {len(messages)} messages; name one for each, or one")
    own: dict[int, tuple[list[Turn], list[Loss]]] = {}
    losses, turns = Losses(to), list[Turn]()
    for number, (message, dialect) in enumerate(zip(messages, dialects, strict=True)):
        noted = Losses(to, number)
        read = turns_of(_numbered(number, partial(dialect.view, message)), noted)
        turns += read
        if dialect is target:
            own[number] = read, noted.found
        else:
            losses.found += noted.found
    system = ""
    if not target.has_system_messages:
        turns, system = _without_system(turns, losses)
    turns = paired(turns, losses)
    if target.alternates_roles:
        turns = with_valid_ids(turns, losses)
    made = list(_written(turns, messages, own, target, losses))
    if target.alternates_roles:
        if made and target.view(made[0]).role == "assistant":
            made.insert(0, target.user_message(_BEGINNING))
        made = neighbors_joined(made)
    made = [item for message in made for item in target.handed_out(message)]
    return Converted(made, tuple(sorted(losses.found, key=lambda loss: loss.message)), system)


def _numbered(number: int, read: Callable[[], T]) -> T:
    try:
        return read()
    except MessageError as error:
        raise MessageError(f"message {number}: {error.reason}") from error


def _without_system(turns: Sequence[Turn], losses: Losses) -> tuple[list[Turn], str]:
    """Take the system messages at the beginning out, and turn later ones into user messages."""
    count = next((place for place, turn in enumerate(turns) if turn.role != "system"), len(turns))
    others: list[Turn] = []
    for turn in turns[count:]:
        if turn.role == "system":
            losses.at(turn.number).note("role 'system'", "amid a conversation it is the user's")
        others.append(replace(turn, role="user") if turn.role == "system" else turn)
    return others, "\n\n".join(filter(None, (turn.text for turn in turns[:count])))


def _written(
    turns: Sequence[Turn],
    messages: Sequence[Any],
    own: Mapping[int, tuple[list[Turn], list[Loss]]],
    target: Dialect,
    losses: Losses,
) -> Iterator[Any]:
    """Yield the messages that *target* makes of *turns*; those of *own* messages that did not change stay."""

    def number_if_own(item: tuple[int, list[Turn]]) -> int:
        number, group = item
        return number if number in own and own[number][0] == group else -1

    by_message = [(number, [*group]) for number, group in groupby(turns, key=lambda turn: turn.number)]
    for number, group in groupby(by_message, key=number_if_own):
        if number >= 0:
            yield messages[number]
            continue
        rewritten = [turn for _, inner in group for turn in inner]
        for changed in {turn.number for turn in rewritten} & own.keys():
            losses.found += own[changed][1]
        yield from target.write(rewritten, losses)


# Pairs of calls and results: which result answers which call, even if ids repeat or are missing.

_ID: Final = re.compile("[a-zA-Z0-9_-]{1,64}")
"""An id that Anthropic and Bedrock accept."""

PartPlace: TypeAlias = tuple[int, int]
"""Number of a turn, and of a part in it."""


def paired(turns: Sequence[Turn], losses: Losses) -> list[Turn]:
    """Return *turns* in which each call has its result behind it; a result without a call becomes the user's words."""
    calls = _calls_of_results(turns)
    answered = set(calls.values())
    behind: dict[int, list[Turn]] = {}  # by the place of the turn with the call
    stays: list[tuple[int, Turn]] = []
    orphans: list[tuple[int, Turn]] = []  # they wait for the last result of their round
    for place, turn in enumerate(turns):
        noted = losses.at(turn.number)
        if turn.role != "tool":
            stays += [*orphans, (place, turn)]
            orphans.clear()
            open_calls = [
                ToolResult(part.call_id, part.name, (Text(INTERRUPTED),))
                for number, part in enumerate(turn.parts)
                if isinstance(part, ToolCall) and (place, number) not in answered
            ]
            if open_calls:  # the answer is in no message
                behind.setdefault(place, []).append(Turn("tool", tuple(open_calls), number=-1))
            continue
        kept: list[Part] = []
        for number, result in enumerate(turn.results):
            call = calls.get((place, number))
            if call is None:
                noted.note(f"result of the call {result.call_id!r}", "its call is not here: it is the user's now")
                words = Text(f"[Result of the call {result.call_id!r}, which is not here:]")
                orphans.append((place, Turn("user", (words, *result.parts), number=turn.number)))
            elif any(between.role != "tool" for between in turns[call[0] + 1 : place]):
                noted.note("place of a result", "it follows its call at once now")
                behind.setdefault(call[0], []).append(Turn("tool", (result,), number=turn.number))
            else:
                kept.append(result)
        if kept:
            stays.append((place, turn if len(kept) == len(turn.parts) else replace(turn, parts=tuple(kept))))
    return [one for place, turn in (*stays, *orphans) for one in (turn, *(behind.pop(place, ())))]


def with_valid_ids(turns: Sequence[Turn], losses: Losses) -> list[Turn]:
    """Return *turns* whose ids Anthropic and Bedrock accept: not empty, of few characters, each used once."""
    calls = _calls_of_results(turns)
    ids, used = dict[PartPlace, str](), set[str]()
    for place, turn in enumerate(turns):
        for number, part in enumerate(turn.parts):
            if isinstance(part, ToolCall):
                new = part.call_id
                if not _ID.fullmatch(new) or new in used:
                    readable = re.sub("[^a-zA-Z0-9_-]", "_", part.call_id)[:40] or "call"
                    new = f"{readable}-{place}-{number}"
                    losses.at(turn.number).note(f"id {part.call_id!r} of a call", f"it is {new!r} now")
                ids[place, number] = new
                used.add(new)

    def with_id(place: PartPlace, part: Part) -> Part:
        call = place if isinstance(part, ToolCall) else calls.get(place)
        return replace(part, call_id=ids[call]) if call and isinstance(part, ToolCall | ToolResult) else part

    return [
        replace(turn, parts=tuple(with_id((place, number), part) for number, part in enumerate(turn.parts)))
        for place, turn in enumerate(turns)
    ]


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
