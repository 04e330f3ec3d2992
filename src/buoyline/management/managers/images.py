"""``ImageLimitManager``: only the newest pictures stay in the context."""

from collections.abc import Iterator
from typing import ClassVar

from buoyline.management.fields import CountOrNone
from buoyline.management.managers.results import images_in
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.steps import Decision, Replace
from buoyline.messages import Media, Message, ToolResult

_OWN = -1


class ImageLimit(Settings):
    """Keeps the newest pictures, and leaves a line in place of each older one that names its file.

    Providers refuse requests with too many pictures, and each takes more than a thousand tokens at every call.

    Attributes:
        max_images: So many stay.
    """

    type_name: ClassVar[str] = "ImageLimitManager"

    max_images: CountOrNone = 5

    def decide(self, situation: Situation) -> Decision:
        """Choose the oldest pictures beyond the limit."""
        found = list(_images(situation))
        leaving = found[: max(len(found) - self.max_images, 0)]
        places = dict.fromkeys((position, result) for position, result, _ in leaving)
        steps = tuple(
            Replace(*place, "an older picture", media=tuple(number for *where, number in leaving if (*where,) == place))
            for place in places
        )
        return Decision(steps, f"{len(found)} pictures, of which {self.max_images} may stay")

    def in_words(self) -> str:
        """Return what it does."""
        return f"keeps the {self.max_images:,} newest pictures and names the files of the others"


def _images(situation: Situation) -> Iterator[tuple[int, int, int]]:
    """Yield position, number of the result (or -1), and number of the part of each picture, in order."""
    for position, held in enumerate(situation.messages):
        if not _holds_media(held.message):
            continue
        for number in images_in(held.message.parts):
            yield position, _OWN, number
        for result, whole in enumerate(held.message.results):
            for number in images_in(whole.parts):
                yield position, result, number


def _holds_media(message: Message) -> bool:
    """Tell whether there may be a picture: in plain loops, for all messages are asked before each call of the model."""
    for part in message.parts:
        if isinstance(part, Media):
            return True
        if isinstance(part, ToolResult):
            for inner in part.parts:
                if isinstance(inner, Media):
                    return True
    return False
