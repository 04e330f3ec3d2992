"""A detail of an earlier tool result that is provably no longer in the context."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from buoyline.messages import spell

_WRONG = re.compile(r"'(line (\d+), column \d+: [^']+)' !=")


@dataclass(frozen=True, slots=True)
class Detail:
    """Something that was in the context once.

    Attributes:
        question: What the user asks about it, without giving it away.
        pattern: Regular expression that finds it.
        text: The detail itself.
    """

    question: str
    pattern: str
    text: str


def dropped_detail(output: str, context: Sequence[Any]) -> Detail | None:
    """Choose what one of the failing tests in *output* said, such that no message of *context* holds it.

    The tests in the middle come first, since a preview shows the beginning and the end.

    Args:
        output: Of the project's tests, before the repair.
        context: Native messages, as the model sees them now.

    Returns:
        None when the context holds all of it still, as in a window that is large enough.
    """
    seen = "\n".join(spell(message) for message in context)
    for match in _from_the_middle(list(_WRONG.finditer(output))):
        if match[1] not in seen:
            buoy = f"{int(match[2]) - 1:02}"
            question = (
                f"One more thing for the report: what did chart.py say of buoy {buoy} in the very first test run?"
            )
            return Detail(question, rf"line {match[2]}, column \d+: .* !=", match[1])
    return None


def _from_the_middle(matches: Sequence[re.Match[str]]) -> Iterator[re.Match[str]]:
    middle = len(matches) // 2
    yield from sorted(matches, key=lambda match: abs(matches.index(match) - middle))
