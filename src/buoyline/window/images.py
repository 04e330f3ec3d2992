"""A limit on the pictures in a context: providers refuse requests with more than so many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from buoyline.window.context import Context
from buoyline.window.entry import Entry, is_image
from buoyline.window.offloading import Place, ResultOffloading


@dataclass(frozen=True, slots=True)
class ImageLimit:
    """Takes the oldest pictures out of a context that has more than it may.

    What a message looks like changes here after it was handed out, and with it what a provider has cached. So that this
    happens seldom, a quarter of the limit leaves at once. (Source: Anthropic's reference implementation for computer
    use, which removes screenshots in groups for the same reason.)

    Attributes:
        results: Replaces pictures.
        max_images: So many may stand in the context; None: any number.
    """

    results: ResultOffloading
    max_images: int | None

    def excess(self, context: Context) -> int:
        """Return how many pictures there are too many."""
        if self.max_images is None:
            return 0
        return max(context.images - self.max_images, 0)

    async def enforce(self, context: Context) -> bool:
        """Offload the oldest pictures of *context*, where there are too many.

        Pictures in pinned and system messages stay, and so do those in messages that are archived already, which
        keep their form until they leave.

        Returns:
            True if anything was changed.

        Raises:
            StorageError: The file system refused.
        """
        excess = self.excess(context)
        if not excess or self.max_images is None:
            return False
        wanted = max(excess, self.max_images // 4)
        chosen = islice(_images(context), wanted)
        contents, has_changed = context.contents, False
        for position, places in groupby(chosen, key=lambda found: found[0]):
            entry = await self.results.offload_images(contents[position], [place for _, place in places])
            contents.replace(position, entry)
            has_changed = True
        return has_changed


def _images(context: Context) -> Iterator[tuple[int, Place]]:
    """Yield position and place of each picture that may leave, the oldest first."""
    for position in context.movable():
        entry = context.contents[position]
        if entry.images and not entry.stays:
            yield from ((position, place) for place in _places(entry))


def _places(entry: Entry) -> Sequence[Place]:
    parts = entry.message.parts
    own = [Place(number) for number, part in enumerate(parts) if is_image(part)]
    results = enumerate(entry.message.results)
    return own + [
        Place(number, at) for at, result in results for number, part in enumerate(result.parts) if is_image(part)
    ]
