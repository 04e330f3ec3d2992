"""`convert`: messages of one dialect in the form of another, and the losses on the way.

The views of the messages are split into turns, calls and results are paired, and the target writes the turns. A message
that already has the target's form stays the very same object, unless a pair in it changes or it is joined with another.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.dialect import Dialect, turns_of
from buoyline.messages.model import Loss, Losses, Message, Text, ToolCall, ToolResult, Turn
from buoyline.messages.registry import detect, dialect_named

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
    if isinstance(from_, str):
        messages = dialect_named(from_).grouped(messages)
        from_ = [from_] * len(messages)
    if from_ is not None and len(from_) != len(messages):
        raise ConfigError("from_", f"{len(from_)} dialects for {len(messages)} messages; name one for each, or one")
    own: dict[int, tuple[list[Turn], list[Loss]]] = {}
    losses, turns = Losses(to), list[Turn]()
    for number, message in enumerate(messages):
        try:
            dialect = detect(message) if from_ is None else dialect_named(from_[number])
            view, noted = dialect.view(message), Losses(to, number)
        except MessageError as error:
            raise MessageError(f"message {number}: {error.reason}") from error
        read = turns_of(view, noted, target)
        turns += read
        if dialect is target and _has_only_held_texts(view, target):
            own[number] = read, noted.found
        else:
            losses.found += noted.found
    system = ""
    if not target.has_system_messages:
        turns, system = _without_system(turns, losses)
    turns = paired(turns, losses, needs_ids=target.alternates_roles)
    made = target.joined(target.in_turns(list(_written(turns, messages, own, target, losses)), _BEGINNING))
    items = [item for message in made for item in target.handed_out(message)]
    return Converted(items, tuple(sorted(losses.found, key=lambda loss: loss.message)), system)


def _has_only_held_texts(view: Message, target: Dialect) -> bool:
    """Return whether *target* takes all texts of its own message: Anthropic and Bedrock refuse blank ones."""
    inner = (part for result in view.results for part in result.parts)
    return all(target.holds(part, view.role) for part in (*view.parts, *inner) if isinstance(part, Text))


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
    own: dict[int, tuple[list[Turn], list[Loss]]],
    target: Dialect,
    losses: Losses,
) -> Iterator[Any]:
    """Yield the messages that *target* makes of *turns*; those of *own* messages that did not change stay."""
    waiting: list[Turn] = []
    for number, group in groupby(turns, key=lambda turn: turn.number):
        found = [*group]
        read, lost = own.pop(number, (None, ()))
        if read == found:
            yield from target.write(waiting, losses)
            yield messages[number]
            waiting = []
        else:
            losses.found += lost
            waiting += found
    yield from target.write(waiting, losses)


# Pairs of calls and results: which result answers which call, even if ids repeat or are missing.

_ID: Final = re.compile("[a-zA-Z0-9_-]{1,64}")
"""An id that Anthropic and Bedrock accept."""

PartPlace: TypeAlias = tuple[int, int]
"""Number of a turn, and of a part in it."""


def paired(turns: Sequence[Turn], losses: Losses, *, needs_ids: bool) -> list[Turn]:
    """Return *turns* in which each call has its result after it; a result without a call becomes the user's words.

    With *needs_ids* Anthropic and Bedrock accept the ids: not empty, of few characters, each used once.
    """
    calls = _calls_of_results(turns)
    answers: dict[int, list[PartPlace]] = {}  # by the turn with the calls
    for answer, call in calls.items():
        answers.setdefault(call[0], []).append(answer)
    made, used = list[Turn](), set[str]()
    for place, turn in enumerate(turns):
        noted = losses.at(turn.number)
        if turn.role == "tool":
            for number, result in enumerate(turn.results):
                if (place, number) not in calls:
                    why = "its call is not here: it is the user's now"
                    noted.note(f"result of the call {result.call_id!r}", why)
                    words = Text(f"[Result of the call {result.call_id!r}, which is not here:]")
                    made.append(Turn("user", (words, *result.parts), number=turn.number))
            continue
        open_calls: dict[int, ToolCall] = {}
        for number, part in enumerate(turn.parts):
            if isinstance(part, ToolCall):
                call_id = _valid_id(part.call_id, f"{place}-{number}", used, noted) if needs_ids else part.call_id
                open_calls[number] = replace(part, call_id=call_id)
        made.append(replace(turn, parts=tuple(open_calls.get(n, part) for n, part in enumerate(turn.parts))))
        for at, group in groupby(answers.get(place, ()), key=lambda answer: answer[0]):
            found = [(turns[at].results[number], open_calls.pop(calls[at, number][1])) for _, number in group]
            made.append(replace(turns[at], parts=tuple(replace(one, call_id=call.call_id) for one, call in found)))
        if open_calls:
            interrupted = [ToolResult(call.call_id, call.name, (Text(INTERRUPTED),)) for call in open_calls.values()]
            made.append(Turn("tool", tuple(interrupted), number=-1))  # it is in no message
    return made


def _valid_id(call_id: str, place: str, used: set[str], losses: Losses) -> str:
    """Return an id that is not *used* yet: *call_id*, or one that ends in *place*."""
    found = call_id
    if not _ID.fullmatch(found) or found in used:
        found = f"{re.sub('[^a-zA-Z0-9_-]', '_', call_id)[:40] or 'call'}-{place}"
        losses.note(f"id {call_id!r} of a call", f"it is {found!r} now")
    used.add(found)
    return found


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
