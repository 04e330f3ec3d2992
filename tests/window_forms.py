"""The same conversation in every dialect, for what a window has to do in all of them."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from buoyline.messages.payloads import encode_bytes
from buoyline.messages.registry import dialect_named

if TYPE_CHECKING:
    from agentscope.message import Msg

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

    def user(self, *contents: str | bytes) -> Any:
        """Return a user message of texts and pictures."""
        ...

    def calling(self, *call_ids: str, thinking: str = "") -> Any:
        """Return an assistant's message with parallel calls, and the reasoning that led to them."""
        ...

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> list[Any]:
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


@dataclass(frozen=True)
class AgentScope:
    """AgentScope's own objects. Ids follow from the content: another process builds the very same messages.

    A test that builds one is skipped without AgentScope.
    """

    name: str = "agentscope"

    def user(self, *contents: str | bytes) -> "Msg":
        return self._message("user", [self._block(block) for block in contents])

    def calling(self, *call_ids: str, thinking: str = "") -> "Msg":
        reasoning = [self._named({"type": "thinking", "thinking": thinking, "signature": "sig=="})] if thinking else []
        calls = [
            {"type": "tool_call", "id": call_id, "name": "look", "input": "{}", "created_at": _TIME}
            for call_id in call_ids
        ]
        return self._message("assistant", [*reasoning, *calls])

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> "list[Msg]":
        results = [self._result(call_id, blocks) for call_id, blocks in contents.items()]
        return [self._message("assistant", results)]

    def _result(self, call_id: str, blocks: Sequence[str | bytes]) -> dict[str, Any]:
        output = [self._block(block) for block in blocks]
        named = {"type": "tool_result", "id": call_id, "name": "look", "created_at": _TIME}
        return {**named, "output": output, "state": "success"}

    def _block(self, block: str | bytes) -> dict[str, Any]:
        if isinstance(block, str):
            return self._named({"type": "text", "text": block})
        source = {"type": "base64", "media_type": "image/png", "data": _base64(block)}
        return self._named({"type": "data", "source": source})

    def _message(self, role: str, content: list[dict[str, Any]]) -> "Msg":
        theirs = pytest.importorskip("agentscope.message", reason="agentscope is an extra for tests")
        made: Msg = theirs.Msg.model_validate(self._named({"name": role, "role": role, "content": content}))
        return made

    def _named(self, fields: dict[str, Any]) -> dict[str, Any]:
        found = hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:32]
        return {**fields, "id": found, "created_at": _TIME}


_TIME = "2026-01-01T00:00:00"

FORMS: Sequence[Form] = (OpenAI(), Anthropic(), Bedrock(), AgentScope())
NAMES = [form.name for form in FORMS]


def view(form: Form, message: Any) -> Any:
    return dialect_named(form.name).view(message)


def spelled(messages: Sequence[Any]) -> list[str]:
    """Return the JSON of *messages*; a framework's object and what it came back as from disk read the same."""
    plain = (message if isinstance(message, dict) else message.model_dump(mode="json") for message in messages)
    return [json.dumps(encode_bytes(message), sort_keys=True) for message in plain]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
