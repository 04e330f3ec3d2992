"""What an agent reads back from where it was offloaded to.

Pure. It is never stored again: peers that did so sent their agents round in circles, each stub naming the next file.
"""

import re
from typing import Final

_SHARE_OF_WINDOW: Final = 0.25
_TOKENS: Final = re.compile(r"\[([0-9]{1,3}(?:,[0-9]{3})*) tokens read back")


def read_back_limit(size: int, tool_result_limit: int) -> int:
    """Return how many tokens of what was read back may stand in a window of *size* tokens after one turn.

    The agent has asked for it and sees much; but it has a file to read more slowly, so not the whole window is filled.

    Args:
        size: Of the window.
        tool_result_limit: What any result may take; what is read back may, too.
    """
    return max(int(_SHARE_OF_WINDOW * size), tool_result_limit)


def is_read_back_notice(text: str, reference: str) -> bool:
    """Tell whether *text* is what `read_back_notice` says of *reference*."""
    found = _TOKENS.match(text)
    return found is not None and text == read_back_notice(reference, int(found[1].replace(",", "")))


def read_back_notice(reference: str, tokens: int) -> str:
    """Say instead of what was read back that it is too much at once, and where it still is.

    Args:
        reference: What was read.
        tokens: What came of it.
    """
    return (
        f"[{tokens:,} tokens read back at once, too much to show. Nothing was lost.]\n"
        f"They still stand in: {reference}\n"
        "Read fewer lines of it, or grep it.\n"
    )
