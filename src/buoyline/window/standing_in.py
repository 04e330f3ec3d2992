"""What a document's manager wants replaced in a message, done by the engine that offloads without one, too."""

from buoyline.management import Replace
from buoyline.management.standins import Preview
from buoyline.offloader import read_back_limit
from buoyline.tokens.messages import count_result
from buoyline.window.choosing import Choice, ResultChoosing
from buoyline.window.entry import Entry
from buoyline.window.offloading import Place, ResultOffloading


async def replaced(entry: Entry, step: Replace, results: ResultOffloading, choosing: ResultChoosing) -> Entry:
    """Return *entry* as *step* wants it; *entry* itself where nothing of it may leave, or would be smaller.

    Args:
        entry: The message.
        step: Its position is not looked at.
        results: Stores what leaves.
        choosing: Knows the calls, and so what was read back.

    Raises:
        StorageError: The file system refused; the message is as it was.
    """
    if step.media:
        place = None if step.result < 0 else step.result
        places = [Place(number, place) for number in step.media]
        return entry if entry.stays else await results.offload_images(entry, places)
    if step.result < 0 or step.stand_in is None or not step.texts:
        return entry
    result = entry.message.results[step.result]
    tool, source = choosing.known_of(result)
    if not isinstance(step.stand_in, Preview):
        return await results.stand_in(entry, step.result, step.texts, step.stand_in)
    # What the agent reads back it has asked for; offloaded again, it would ask for ever.
    limit = read_back_limit(choosing.size, choosing.config.tool_result_limit)
    if source and count_result(result, choosing.counter) <= limit:
        return entry
    return await results.replace(entry, {step.result: Choice(tool, step.stand_in.max_tokens, source)})
