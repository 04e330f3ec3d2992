"""Which blocks of a tool result leave the context.

Pure. Small blocks beside a large one stay: a note such as "exit code 1" is worth more than its tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from buoyline.messages import ResultPart
from buoyline.messages.message import text_in
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_part


@dataclass(frozen=True, slots=True)
class Block:
    """What a block of a result costs, and whether it may leave.

    Attributes:
        tokens: What it takes; of a text over the limit only that it is more.
        size: Tells which of two such texts is larger.
        left_tokens: What stands in its place when it has left, beside the stub that all texts share; None for a
            block that has to stay.
        is_text: The stub stands for it.
    """

    tokens: int
    size: int
    left_tokens: int | None
    is_text: bool


def block_of(part: ResultPart, placeholder: str | None, limit: int, counter: TextCounter) -> Block:
    """Weigh one part of a result.

    Args:
        part: The part.
        placeholder: What would stand in place of a medium; None for one that has to stay.
        limit: Of the result, in tokens: a text that alone takes more is not counted to its end.
        counter: Counts.
    """
    text = text_in(part)
    if text is not None:
        tokens = limit + 1 if counter.exceeds(text, limit) else counter.count(text)
        return Block(tokens, len(text), 0 if text else None, is_text=True)
    tokens = count_part(part, counter)
    left_tokens = None if placeholder is None else counter.count(placeholder)
    return Block(tokens, 0, None if left_tokens is None or left_tokens >= tokens else left_tokens, is_text=False)


def leaving(blocks: Sequence[Block], limit: int, stub_tokens: int) -> frozenset[int]:
    """Choose the blocks of a result over its limit that leave, the largest first, until the rest fits.

    Args:
        blocks: Of the result.
        limit: What may stand there afterwards, the stub and the placeholders included. Where these alone take nearly
            all of it, a quarter of it is kept for small blocks all the same.
        stub_tokens: What the one stub for all texts may take.

    Returns:
        Their numbers; none of a result that fits.
    """
    staying, room, left_tokens, shared_tokens = sum(block.tokens for block in blocks), limit, 0, 0
    found: set[int] = set()
    for number in sorted(range(len(blocks)), key=lambda number: (-blocks[number].tokens, -blocks[number].size)):
        block = blocks[number]
        if staying <= room:
            break
        if block.left_tokens is not None:
            found.add(number)
            staying -= block.tokens
            left_tokens += block.left_tokens
            shared_tokens = stub_tokens if block.is_text else shared_tokens
            room = max(limit - shared_tokens - left_tokens, limit // 4)
    return frozenset(found)
