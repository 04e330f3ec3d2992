"""The tokens of a message in a context."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from buoyline.messages import CachePoint, Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.model import Part
from buoyline.tokens.counter import TextCounter

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
