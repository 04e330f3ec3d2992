"""The arguments of a call as an object, where a dialect takes no text for them."""

import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from buoyline.messages.conversion.losses import Losses
from buoyline.messages.jsonl import is_object

RAW: Final = "raw_arguments"
"""Under this key stands a text that is no JSON object, as the model wrote it."""


def object_of(text: str, number: int, losses: Losses) -> dict[str, Any]:
    """Return the object that *text* spells, or one that holds *text*; none at all is the empty object.

    What an object cannot tell as the text did is noted: a key that comes twice, a number of more digits than a float
    has. White space and the order of escapes are no content.
    """
    if not text.strip():
        return {}
    found = _Reading()
    try:
        value: object = json.loads(
            text, parse_constant=_refuse, parse_float=found.number, object_pairs_hook=found.members
        )
    except (ValueError, RecursionError):
        value = None
    if not is_object(value):
        losses.note(number, "arguments of a call", f"they are no JSON object; the text stands under {RAW!r}")
        return {RAW: text}
    for what in dict.fromkeys(found.lost):
        losses.note(number, "arguments of a call", what)
    return dict(value)


class _Reading:
    """Reads JSON, and remembers what Python's values do not hold of it."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def number(self, spelled: str) -> float:
        """Read a number that is no whole one; raises `ValueError` for one beyond a float."""
        value = float(spelled)
        if value in (float("inf"), float("-inf")):
            raise ValueError(spelled)
        if not _is_exact(spelled, value):
            self.lost.append(f"{spelled[:40]} has more digits than a float holds")
        return value

    def members(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Make an object of its members."""
        made = dict(pairs)
        if len(made) < len(pairs):
            self.lost.append("a key comes twice; the last one counts")
        return made


def _is_exact(spelled: str, value: float) -> bool:
    try:
        return Decimal(spelled) == Decimal(repr(value))
    except InvalidOperation:
        return False


def _refuse(constant: str) -> float:
    raise ValueError(constant)
