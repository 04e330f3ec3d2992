"""What leaves with a cut, and what of it stands again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from buoyline.management.cutting import Cutting, closed
from buoyline.window.context import Context
from buoyline.window.entry import Entry
from buoyline.window.situating import situation_of


@dataclass(frozen=True, slots=True)
class Leaving:
    """A cut, and what stands again behind it.

    Attributes:
        cut: So many of the oldest messages leave.
        lasting: Positions of those of them that stand again for good: system messages, pins, and what belongs to them.
        again: Positions of those that stand again for now.
        staying: Session indexes of what stands for now already, and goes on.
    """

    cut: int
    lasting: tuple[int, ...]
    again: tuple[int, ...]
    staying: frozenset[int]

    def entries(self, context: Context) -> tuple[list[Entry], list[Entry]]:
        """Return what stands again for good, and what does for now. What belongs to a pin is one from now on."""
        contents = context.contents
        lasting = [contents[at] for at in self.lasting]
        pinned = [entry if entry.stays else replace(entry, pinned=True) for entry in lasting]
        staying = [entry for entry in context.again if entry.index in self.staying]
        return pinned, [*staying, *(contents[at] for at in self.again)]


def leaving_as(context: Context, cut: int, standing: Sequence[int], head: Sequence[int]) -> Leaving:
    """Return what a manager asks for.

    Args:
        context: What the manager was shown.
        cut: See `Leaving`.
        standing: Positions before *cut* of what stands again.
        head: Positions in what stands before the messages, of what stays there.
    """
    entries = context.contents.until(cut)
    lasting = set(closed([entry.message for entry in entries], (at for at, entry in enumerate(entries) if entry.stays)))
    shown = context.standing()
    return Leaving(
        cut,
        tuple(at for at in standing if at in lasting),
        tuple(at for at in standing if at not in lasting),
        frozenset(shown[at].index for at in head),
    )


def leaving_at(context: Context, cut: int, *, preserves_words: bool) -> Leaving:
    """Return what leaves where no manager has asked for it.

    Args:
        context: As it stands.
        cut: See `Leaving`.
        preserves_words: The user's newest words stand again, and with pins all that belongs to them.
    """
    if not preserves_words and not len(context.again):
        stays = tuple(at for at, entry in enumerate(context.contents.until(cut)) if entry.stays)
        return Leaving(cut, stays, (), frozenset())
    cutting = Cutting(situation_of(context))
    return leaving_as(context, cut, cutting.standing(cut), cutting.head)
