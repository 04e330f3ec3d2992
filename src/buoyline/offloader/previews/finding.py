"""What reading a text brings to light, before anything is known of how much of it can be shown."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from buoyline.offloader.previews.lines import FAR_CHARS

MUST_SHOW = 80.0
"""From this weight on a line is worth narrowing the others for."""

MOST_TROUBLES = 400
"""So many kinds of lines of trouble are told apart in a text."""

_SEEN_CHARS = 400

UNLIKE = "unlike all others"
"""The note of a line that is shown for nothing else; of one that is shown anyway it says nothing of use."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that is worth more than its neighbours.

    Attributes:
        number: Of the line, 1-based.
        weight: From 0 to 100; what is shown is chosen by it.
        column: The character of the line that it is about, 0-based.
        count: How many lines are of its kind, itself included.
        others: The numbers of some of these, ascending; not all, and never its own.
        note: What is odd about it, where the line does not say so itself; empty where it does.
        word: Of a line of trouble, characters by which a search finds it and all of its kind; empty of others.
    """

    number: int
    weight: float
    column: int = 0
    count: int = 1
    others: tuple[int, ...] = ()
    note: str = ""
    word: str = ""


@dataclass(frozen=True, slots=True)
class Digest:
    """What is known of a text.

    Attributes:
        facts: Rows that say what the text is as a whole, the most important first. None begins with a digit, which
            is how a numbered line begins.
        findings: Lines worth showing, in no order; one line may be found several times.
        alerts: Rows like facts that say what is odd where a line for each would take too much room.
    """

    facts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    alerts: tuple[str, ...] = ()

    def __add__(self, other: "Digest") -> "Digest":
        """Return what both have brought to light."""
        return Digest(self.facts + other.facts, self.findings + other.findings, self.alerts + other.alerts)


def by_place(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding a place, the heaviest, with what the others know beside it; the heaviest place first.

    A place is a line, or so much of a long one as is seen at once.
    """
    found: dict[tuple[int, int], Finding] = {}
    for finding in sorted(findings, key=lambda finding: -finding.weight):
        part = finding.column // _SEEN_CHARS if finding.column >= FAR_CHARS else -1
        first = found.setdefault((finding.number, part), finding)
        if finding.note not in {"", UNLIKE} and not first.note:
            found[finding.number, part] = replace(first, note=finding.note)
    return sorted(found.values(), key=lambda finding: (-finding.weight, finding.number, finding.column))
