"""An agent that sees the workspace under another path gets and gives that path."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from buoyline import ContextConfig, ContextWindow
from buoyline.errors import NotFoundError
from buoyline.lookups import grep, lookup_tools, read
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace

SHOWN = "/mnt/buoyline"
LOG = "".join(f"step {n}: {'FAILED E42' if n == 711 else 'ok'}\n" for n in range(3_000))
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
CONFIG = ContextConfig(tool_result_limit=400, preview_tokens=150)


def image() -> dict[str, Any]:
    data = base64.b64encode(PNG).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


async def run(workspace: LocalWorkspace) -> tuple[ContextWindow, list[Any]]:
    window = await ContextWindow.open(workspace, "s1", size=8_000, config=CONFIG)
    for n in range(24):
        call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {}}
        content = [{"type": "text", "text": f"{n}\n{LOG}"}, *([image()] if n == 20 else [])]
        await window.add({"role": "assistant", "content": [{"type": "text", "text": f"look at {n}"}, call]})
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": content}
        await window.add({"role": "user", "content": [result]})
        messages = await window.prepare()
    await window.compress(force=True)
    return window, [*messages, *await window.prepare()]


def test_stubs_and_summaries_show_the_mapped_path_and_files_none(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, shown_as=SHOWN)
    _, messages = asyncio.run(run(workspace))
    text = json.dumps(messages)
    assert f"{SHOWN}/sessions/s1/tool_result-c23.txt" in text
    assert f"{SHOWN}/sessions/s1/context.jsonl" in text or f"{SHOWN}/sessions/s1/transcript.md" in text
    assert str(tmp_path) not in text
    assert verify(workspace).findings == ()


def test_lookups_take_the_mapped_path_and_the_real_one_and_answer_with_the_first(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, shown_as=SHOWN)
    asyncio.run(run(workspace))
    name = "sessions/s1/tool_result-c5.txt"
    answers = [read(workspace, path, 712, 713).text for path in (name, f"{SHOWN}/{name}", f"{tmp_path}/{name}")]
    assert len(set(answers)) == 1
    assert "step 711: FAILED E42" in answers[0]
    assert grep(workspace, "E42", f"{SHOWN}/{name}:700-720").total == 1
    assert grep(workspace, "E42", f"{SHOWN}/sessions/s1/tool_result-c?.txt").total == 10
    (blob,) = workspace.disk.entries("data")
    assert "image/png" in read(workspace, f"{SHOWN}/data/{blob}").text


def test_no_error_shows_an_agent_the_real_path(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", shown_as=SHOWN)
    asyncio.run(run(workspace))
    (tmp_path / "w" / "sessions" / "s1" / "link.txt").symlink_to("/etc/passwd")
    tools = {tool.name: tool for tool in lookup_tools(workspace)}

    def asked(tool: str, **arguments: str) -> str:
        return asyncio.run(tools[tool].call(**arguments))

    for path in ("sessions/s1/link.txt", f"{SHOWN}/nothing", "/etc/passwd", f"{SHOWN}/../x", "nothing"):
        for answer in (
            asked("read", path=path),
            asked("grep", pattern="x", path=path),
            asked("search", query="x", path=path),
        ):
            assert answer.startswith("Error: ")
            assert str(tmp_path) not in answer
    with pytest.raises(NotFoundError):
        read(workspace, "sessions/s1/link.txt")


async def test_a_session_goes_on_under_another_path(tmp_path: Path) -> None:
    window, before = await run(LocalWorkspace(tmp_path, shown_as=SHOWN))
    del window
    workspace = LocalWorkspace(tmp_path, shown_as="/home/agent/files")
    window = await ContextWindow.open(workspace, "s1")
    assert (await window.prepare())[-1] == before[-1]
    call = {"type": "tool_use", "id": "new", "name": "log", "input": {}}
    await window.add({"role": "assistant", "content": [call]})
    await window.add({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "new", "content": LOG}]})
    assert "/home/agent/files/sessions/s1/tool_result-new.txt" in json.dumps(await window.prepare())
    assert verify(workspace).findings == ()


async def test_what_the_context_of_a_moved_workspace_names_is_still_found(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    window, _ = await run(LocalWorkspace(old))
    await window.compress(force=True)
    old.rename(new)
    workspace = LocalWorkspace(new)
    shown = json.dumps((await ContextWindow.open(workspace, "s1")).messages)
    result = f"{old}/sessions/s1/{next(new.glob('sessions/s1/tool_result-*')).name}"
    transcript = f"{old}/sessions/s1/transcript.md"
    assert transcript in shown
    for path in (transcript, result, f"[{result}:2-3]"):
        assert read(workspace, path, session="s1").lines
        assert grep(workspace, ".", path, session="s1").total
    (blob,) = (new / "data").iterdir()
    assert "image/png" in read(workspace, f"{old}/data/{blob.name}", session="s1").text
