"""The limit on the pictures in a context. Source: AgentScope's ``max_image_num``, with the bytes kept.

AgentScope drops pictures where the agent has no offloader; here they go to the workspace in any case.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from agentscope.message import DataBlock, HintBlock, Msg, TextBlock, ToolResultBlock, URLSource

from buoyline.messages import is_array


class Picture(NamedTuple):
    """A picture in a context.

    Attributes:
        blocks: The list that it stands in.
        at: Its number there.
        block: The picture.
        may_be_hint: Hints may stand where it does.
    """

    blocks: list[Any]
    at: int
    block: DataBlock
    may_be_hint: bool


def pictures_in(context: list[Msg]) -> list[Picture]:
    """Return the pictures in *context*, those in results and hints too, in order."""
    return [picture for message in context for picture in _pictures(message)]


async def limit_pictures(context: list[Msg], max_pictures: int, offloader: Any) -> None:
    """Put a line with its place for each of the oldest pictures, so that *max_pictures* remain.

    Args:
        context: Changed in place, once all pictures are stored.
        max_pictures: So many stay.
        offloader: Stores them with ``offload_data_block``; one that has no such method makes the line say that the
            picture is gone, as AgentScope does without an offloader.

    Raises:
        StorageError: The file system refused; the context is as it was.
    """
    found = pictures_in(context)
    leaving = found[: max(len(found) - max_pictures, 0)]
    lines = [await _line(picture.block, offloader) for picture in leaving]
    for picture, line in zip(leaving, lines, strict=True):
        picture.blocks[picture.at] = HintBlock(hint=line) if picture.may_be_hint else TextBlock(text=line)


def _pictures(message: Msg) -> Iterator[Picture]:
    for number, block in enumerate(message.content):
        if _is_picture(block):
            yield Picture(message.content, number, block, message.role != "user")
        inner: object = block.output if isinstance(block, ToolResultBlock) else getattr(block, "hint", None)
        blocks: Any = inner if is_array(inner) else []
        for position, nested in enumerate(blocks):
            if _is_picture(nested):
                yield Picture(blocks, position, nested, may_be_hint=False)


def _is_picture(block: object) -> TypeGuard[DataBlock]:
    return isinstance(block, DataBlock) and block.source.media_type.startswith("image/")


async def _line(block: DataBlock, offloader: Any) -> str:
    named = f"named '{block.name}' " if block.name else ""
    if not isinstance(block.source, URLSource) and hasattr(offloader, "offload_data_block"):
        block = await offloader.offload_data_block(block)
    if not isinstance(block.source, URLSource):
        return f"<system-reminder>The image {named}is removed to free up context space.</system-reminder>"
    return (
        f"<system-reminder>The image {named}is offloaded into {block.source.url}, you can refer to it when needed."
        "</system-reminder>"
    )
