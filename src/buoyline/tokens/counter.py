"""Token counters, and the tokens of a message in a context."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from buoyline.messages import CachePoint, Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.model import Part


class TokenCounter(Protocol):
    """Counts the tokens of a text; a counter of your own needs no more.

    `as_text_counter` makes a `TextCounter` of it, and of a plain function as well.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*: 0 or more, the same number for the same text.

        It may be called from several threads at once.
        """
        ...


class TextCounter(TokenCounter, Protocol):
    """Counts tokens, and answers two questions without counting a whole text.

    A result of 100 MB is offloaded because it exceeds 3,000 tokens, and its beginning is shown. That should cost no
    more than for a small text, so each question is a method of its own.
    """

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether ``count(text) > max_tokens``, reading no more of *text* than necessary."""
        ...

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* with ``count(prefix) <= max_tokens``, as long as reasonably possible.

        It is *text* itself if that does not exceed *max_tokens*, and may be empty; it is for a negative limit.
        """
        ...


_MOST_CHARS_PER_TOKEN = 8
"""On average, in long texts of words."""


def end_of(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Return a suffix of *text* within *max_tokens* that takes most of them; *text* itself if it fits."""
    if not counter.exceeds(text, max_tokens):
        return text
    chars = min(_MOST_CHARS_PER_TOKEN * max(max_tokens, 0), len(text))
    while chars and counter.exceeds(text[-chars:], max_tokens):
        chars = chars * 15 // 16
    return text[len(text) - chars :]


_METHODS = ("count", "exceeds", "head")
_FIRST_CHARS_PER_TOKEN = 4
_FEW_CHARS = 1_024


def as_text_counter(counter: TokenCounter | Callable[[str], int]) -> TextCounter:
    """Return *counter* itself if it has all methods of a `TextCounter`, else a `BisectingCounter` around it.

    It is an object with a ``count(text)`` method, or a function that takes a text and returns its tokens, 0 or more.

    Raises:
        TypeError: *counter* is neither, for example the name of a model, or a class instead of an instance.
    """
    given: object = counter
    if not isinstance(given, type | Sequence):  # a string and a list have a count() that counts something else
        if all(callable(getattr(given, method, None)) for method in _METHODS):
            return cast("TextCounter", counter)
        count: object = getattr(given, "count", given)
        if callable(count):
            return BisectingCounter(cast("Callable[[str], int]", count))
    msg = (
        f"{counter!r} cannot count tokens; pass an object with count(text), or a function from a text to its "
        "number of tokens such as `lambda text: len(encoding.encode_ordinary(text))`"
    )
    raise TypeError(msg)


class BisectingCounter:
    """Answers all questions about tokens by counting, with a bounded number of counts.

    It assumes only that longer texts have more tokens, give or take a few, and `head` returns only texts that have been
    counted. An error of the counter passes through.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        """Build on *count*, which returns 0 or more."""
        self._count = count

    def count(self, text: str) -> int:
        """Return the count of the wrapped counter. Raises `TypeError` if it is not a whole number."""
        return operator.index(self._count(text))

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether *text* has more than *max_tokens* tokens, by counting all of it; errors as in `count`."""
        return self.count(text) > max_tokens

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* that has been counted and has at most *max_tokens* tokens.

        It takes at most 2·log2(len(text)) + 3 counts, of prefixes no longer than twice the result or 4
        characters per token, and of the whole text if that is hardly longer, so a slow counter does not count
        all of a long text. If even the empty text has more than *max_tokens* tokens, the prefix is empty. Errors are
        those of `count`.
        """
        last = len(text)
        fitting, too_long = 0, min(max(_FIRST_CHARS_PER_TOKEN * max_tokens, 1), last)
        while self.count(text[:too_long]) <= max_tokens:
            if too_long == last:
                return text
            fitting, too_long = too_long, min(2 * too_long, last)
        # A whole text may have fewer tokens than its beginning: "plain" is one of o200k_base, "plai" are two.
        if 0 < last - too_long <= _FEW_CHARS and self.count(text) <= max_tokens:
            return text
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            if self.count(text[:middle]) <= max_tokens:
                fitting = middle
            else:
                too_long = middle
        return text[:fitting]


if TYPE_CHECKING:
    _bisecting_conforms: type[TextCounter] = BisectingCounter


# Role, separators and the end of the message; OpenAI documents 3 to 4 for its chat models.
_PER_MESSAGE = 4
_PER_CALL = 8
# An image at the resolution that Anthropic scales down to, (1,568 x 1,568) / 750 capped at 1,600.
_PER_IMAGE = 1_600
# A page of a PDF costs 1,500 to 3,000 tokens and takes some 75 kB; a second of MP3 costs up to 32 and takes 16 kB,
# one of video up to 300 and takes 125 kB, at a megabit.
_BYTES_PER_TOKEN: Mapping[str, int] = MappingProxyType({"document": 25, "audio": 250, "video": 250})
_BYTES_PER_TEXT_TOKEN = 4
# A provider decrypts what it sealed, such as found pages and hidden reasoning, and bills the text: three bytes a token.
_SEALED = re.compile(r'"(?:encrypted_\w+|data)":"([\w+/=-]+)"', re.ASCII)
_SEALED_CHARS_PER_TOKEN = 4
# More fits no window, whatever its tokens are exactly; 100 MB would be counted for ten seconds.
_COUNTED_CHARS = 4_000_000


def count_message(message: Message, counter: TextCounter) -> int:
    """Count the tokens that *message* takes in a context.

    *counter* counts text exactly, or the first 4,000,000 characters of a longer text, which is extrapolated. Overhead
    of the provider and images are estimated on the high side, so that a context that fits by this count fits. Reasoning
    counts, too, since some providers want it sent back.
    """
    return _PER_MESSAGE + counter.count(message.name) + sum(count_part(part, counter) for part in message.parts)


def count_tools(tools: Sequence[object], counter: TextCounter) -> int:
    """Count the tokens of tool definitions, JSON values or pydantic models, which are part of every request.

    Raises:
        MessageError: A definition has no JSON form.
    """
    return sum(_PER_CALL + counter.count(spell(tool)) for tool in tools)


def count_result(result: ToolResult, counter: TextCounter) -> int:
    """Count the tokens of a tool's output, without the provider's overhead; media always count."""
    return sum(count_part(part, counter) for part in result.parts)


def count_part(part: Part, counter: TextCounter) -> int:  # noqa: PLR0911 - one for each kind of part
    """Count the tokens of one part of a message; media always count. See `count_message`."""
    match part:
        case Text():
            return _count_text(part.text, counter)
        case Reasoning():
            return _count_text(part.text, counter) + len(part.hidden) // _SEALED_CHARS_PER_TOKEN
        case Json():
            return _count_text(part.json, counter)
        case ToolCall():
            return _PER_CALL + counter.count(part.name) + counter.count(part.arguments)
        case ToolResult():
            return _PER_CALL + count_result(part, counter)
        case Media():
            is_text = part.media_type.startswith("text/")
            rate = _BYTES_PER_TEXT_TOKEN if is_text else _BYTES_PER_TOKEN.get(part.kind, _BYTES_PER_TEXT_TOKEN)
            return _PER_IMAGE if part.kind == "image" else max(_PER_IMAGE, part.size_bytes // rate)
        case Opaque():
            sealed = sum(map(len, _SEALED.findall(part.json)))
            return _count_text(_SEALED.sub("", part.json), counter) + sealed // _SEALED_CHARS_PER_TOKEN
        case CachePoint():
            return 0


def _count_text(text: str, counter: TextCounter) -> int:
    if len(text) <= _COUNTED_CHARS:
        return counter.count(text)
    return counter.count(text[:_COUNTED_CHARS]) * len(text) // _COUNTED_CHARS
