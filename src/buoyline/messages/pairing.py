"""Pairs of calls and results: which result answers which call, even if ids repeat or are missing."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from buoyline.messages.losses import Losses
from buoyline.messages.model import Part, ToolCall, ToolResult, Turn

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
    def changed(place: int, turn: Turn) -> Turn:
        if turn.number in own:
            return turn
        return replace(turn, parts=tuple(change((place, number), part) for number, part in enumerate(turn.parts)))

    return [changed(place, turn) for place, turn in enumerate(turns)]
