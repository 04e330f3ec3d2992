"""Which result answers which call, however ids repeat or are missing, and how both stand side by side."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from buoyline.messages.losses import Losses
from buoyline.messages.model import Part, ToolCall, ToolResult, Turn

_ID: Final = re.compile("[a-zA-Z0-9_-]{1,64}")
"""What Anthropic and Bedrock take for an id."""

At: TypeAlias = tuple[int, int]
"""Number of a turn, and of a block in it."""

Change: TypeAlias = Callable[[At, ToolResult], ToolResult]


def pairs_of(turns: Sequence[Turn]) -> dict[At, At]:
    """Return for each result that answers a call where that call is.

    Of several calls of one id it is the newest turn's, and within that the first that has no result yet.
    """
    waiting: dict[str, list[At]] = {}
    found: dict[At, At] = {}
    for place, turn in enumerate(turns):
        for number, block in enumerate(turn.parts):
            if isinstance(block, ToolCall):
                waiting.setdefault(block.call_id, []).append((place, number))
            elif isinstance(block, ToolResult) and (calls := waiting.get(block.call_id)):
                newest = calls[-1][0]
                chosen = next(call for call in calls if call[0] == newest)
                calls.remove(chosen)
                found[place, number] = chosen
    return found


def side_by_side(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> list[Turn]:
    """Move each result that comes later than right behind its call to where it belongs; those of *own* messages stay.

    Args:
        turns: Of the conversation.
        own: Numbers of messages that stay as they are.
        losses: Takes what was moved.
    """
    pairs = pairs_of(turns)
    late: dict[int, list[Part]] = {}
    stays: dict[int, list[Part]] = {}
    for place, turn in enumerate(turns):
        moved_to = None
        for number, block in enumerate(turn.parts):
            if isinstance(block, ToolResult):
                call = pairs.get((place, number))
                moved_to = _home(turns, place, call) if turn.number not in own else None
                if moved_to is not None:
                    losses.at(turn.number).note("place of a result", "it follows its call at once now")
            (stays if moved_to is None else late).setdefault(place if moved_to is None else moved_to, []).append(block)
    return [
        made for place, turn in enumerate(turns) for made in _with_late(turn, stays.get(place, []), late.get(place, []))
    ]


def named(turns: Sequence[Turn], own: Collection[int], *, everywhere: bool) -> list[Turn]:
    """Return *turns* whose results name their tool *everywhere*, or only where the call does not say it already."""
    pairs = pairs_of(turns)

    def name(at: At, result: ToolResult) -> ToolResult:
        call = pairs.get(at)
        called = turns[call[0]].parts[call[1]] if call is not None else None
        known = called.name if isinstance(called, ToolCall) else ""
        if everywhere:
            return replace(result, name=result.name or known)
        return replace(result, name="") if result.name == known else result

    return _with_results(turns, own, name)


def with_valid_ids(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> list[Turn]:
    """Return *turns* whose ids are such as Anthropic and Bedrock take: not empty, of few characters, none twice."""
    pairs = pairs_of(turns)
    ids = _new_ids(turns, own, losses)

    def result_id(at: At, result: ToolResult) -> ToolResult:
        call = pairs.get(at)
        new = ids[call] if call is not None else _spelled(result.call_id, at, set())
        if call is None and new != result.call_id:
            losses.at(turns[at[0]].number).note(
                f"id {result.call_id!r} of a result without a call", f"it is {new!r} now"
            )
        return result if new == result.call_id else replace(result, call_id=new)

    renamed = [
        turn
        if turn.number in own
        else replace(
            turn,
            parts=tuple(
                replace(block, call_id=ids[place, number]) if isinstance(block, ToolCall) else block
                for number, block in enumerate(turn.parts)
            ),
        )
        for place, turn in enumerate(turns)
    ]
    return _with_results(renamed, own, result_id)


def _new_ids(turns: Sequence[Turn], own: Collection[int], losses: Losses) -> Mapping[At, str]:
    ids: dict[At, str] = {}
    used: set[str] = set()
    for place, turn in enumerate(turns):
        for number, block in enumerate(turn.parts):
            if not isinstance(block, ToolCall):
                continue
            keeps = turn.number in own
            new = block.call_id if keeps else _spelled(block.call_id, (place, number), used)
            if new != block.call_id:
                losses.at(turn.number).note(f"id {block.call_id!r} of a call", f"it is {new!r} now")
            ids[place, number] = new
            used.add(new)
    return ids


def _spelled(call_id: str, at: At, used: Collection[str]) -> str:
    """Return *call_id* where it will do, else one that tells where the call is."""
    if _ID.fullmatch(call_id) and call_id not in used:
        return call_id
    readable = re.sub("[^a-zA-Z0-9_-]", "_", call_id)[:40] or "call"
    return f"{readable}-{at[0]}-{at[1]}"


def _home(turns: Sequence[Turn], place: int, call: At | None) -> int | None:
    """Return the turn behind which a result in *place* belongs; None where it stands right already."""
    if call is None or all(turn.role == "tool" for turn in turns[call[0] + 1 : place]):
        return None
    return call[0]


def _with_late(turn: Turn, stays: Sequence[Part], late: Sequence[Part]) -> list[Turn]:
    made = [turn] if tuple(stays) == turn.parts else [replace(turn, parts=tuple(stays))] if stays else []
    return [*made, Turn("tool", tuple(late), number=turn.number)] if late else made


def _with_results(turns: Sequence[Turn], own: Collection[int], change: Change) -> list[Turn]:
    return [
        turn
        if turn.role != "tool" or turn.number in own
        else replace(
            turn,
            parts=tuple(
                change((place, number), block) if isinstance(block, ToolResult) else block
                for number, block in enumerate(turn.parts)
            ),
        )
        for place, turn in enumerate(turns)
    ]
