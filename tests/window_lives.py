"""What several tests of the window share: messages, and processes that die before a write."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from buoyline.messages.registry import detect
from buoyline.workspace.memory import MemoryDisk, MemoryFile


class KilledError(Exception):
    """The process was killed before this write."""


class Mortality:
    """Kills a process before one of the writes to come, in all workspaces in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for owner, name in ((MemoryFile, "append"), (MemoryDisk, "put")):
            monkeypatch.setattr(owner, name, self._dying(getattr(owner, name)))

    def _dying(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            if self.left is not None:
                if self.left == 0:
                    raise KilledError
                self.left -= 1
            return real(*args, **kwargs)

        return write


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def calling(*ids: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def check_valid(messages: Sequence[Any]) -> None:
    """Each call has its results directly after it, and each result has its call there."""
    waiting: list[str] = []
    for message in messages:
        view = detect(message).view(message)
        if view.results and view.role != "assistant":
            for one in view.results:
                assert one.call_id in waiting, f"a result of no call: {one.call_id}"
                waiting.remove(one.call_id)
            continue
        assert not waiting, f"calls without results: {waiting}"
        waiting = [call.call_id for call in view.calls]
    assert not waiting, f"calls without results at the end: {waiting}"
