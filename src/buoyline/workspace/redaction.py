"""Redaction: what is stored has passed the workspace's hook before anything is hashed or written.

It fails closed: if the hook fails, nothing is stored. Keys, ids and numbers do not pass the hook, since pairs and files
hang on them.
"""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from buoyline.errors import ConfigError, MessageError, RedactionError
from buoyline.messages import Json, Media, Opaque, Text, ToolResult, spell
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.messages.model import ResultPart
from buoyline.messages.parts import is_text_type
from buoyline.workspace import layout

RedactText = Callable[[str], str]

_IDS: Final = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "type", "role"})


class Redaction:
    """The hook of a workspace; without one, everything is returned as it is."""

    def __init__(self, redact: RedactText | None = None) -> None:
        """Use *redact* for each text.

        Raises:
            ConfigError: It cannot be called.
        """
        if redact is not None and not callable(redact):
            raise ConfigError("redact", f"{type(redact).__name__} cannot be called; give a function from text to text")
        self._redact = redact

    @property
    def is_active(self) -> bool:
        """Return whether there is a hook."""
        return self._redact is not None

    def text(self, text: str) -> str:
        """Return *text* redacted. In a JSON document each string is redacted, however its characters are escaped.

        Raises:
            RedactionError: The hook failed, or did not return text.
        """
        if self._redact is None:
            return text
        redacted = self._hooked(text)
        if redacted.lstrip()[:1] not in {"{", "["}:
            return redacted
        try:
            document = parse(redacted)
        except MessageError:
            return redacted
        found = self._value(document, self._hooked)
        return redacted if found == document else spell(found)

    def value(self, value: Any) -> Any:
        """Return a JSON value with each string in it redacted, but for ids and references to ``data/``."""
        return value if self._redact is None else self._value(value, self.text)

    def payload(self, payload: bytes, media_type: str) -> bytes:
        """Return a decoded payload, redacted if it is text."""
        if self._redact is None or not is_text_type(media_type):
            return payload
        if payload.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return self.text(payload.decode("utf-16", "replace")).encode("utf-16", "surrogatepass")
        return self.text(payload.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def result(self, result: ToolResult) -> ToolResult:
        """Return a tool result redacted."""
        if self._redact is None:
            return result
        return replace(result, parts=tuple(self._parts(result.parts)))

    def _parts(self, parts: Sequence[ResultPart]) -> list[ResultPart]:
        redacted = list[ResultPart]()
        for part in parts:
            match part:
                case Text():
                    redacted.append(replace(part, text=self.text(part.text)))
                case Json() | Opaque():
                    redacted.append(replace(part, json=self.text(part.json)))
                case Media():
                    content = part.content()
                    found = None if content is None else self.payload(content, part.media_type)
                    size_bytes = len(found) if found else part.size_bytes
                    payload = found if found is not None else part.payload
                    redacted.append(replace(part, name=self.text(part.name), payload=payload, size_bytes=size_bytes))
        return redacted

    def _value(self, value: Any, hook: RedactText, key: str = "") -> Any:
        if isinstance(value, str):
            return value if key in _IDS or layout.blob_behind(value) else hook(value)
        if is_object(value):
            return {key: self._value(child, hook, key) for key, child in value.items()}
        if is_array(value):
            return [self._value(child, hook) for child in value]
        return value

    def _hooked(self, text: str) -> str:
        try:
            found: object = self._redact(text) if self._redact else text
        except Exception as error:
            raise RedactionError("redact", f"raised {type(error).__name__}") from error
        if not isinstance(found, str):
            raise RedactionError("redact", "did not return text")
        return found
