"""Redaction: all content passes a hook before any of it is hashed or written.

Pure apart from the hooks. It fails closed: if a hook fails, nothing is stored.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from buoyline.errors import ConfigError, MessageError, RedactionError
from buoyline.messages import CachePoint, Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.formats import is_text_type
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.messages.model import Base64, Part, ResultPart
from buoyline.messages.parts import data_url
from buoyline.messages.payloads import BYTES_MARK, PayloadText, format_for, payload_text_of
from buoyline.messages.registry import detect, dialect_named, read_result
from buoyline.workspace import layout

T = TypeVar("T")

RedactText = Callable[[str], str]
RedactPayload = Callable[[bytes, str], bytes]

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# JSON in JSON in JSON ...: each level doubles the backslashes, so no agent writes more levels.
_MAX_LEVELS = 8


class Redaction:
    """Passes everything that will be written through the hooks of a workspace; without hooks it does nothing."""

    def __init__(self, redact: RedactText | None = None, redact_payload: RedactPayload | None = None) -> None:
        """Use *redact* for texts, and *redact_payload* for decoded payloads; see `LocalWorkspace`.

        Raises:
            ConfigError: One of them cannot be called.
        """
        for name, hook in (("redact", redact), ("redact_payload", redact_payload)):
            if hook is not None and not callable(hook):
                raise ConfigError(name, f"{type(hook).__name__} cannot be called")
        self._redact = redact
        self._redact_payload = redact_payload
        self.is_active = redact is not None or redact_payload is not None

    def text(self, text: str) -> str:
        r"""Return *text* after redaction.

        If the text contains JSON escapes, the hook gets it decoded, too: a secret in the arguments of a call may be
        spelled ``"p\u0061ss\"word"``, and the transcript shows it decoded.

        Raises:
            RedactionError: The hook failed, or did not return text.
        """
        if self._redact is None:
            return text
        redacted = self._hooked(text)
        for _ in range(_MAX_LEVELS):
            revealed = self._revealed(redacted)
            if revealed is None:
                return redacted
            redacted = self._respelled(redacted, revealed)
        raise RedactionError("redact", "changes its own answers without end")

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return each of *texts* after redaction; see `text`."""
        return [self.text(text) for text in texts]

    def identifier(self, identifier: str) -> str:
        """Return a batch id or the name of a writer unchanged, or its hash if the hook changes it.

        Ids must remain different, so a redacted text is not used.

        Raises:
            RedactionError: See `text`.
        """
        if self.text(identifier) == identifier:
            return identifier
        return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()

    def payload(self, payload: bytes, media_type: str) -> bytes:
        """Return a decoded payload after redaction.

        Without a hook for payloads, those of a text type that are UTF-8 go through the hook for texts; all others
        remain unchanged.

        Raises:
            RedactionError: A hook failed, or did not return bytes.
        """
        if self._redact_payload is not None:
            with _FailingClosed("redact_payload"):
                found: object = self._redact_payload(payload, media_type)
            if not isinstance(found, bytes):
                raise RedactionError("redact_payload", "did not return bytes")
            return found
        text = _utf8_or_none(payload) if self._redact is not None and is_text_type(media_type) else None
        return payload if text is None else self.text(text).encode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """Return a copy of a JSON value with every string, every key and every payload redacted.

        Numbers are not changed. A payload is decoded for the hook and encoded again; a reference of ours in a payload's
        place is not changed.

        Raises:
            RedactionError: A hook failed, or made two keys of one object the same.
            MessageError: *value* has no JSON form.
        """
        if not self.is_active:
            return value
        plain = self._reworded(lambda: parse(spell(value)))
        holder: list[Any] = [None]
        # Not recursive: a tool's arguments may be nested more deeply than Python's stack.
        waiting: list[tuple[Any, Any, Any, _Holder]] = [(plain, holder, 0, _Holder("", ""))]
        while waiting:
            node, into, at, within = waiting.pop()
            if is_object(node):
                into[at] = made = dict.fromkeys(self._keys(node))
                for key, (old, child) in zip(list(made), node.items(), strict=True):
                    is_text = isinstance(child, str)
                    made[key] = self._string(old, child, node, within) if is_text else child
                    below = _Holder(old, format_for(old, node, within.format_name))
                    waiting += [] if is_text else [(child, made, key, below)]
            elif is_array(node):
                into[at] = made_list = list(node)
                waiting += [(child, made_list, number, within) for number, child in enumerate(node)]
            else:
                into[at] = self.text(node) if isinstance(node, str) else node
        return holder[0]

    def messages(self, messages: Sequence[Any], dialect: str | None = None) -> Sequence[Any]:
        """Return native messages after redaction, as JSON values of the same dialect. None of *messages* is changed.

        Raises:
            RedactionError: See `value`.
            MessageError: One of *messages* is not a message; the error has its position.
        """
        if not self.is_active:
            return messages
        return [self._message(message, position, dialect) for position, message in enumerate(messages)]

    def result(self, tool_result: object) -> ToolResult:
        """Read one tool result, with its id and all of its parts redacted and its media decoded.

        Raises:
            RedactionError: See `text`.
            MessageError: *tool_result* is not a tool result.
        """
        if not self.is_active:
            return read_result(tool_result)
        found = self._reworded(lambda: read_result(tool_result))
        if not isinstance(found.call_id, str):
            return found
        parts = tuple(self._stored_part(part) for part in found.parts)
        return replace(found, call_id=self.text(found.call_id), name=self.text(found.name), parts=parts)

    def view(self, message: Message) -> Message:
        """Return the view of a message after redaction.

        Raises:
            RedactionError: See `text`.
        """
        if self._redact is None:
            return message
        return replace(message, parts=tuple(map(self._part, message.parts)), name=self.text(message.name))

    def _part(self, part: Part) -> Part:
        if isinstance(part, ToolCall):
            name, arguments = self.text(part.name), self.text(part.arguments)
            return replace(part, call_id=self.text(part.call_id), name=name, arguments=arguments)
        if isinstance(part, ToolResult):
            return replace(part, call_id=self.text(part.call_id), parts=tuple(map(self._inner_part, part.parts)))
        if isinstance(part, Reasoning):
            return Reasoning(self.text(part.text))  # a signature of other text is worth nothing
        return part if isinstance(part, CachePoint) else self._inner_part(part)

    def _inner_part(self, part: ResultPart) -> ResultPart:
        match part:
            case Text():
                return replace(part, text=self.text(part.text))
            case Json():
                return Json(self.text(part.json))
            case Opaque():
                return replace(part, kind=self.text(part.kind), json=self.text(part.json))
            case Media():
                is_reference = layout.blob_behind(part.source) is not None
                source = part.source if is_reference else self.text(part.source)
                return replace(part, source=source, name=self.text(part.name))

    def _stored_part(self, part: ResultPart) -> ResultPart:
        found = self._inner_part(part)
        if not isinstance(found, Media) or found.payload is None:
            return found
        content = found.content()
        if content is None:
            # Not base64 after all, so it is a text.
            return replace(found, payload=Base64(self.text(getattr(found.payload, "text", ""))))
        redacted = self.payload(content, found.media_type)
        return replace(found, payload=redacted, size_bytes=len(redacted))

    def _message(self, message: object, position: int, dialect: str | None) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.value(
                self._reworded(lambda: (dialect_named(dialect) if dialect else detect(message)).to_json(message))
            )
        except MessageError as error:
            raise error.at(position) from None
        return found

    def _keys(self, node: Any) -> list[str]:
        keys = self.texts(list(node))
        if len(set(keys)) != len(keys):
            raise RedactionError("redact", "gave two keys of one object the same name")
        return keys

    def _string(self, key: str, text: str, siblings: Any, within: "_Holder") -> str:
        carrier = payload_text_of(key, text, siblings, within.format_name)
        if carrier is not None:
            is_marked = siblings.get("type") == "base64" or siblings.get(BYTES_MARK) is True
            is_payload = carrier.start > 0 or is_marked or within.key == "input_audio"
            return self._carried(text, carrier, is_payload=is_payload)
        is_reference = key in _PAYLOAD_KEYS and layout.blob_behind(text) is not None
        return text if is_reference else self.text(text)

    def _carried(self, text: str, carrier: PayloadText, *, is_payload: bool) -> str:
        """Redact a text in a payload's place: its bytes, and the text itself if it may be one."""
        head, spelled = text[: carrier.start], text[carrier.start :]
        payload, is_canonical = _decoded(spelled)
        if not (is_canonical and is_payload) and (redacted := self.text(text)) != text:
            return redacted
        if head and data_url(head := self.text(head)) is None:
            raise RedactionError("redact", "changed the head of a data URL into something else")
        redacted_payload = self.payload(payload, carrier.media_type) if payload else payload
        return head + (spelled if redacted_payload == payload else base64.b64encode(redacted_payload).decode("ascii"))

    def _hooked(self, text: str) -> str:
        if self._redact is None:
            return text
        with _FailingClosed("redact"):
            found: object = self._redact(text)
        if not isinstance(found, str):
            raise RedactionError("redact", "did not return text")
        return found

    def _revealed(self, text: str) -> str | None:
        """Return the redacted form of *text* with its escapes decoded; None if the hook changes nothing there."""
        for _ in range(_MAX_LEVELS):
            decoded = _unescaped(text)
            if decoded == text:
                return None
            redacted = self._hooked(decoded)
            if redacted != decoded:
                return redacted
            text = decoded
        return None

    def _respelled(self, text: str, revealed: str) -> str:
        """Return a JSON document *text* with each string redacted; for other texts *revealed*, without escapes."""
        if text.lstrip()[:1] not in {"{", "["}:
            return revealed
        try:
            spelled = spell(self.value(parse(text)))
        except MessageError:
            return revealed
        return spelled if spelled != text and self._revealed(spelled) is None else revealed

    def _reworded(self, work: Callable[[], T]) -> T:
        """Return the result of *work*; if its error quotes a message, the quotation is redacted, too."""
        try:
            return work()
        except MessageError as error:
            failure = error
        # After the handler, so that the new error does not refer to the first one.
        raise MessageError(self.text(failure.reason), failure.position)


class _Holder(NamedTuple):
    """The key of a value, and the format that applies to it; see `format_for`."""

    key: str
    format_name: str


class _FailingClosed:
    """Turns an error of a hook into a `RedactionError` with its type, and without its text."""

    def __init__(self, hook: str) -> None:
        self._hook = hook

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception):
            raise RedactionError(self._hook, f"raised {type(error).__name__}") from error


_PAYLOAD_KEYS = frozenset({"url", "file_data", "image_url", "data"})


def _decoded(spelled: str) -> tuple[bytes, bool]:
    """Decode strict or loose base64; return the bytes (none if it is not base64), and whether it was strict."""
    compact = "".join(spelled.split()).rstrip("=").translate(_URL_SAFE)
    try:
        payload = base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except ValueError:
        return b"", False
    return payload, base64.b64encode(payload).decode("ascii") == spelled


_URL_SAFE = str.maketrans("-_", "+/")


def _utf8_or_none(payload: bytes) -> str | None:
    try:
        return payload.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _unescaped(text: str) -> str:
    """Return *text* with JSON's escapes decoded, one level of them, and surrogate pairs as the characters they are."""
    if "\\" in text:
        text = _ESCAPE.sub(_character, text)
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


def _character(escape: re.Match[str]) -> str:
    code, letter = escape[1], escape[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)
