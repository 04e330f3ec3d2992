"""Whatever reads a workspace gets the same from a disk, from memory and from an object store."""

import asyncio
import base64
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from object_workspace import Objects, pushed

from buoyline.errors import BuoylineError, StorageError
from buoyline.lookups import glob, grep, lookup_tools, query, read, retrieve, search
from buoyline.maintenance.verify import verify
from buoyline.watching.events import BatchArchived
from buoyline.watching.watch import Watch
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, ReadableWorkspace

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LOG = "".join(f"line {n}{' ERROR E42' if n % 90 == 4 else ''}\n" for n in range(1, 4_000))
ROWS = '[{"id": 1, "state": "failed"}, {"id": 2, "state": "done"}]'
LATER = [{"role": "user", "content": "Which berth is free? The harbour master asks."}]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")

ASKED: dict[str, Callable[[Any], object]] = {
    "read a transcript": lambda w: read(w, "transcript.md", session="s1").text,
    "read lines of a result": lambda w: read(w, "sessions/s1/tool_result-log.txt", 3_000, 3_010).text,
    "read a citation": lambda w: read(w, "[tool_result-log.txt:94-95]").text,
    "read an image": lambda w: read(w, w.files.names("data")[0]).text,
    "read what is not there": lambda w: read(w, "transcrpt.md", session="s1"),
    "read outside": lambda w: read(w, "/etc/passwd"),
    "grep everything": lambda w: grep(w, "ERROR|berth", context=1).text,
    "grep one session": lambda w: grep(w, "harbor", literal=True, session="s1", confined=True).text,
    "glob": lambda w: glob(w, "tool_result-*").text,
    "glob directories": lambda w: glob(w, "sessions/*").text,
    "search": lambda w: search(w, "Which berth is free?").text,
    "query": lambda w: query(w, "rows", "[?state=='failed'].id").text,
    "query two with SQL": lambda w: query(w, ["rows", "tool_result-log.txt"], "SELECT count(*) FROM lines").text,
    "retrieve": lambda w: retrieve(w, "log", "E42", session="s1").text,
    "retrieve whole": lambda w: retrieve(w, "mixed").text,
    "retrieve what is not there": lambda w: retrieve(w, "nothing"),
}


async def fill(workspace: LocalWorkspace | MemoryWorkspace) -> None:
    results: tuple[tuple[str, Any], ...] = (
        ("log", LOG),
        ("rows", ROWS),
        ("mixed", [{"type": "text", "text": "a picture"}, image()]),
    )
    for call_id, content in results:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        await workspace.offload_tool_result("s1", block)
    await workspace.archive("s1", [{"role": "user", "content": f"message {n}"} for n in range(30)])
    await workspace.archive("s2", [{"role": "user", "content": "of another session"}])


def image() -> dict[str, Any]:
    data = base64.b64encode(PNG).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReadableWorkspace]:
    """Return three workspaces with the same content; the object store got it in two steps."""
    local, memory, objects = LocalWorkspace(tmp_path_factory.mktemp("w")), MemoryWorkspace(), Objects()
    for workspace in (local, memory):
        asyncio.run(fill(workspace))
        if workspace is local:
            pushed(local, objects)
        asyncio.run(workspace.archive("s1", LATER))
    return {"disk": local, "memory": memory, "objects": pushed(local, objects)}


def answer(ask: Callable[[Any], object], workspace: ReadableWorkspace) -> str:
    """Return the answer or the error, without times and without the root of references."""
    try:
        text = str(ask(workspace))
    except BuoylineError as error:
        text = f"{type(error).__name__}: {error}"
    return _TIME.sub("TIME", text.replace(workspace.roots[0], "ROOT"))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", ["memory", "objects"])
def test_a_lookup_answers_as_on_a_disk(workspaces: dict[str, ReadableWorkspace], kind: str, asked: str) -> None:
    assert answer(ASKED[asked], workspaces[kind]) == answer(ASKED[asked], workspaces["disk"])


@pytest.mark.parametrize("kind", ["disk", "memory", "objects"])
def test_an_agent_finds_what_was_offloaded_with_its_tools(workspaces: dict[str, ReadableWorkspace], kind: str) -> None:
    tools = {tool.name: tool for tool in lookup_tools(workspaces[kind], "s1")}
    found = asyncio.run(tools["grep"].call(pattern="E42", path="tool_result-log.txt"))
    assert "== sessions/s1/tool_result-log.txt\n4: line 4 ERROR E42\n" in found
    reference = f"{workspaces[kind].roots[0]}/sessions/s1/tool_result-log.txt"
    assert "4\tline 4 ERROR E42\n" in asyncio.run(tools["read"].call(path=reference, start=4, end=4))
    assert asyncio.run(tools["read"].call(path="sessions/s2/transcript.md")).startswith("Error: ")


@pytest.mark.parametrize("kind", ["disk", "memory", "objects"])
def test_a_sound_workspace_is_verified_wherever_it_is(workspaces: dict[str, ReadableWorkspace], kind: str) -> None:
    report = verify(workspaces[kind])
    assert report.findings == ()
    assert (report.sessions, report.blobs) == (2, 1)
    assert report.bytes_read > len(LOG)


def test_damage_in_an_object_store_is_found_in_its_place(tmp_path: Path) -> None:
    workspace, objects = LocalWorkspace(tmp_path), Objects()
    asyncio.run(fill(workspace))
    asyncio.run(workspace.archive("s1", LATER))
    remote = pushed(workspace, objects)
    for name, offset in (("context.jsonl", 700), ("tool_result-log.txt", 9)):
        path = tmp_path / "sessions" / "s1" / name
        content = path.read_bytes()
        path.write_bytes(content[:offset] + b"#" + content[offset + 1 :])
    damaged = pushed(workspace, Objects())
    assert [(found.kind, found.path) for found in verify(damaged).findings] == [
        (found.kind, found.path) for found in verify(workspace).findings if found.kind != "wrong-mode"
    ]
    assert {found.kind for found in verify(damaged).findings} == {"changed-bytes"}
    assert verify(remote).findings == ()


@pytest.mark.parametrize("kind", ["disk", "memory", "objects"])
def test_the_events_of_a_workspace_are_the_same_wherever_it_is(
    workspaces: dict[str, ReadableWorkspace], kind: str
) -> None:
    def events(workspace: ReadableWorkspace) -> list[str]:
        rounds = Watch(workspace, last=None).rounds(follow=False)
        return [_TIME.sub("TIME", str(event)) for found in rounds for event in found]

    assert events(workspaces[kind]) == events(workspaces["disk"])
    assert len(events(workspaces[kind])) == 8


def test_a_growing_object_store_is_followed_without_notices(tmp_path: Path) -> None:
    workspace, objects = LocalWorkspace(tmp_path), Objects()
    asyncio.run(fill(workspace))
    watch = Watch(pushed(workspace, objects))
    assert [event for found in watch.rounds(follow=False) for event in found] == []
    asyncio.run(workspace.archive("s1", LATER))
    pushed(workspace, objects)
    (event,) = [event for found in watch.rounds(follow=False) for event in found]
    assert isinstance(event, BatchArchived)
    assert (event.first, event.end) == (30, 31)


def test_a_lookup_reads_an_object_store_in_ranges(tmp_path: Path) -> None:
    workspace, objects = LocalWorkspace(tmp_path), Objects()
    message = {"role": "tool", "tool_call_id": "large", "content": LOG * 200}
    asyncio.run(workspace.offload_tool_result("s1", message))
    remote = pushed(workspace, objects)
    assert grep(remote, "E42", context=2, max_tokens=400).total
    assert max(size for _, size in objects.ranges) <= 1 << 20


class Shrinking(Objects):
    """A store in which another process removes a session right before a range is read."""

    def remove_at(self, session_id: str, read: int) -> None:
        self._prefix, self._left = f"sessions/{session_id}/", read

    def read_range(self, key: str, offset: int, size_bytes: int) -> bytes:
        self._left -= 1
        if not self._left:
            self._objects = {name: held for name, held in self._objects.items() if not name.startswith(self._prefix)}
        if key not in self._objects:
            raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return super().read_range(key, offset, size_bytes)


@pytest.mark.parametrize("look_up", ["grep everything", "search", "glob"])
@pytest.mark.parametrize("session_id", ["s1", "s2"])
@pytest.mark.parametrize("read", range(1, 13))
def test_a_session_that_is_removed_during_a_lookup_in_all_sessions_does_not_end_it(
    workspaces: dict[str, ReadableWorkspace], look_up: str, session_id: str, read: int
) -> None:
    objects = Shrinking()
    objects.remove_at(session_id, read)
    local = workspaces["disk"]
    assert isinstance(local, LocalWorkspace)
    ASKED[look_up](pushed(local, objects))
