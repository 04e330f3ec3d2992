"""Which tool results leave the context.

Pure. The decision about a result is taken once, when it is first shown to the model, and stands until a
compression: changing it later would cost the provider's prompt cache.
"""

from buoyline.messages import ToolResult
from buoyline.tokens import TextCounter


def is_too_large(result: ToolResult, limit: int, counter: TextCounter) -> bool:
    """Tell whether the text of *result* takes more than *limit* tokens; media are not text."""
    return counter.exceeds(result.text, limit)


def is_smaller(replacement: str, original: str, counter: TextCounter) -> bool:
    """Tell whether *replacement* takes fewer tokens than *original*, so that putting it there is any use."""
    return counter.exceeds(original, counter.count(replacement))
