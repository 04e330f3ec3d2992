"""The same conversation in every dialect, for what a window has to do in all of them."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from buoyline.messages import dialect_named
from buoyline.messages.encoded import encode_bytes

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x08\x00\x00\x00\x06"


def picture(number: int) -> bytes:
    """Return the bytes of a picture that no other number has."""
    return PNG + number.to_bytes(4, "big") * 8


def words(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{number}" for number in range(count))


class Form(Protocol):
    """Builds native messages of one dialect."""

    @property
    def name(self) -> str:
        """What `dialect_named` knows it by."""
        ...

    def user(self, *contents: str | bytes) -> dict[str, Any]:
        """Return a user message of texts and pictures."""
        ...

    def calling(self, *call_ids: str, thinking: str = "") -> dict[str, Any]:
        """Return an assistant's message with parallel calls, and the reasoning that led to them."""
        ...

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> list[dict[str, Any]]:
        """Return the messages that answer calls, with texts and pictures by the id of the call."""
        ...


@dataclass(frozen=True)
class OpenAI:
    name: str = "openai"

    def user(self, *contents: str | bytes) -> dict[str, Any]:
        return {"role": "user", "content": self._content(contents)}

    def calling(self, *call_ids: str, thinking: str = "") -> dict[str, Any]:
        function = {"name": "look", "arguments": "{}"}
        calls = [{"id": call_id, "type": "function", "function": function} for call_id in call_ids]
        reasoning = {"reasoning_content": thinking, "reasoning_signature": "sig=="} if thinking else {}
        return {"role": "assistant", "content": None, "tool_calls": calls, **reasoning}

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call_id, "content": self._content(blocks)}
            for call_id, blocks in contents.items()
        ]

    def _content(self, contents: Sequence[str | bytes]) -> Any:
        if len(contents) == 1 and isinstance(contents[0], str):
            return contents[0]
        return [self._block(block) for block in contents]

    def _block(self, block: str | bytes) -> dict[str, Any]:
        if isinstance(block, str):
            return {"type": "text", "text": block}
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_base64(block)}"}}


@dataclass(frozen=True)
class Anthropic:
    name: str = "anthropic"

    def user(self, *contents: str | bytes) -> dict[str, Any]:
        return {"role": "user", "content": [self._block(block) for block in contents]}

    def calling(self, *call_ids: str, thinking: str = "") -> dict[str, Any]:
        reasoning = [{"type": "thinking", "thinking": thinking, "signature": "sig=="}] if thinking else []
        calls = [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in call_ids]
        return {"role": "assistant", "content": [*reasoning, *calls]}

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> list[dict[str, Any]]:
        results = [
            {"type": "tool_result", "tool_use_id": call_id, "content": [self._block(block) for block in blocks]}
            for call_id, blocks in contents.items()
        ]
        return [{"role": "user", "content": results}]

    def _block(self, block: str | bytes) -> dict[str, Any]:
        if isinstance(block, str):
            return {"type": "text", "text": block}
        source = {"type": "base64", "media_type": "image/png", "data": _base64(block)}
        return {"type": "image", "source": source}


@dataclass(frozen=True)
class Bedrock:
    name: str = "bedrock"

    def user(self, *contents: str | bytes) -> dict[str, Any]:
        return {"role": "user", "content": [self._block(block) for block in contents]}

    def calling(self, *call_ids: str, thinking: str = "") -> dict[str, Any]:
        text = {"reasoningText": {"text": thinking, "signature": "sig=="}}
        reasoning = [{"reasoningContent": text}] if thinking else []
        calls = [{"toolUse": {"toolUseId": call_id, "name": "look", "input": {}}} for call_id in call_ids]
        return {"role": "assistant", "content": [*reasoning, *calls]}

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> list[dict[str, Any]]:
        results = [
            {
                "toolResult": {
                    "toolUseId": call_id,
                    "status": "success",
                    "content": [self._block(block) for block in blocks],
                }
            }
            for call_id, blocks in contents.items()
        ]
        return [{"role": "user", "content": results}]

    def _block(self, block: str | bytes) -> dict[str, Any]:
        if isinstance(block, str):
            return {"text": block}
        return {"image": {"format": "png", "source": {"bytes": block}}}


FORMS: Sequence[Form] = (OpenAI(), Anthropic(), Bedrock())
NAMES = [form.name for form in FORMS]


def view(form: Form, message: Any) -> Any:
    return dialect_named(form.name).view(message)


def spelled(messages: Sequence[Any]) -> list[str]:
    return [json.dumps(encode_bytes(message), sort_keys=True) for message in messages]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
