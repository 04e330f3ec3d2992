"""What a manager is: its settings in a document, and what it decides about a context."""

from typing import ClassVar

from buoyline.management.fields import Fields
from buoyline.management.hooks import Hook
from buoyline.management.situation import Situation
from buoyline.management.steps import Decision


class Settings(Fields):
    """The ``config`` of an entry of one type. A manager is its settings: it holds nothing else.

    Attributes:
        type_name: How documents call it.
        usual_hook: Where it runs when it stands in no document.
    """

    type_name: ClassVar[str]
    usual_hook: ClassVar[Hook] = "pre_llm"

    def decide(self, situation: Situation) -> Decision:
        """Return what shall be done about *situation*; nothing is."""
        raise NotImplementedError

    def in_words(self) -> str:
        """Return what it does, in words that follow the hook's."""
        raise NotImplementedError
