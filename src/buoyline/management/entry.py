"""One manager in a document: which, with what settings, and when it runs."""

from dataclasses import dataclass
from typing import Any

from buoyline.management.activation import Activation
from buoyline.management.custom import Custom
from buoyline.management.managers import Settings
from buoyline.management.situation import Situation
from buoyline.management.steps import Decision

ALWAYS = Activation()
"""What holds without any rule."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager at one hook. Each entry has a manager of its own, also where two have the same type.

    Attributes:
        manager: What runs.
        activation: When.
    """

    manager: Settings | Custom
    activation: Activation = ALWAYS

    async def decide(self, situation: Situation, error: BaseException | None = None) -> Decision:
        """Return what the manager wants to be done about *situation*."""
        if isinstance(self.manager, Custom):
            return await self.manager.decide(situation, error)
        return self.manager.decide(situation)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as documents have it, with the activation within ``config``."""
        config = self.manager.spelled()
        if rules := self.activation.spelled():
            config["activation"] = rules
        return {"type": self.manager.type_name, **({"config": config} if config else {})}

    def in_words(self) -> str:
        """Return what it does and when."""
        return f"{self.manager.in_words()}; runs {self.activation.in_words()}"
