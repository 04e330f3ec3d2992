"""`stub_for` stores a tool result and returns its stub, without a window."""

import doctest
from pathlib import Path
from typing import Any

import pytest

from buoyline import ContextWindow
from buoyline.errors import ConfigError, MessageError
from buoyline.messages import Text, ToolResult
from buoyline.messages.registry import detect
from buoyline.offloader import stub, stub_for
from buoyline.tokens import default_counter
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

LOG = "".join(f"{number:05} a line of a log that nobody reads\n" for number in range(3_000))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def result(text: str) -> ToolResult:
    return ToolResult("call-1", "bash", (Text(text),))


def with_image(text: str) -> ToolResult:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": text}, {"type": "image", "source": source}]
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call-1", "content": content}]}
    return detect(message).view(message).results[0]


class Bare:
    """AgentScope's two methods and no more."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    async def offload_context(self, session_id: str, msgs: list[Any], **_: Any) -> str:
        raise NotImplementedError

    async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
        self.stored.append(f"{session_id}:{tool_result.text}")
        return "s3://bucket/result"


async def test_a_large_result_is_stored_whole_and_its_stub_names_the_file(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    shown = await stub_for(workspace, "s1", result(LOG), max_tokens=300)
    path = tmp_path / "sessions/s1/tool_result-call-1.txt"
    assert path.read_text(encoding="utf-8") == LOG
    assert str(path) in shown
    assert default_counter().count(shown) <= 300


async def test_a_result_that_fits_is_returned_as_it_is_and_stored_nowhere(tmp_path: Path) -> None:
    assert await stub_for(LocalWorkspace(tmp_path), "s1", result("all well\n")) == "all well\n"
    assert not (tmp_path / "sessions").exists()


async def test_a_window_that_resumes_the_session_knows_the_stub(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000)
    shown = await stub_for(workspace, "s1", result(LOG), max_tokens=300)
    await window.add({"role": "assistant", "content": None, "tool_calls": [
        {"id": "call-1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    ]})  # fmt: skip
    await window.add({"role": "tool", "tool_call_id": "call-1", "content": shown})
    await window.prepare()
    resumed = await ContextWindow.resume(workspace, "s1")
    assert (await resumed.prepare())[-1]["content"] == shown
    assert [path.name for path in (tmp_path / "sessions/s1").glob("tool_result*")] == ["tool_result-call-1.txt"]


@pytest.mark.parametrize("text", ["short\n", LOG])
async def test_media_are_stored_and_named_behind_the_text(tmp_path: Path, text: str) -> None:
    shown = await stub_for(LocalWorkspace(tmp_path), "s1", with_image(text), max_tokens=300)
    (blob,) = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert shown.splitlines()[-1].startswith("[image: png, ")
    assert str(blob) in shown.splitlines()[-1]
    assert default_counter().count(shown) <= 300


async def test_a_redacted_result_shows_no_secret() -> None:
    workspace = MemoryWorkspace(redact=lambda text: text.replace("hunter2", "[secret]"))
    shown = await stub_for(workspace, "s1", result("hunter2\n" * 2_000), max_tokens=300)
    assert "[secret]" in shown
    assert "hunter2" not in shown


async def test_a_message_of_a_tool_is_a_result_too() -> None:
    message = {"role": "tool", "tool_call_id": "call-1", "content": LOG}
    shown = await stub_for(MemoryWorkspace(), "s1", message, max_tokens=300)
    assert "tool_result-call-1.txt" in shown


@pytest.mark.parametrize("message", [{"role": "user", "content": "hello"}, LOG, None])
async def test_what_is_no_result_is_refused(message: Any) -> None:
    with pytest.raises(MessageError):
        await stub_for(MemoryWorkspace(), "s1", message)


@pytest.mark.parametrize("max_tokens", [-1, 0, 1.5, None, True])
async def test_a_limit_that_is_no_number_of_tokens_is_refused(max_tokens: Any) -> None:
    with pytest.raises(ConfigError, match="max_tokens"):
        await stub_for(MemoryWorkspace(), "s1", result(LOG), max_tokens=max_tokens)


async def test_an_offloader_with_two_methods_is_enough() -> None:
    offloader = Bare()
    shown = await stub_for(offloader, "s1", result(LOG), max_tokens=300)
    assert offloader.stored == [f"s1:{LOG}"]
    assert "s3://bucket/result" in shown


def test_the_example_of_the_docstring_runs() -> None:
    assert doctest.testmod(stub).failed == 0
