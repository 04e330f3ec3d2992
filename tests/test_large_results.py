"""Tool results of any size: what they cost, and that they are the same bytes however they were cut."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import Faults
from hypothesis import strategies as st

from buoyline import LocalWorkspace
from buoyline.errors import WorkspaceFull
from buoyline.messages import Text, ToolResult
from buoyline.workspace import content as content_module

texts = st.text(
    st.sampled_from(["a", "\n", "\r", "\xe9", "\u6f22", "\U0001f98a", "\ud83d", "\udd8a", "\u2028"]), max_size=12
)


def tool_result(*blocks: str, call_id: str = "c") -> ToolResult:
    return ToolResult(call_id, "tool", tuple(map(Text, blocks)))


def lines_of_bytes(size_bytes: int) -> str:
    line = "0123456789 abcdefghijklmnopqrstuvwxyz 0123456789 abcdefghijklmno\n"
    return (line * (size_bytes // len(line) + 1))[:size_bytes]


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "_ASCII_SLICE_CHARS", 3)
    monkeypatch.setattr(content_module, "_SLICE_CHARS", 2)


@pytest.mark.usefixtures("small_slices")
async def test_a_result_in_many_pieces_is_stored_byte_for_byte(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    text = "gr\xf6\xdfer\n\u6f22\u5b57\n\ud83d half a character"
    stored = await workspace.store_result("s", tool_result(text, "b"))
    assert Path(stored.reference).read_bytes() == f"{text}\nb".encode("utf-8", "surrogatepass")
    assert stored.lines == 4


async def test_a_repeated_result_is_compared_and_not_written_again(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    for text in ("first\n", "second\n"):
        stored = await workspace.store_result("s", tool_result(text))
        before = Path(stored.reference).stat()
        with Faults(1, 28, calls=["link", "rename", "mkdir"]) as faults:
            assert await workspace.store_result("s", tool_result(text)) == stored
        after = Path(stored.reference).stat()
        assert (faults.count, after.st_ino, after.st_mtime_ns) == (0, before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("text", ["first", "second"])
async def test_a_result_whose_file_was_changed_is_replaced_and_the_changed_bytes_are_kept(
    tmp_path: Path, text: str
) -> None:
    workspace = LocalWorkspace(tmp_path)
    stored = {text: await workspace.store_result("s", tool_result(text)) for text in ("first", "second")}
    Path(stored[text].reference).write_text("other", encoding="utf-8")
    again = await workspace.store_result("s", tool_result(text))
    assert again.reference == stored[text].reference
    assert Path(again.reference).read_text("utf-8") == text
    assert [path.read_text("utf-8") for path in (tmp_path / "sessions/s/torn").iterdir()] == ["other"]


async def test_a_large_result_that_finds_the_disk_full_leaves_no_file(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.initialize()
    with Faults(12, 28, calls=["write"]), pytest.raises(WorkspaceFull):
        await workspace.store_result("s", tool_result(lines_of_bytes(16_000_000)))
    assert [path for path in (tmp_path / "sessions" / "s").iterdir() if "tool_result" in path.name] == []
    stored = await workspace.store_result("s", tool_result(lines_of_bytes(16_000_000)))
    assert Path(stored.reference).stat().st_size == 16_000_000


MEASURING = """
import asyncio, resource, sys
from buoyline import LocalWorkspace
from buoyline.messages import Text, ToolResult

kind, workdir = sys.argv[1:]
line = "0123456789 abcdefghijklmnopqrstuvwxyz 0123456789 abc" + ("\\u6f22" if kind == "wide" else "d") + "\\n"
size_bytes = 100_000_000
blocks = 4 if kind == "blocks" else 1
texts = [line * (size_bytes // blocks // len(line.encode("utf-8"))) for _ in range(blocks)]

def peak_kib():
    return int(next(row for row in open("/proc/self/status") if row.startswith("VmHWM")).split()[1])

async def main():
    workspace = LocalWorkspace(workdir)
    await workspace.store_result("s", ToolResult("warm", "tool", (Text("x\\n"),)))
    for _ in range(2):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = peak_kib()
        await workspace.store_result("s", ToolResult("c", "tool", tuple(map(Text, texts))))
        print(peak_kib() - before)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ascii", "wide", "blocks"])
def test_a_result_of_100_mb_takes_under_16_mb_beyond_the_text_also_when_it_is_repeated(
    tmp_path: Path, kind: str
) -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of a process's memory is read and reset in /proc, as Linux has it")
    command = [sys.executable, "-c", MEASURING, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    stored, repeated = map(int, done.stdout.split())
    assert max(stored, repeated) < 16_000_000 // 1024, done.stdout
