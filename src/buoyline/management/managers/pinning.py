"""``PinManager``: messages that stay."""

from itertools import islice
from typing import ClassVar

from buoyline.management.fields import CountOrNone
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Held, Situation
from buoyline.management.steps import Decision, Pin


class Pinning(Settings):
    """Pins messages: they stand again when they are archived, with the calls and results that belong to them.

    Attributes:
        first: So many of the session's first messages, system messages not counted. Source: Strands' ``pin_first``.
        contains: User messages that hold one of these words; case matters.
    """

    type_name: ClassVar[str] = "PinManager"

    first: CountOrNone = 0
    contains: tuple[str, ...] = ()

    def decide(self, situation: Situation) -> Decision:
        """Choose the messages that are not pinned yet."""
        first = self._first(situation)
        positions = tuple(
            at for at, held in enumerate(situation.messages) if not held.pinned and (at in first or self._names(held))
        )
        steps = (Pin(positions, "the document pins them"),) if positions else ()
        return Decision(steps, f"{len(positions)} messages more are pinned")

    def in_words(self) -> str:
        """Return what it does."""
        words = [f"the first {self.first:,} messages"] if self.first else []
        words += [f"what the user says with {word!r} in it" for word in self.contains]
        return f"pins {' and '.join(words) or 'nothing'}"

    def _first(self, situation: Situation) -> set[int]:
        """Return the positions of the session's first messages, as far as they have not left."""
        counted = (at for at, held in enumerate(situation.messages) if held.is_counted)
        before = situation.messages[0].index if situation.messages else 0
        # Whatever left was counted, apart from system messages, which all stand in the head.
        gone = before - sum(held.message.role == "system" and not held.is_ours for held in situation.head)
        return set(islice(counted, max(self.first - gone, 0)))

    def _names(self, held: Held) -> bool:
        return (
            bool(self.contains) and held.is_spoken_by_user and any(word in held.message.text for word in self.contains)
        )
