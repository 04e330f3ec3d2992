"""Tool outputs that come piece by piece: what is stored, what is left of those that do not end, what it costs."""

import asyncio
import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from faults import files_up_to
from hypothesis import given
from hypothesis import strategies as st

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import (
    ConfigError,
    StorageError,
    ToolOutputError,
    WorkspaceFull,
)
from buoyline.maintenance.gc import collect
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.offloader import ToolRule
from buoyline.offloader.stub import bare_stub, previewed_lines
from buoyline.offloader.view import view_of
from buoyline.previews import source as sources
from buoyline.previews.source import decoded
from buoyline.window import offloading
from buoyline.workspace import streams
from buoyline.workspace.streams import outside_source

Workspace = LocalWorkspace | MemoryWorkspace
SMALL_BLOCK_BYTES = 4100
"""A line that does not end within so many has over 1,000 characters, as one over a megabyte has."""

PIECES = st.lists(
    st.sampled_from(
        [
            "a\n",
            "\n",
            "\r",
            "\r\n",
            "word " * 300,
            "a line\n" * 700,
            "x" * 5000,
            "\u2028",
            "\ud83d",
            "\u6f22",
            '{"a":[1,2]}',
        ]
    )
    | st.sampled_from([b"\xff", b"\xc3", b"\xa9", b"", b"plain\n", b"\xed\xa0\x80"])
    | st.text(max_size=9),
    max_size=12,
)


@pytest.fixture(params=["local", "memory"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return LocalWorkspace(tmp_path, durability="off") if request.param == "local" else MemoryWorkspace()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write what comes every few kilobytes, instead of every megabyte."""
    monkeypatch.setattr(sources, "BLOCK_BYTES", SMALL_BLOCK_BYTES)


def content_of(workspace: Workspace, reference: str) -> bytes:
    return Path(reference).read_bytes() if isinstance(workspace, LocalWorkspace) else workspace.retrieve(reference)


def joined(pieces: Sequence[str | bytes]) -> bytes:
    return b"".join(p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in pieces)


def unfinished(workdir: Path) -> list[Path]:
    return list(workdir.rglob(".tmp-*"))


def results_in(workdir: Path) -> list[str]:
    return sorted(path.name for path in workdir.rglob("tool_result-*"))


async def given_out(pieces: Sequence[str | bytes], pause_s: float = 0) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(pause_s)


async def endless(line: str = "a line\n") -> AsyncIterator[str]:
    while True:
        yield line * 100
        await asyncio.sleep(0)


def breaking(*pieces: str, error: BaseException | None = None) -> Iterator[str]:
    yield from pieces
    raise error or ValueError("the tool broke")


class TestWhatIsStored:
    """It is what a result given whole would be."""

    @given(PIECES)
    async def test_any_pieces_make_the_file_view_and_record_of_the_whole(self, pieces: list[str | bytes]) -> None:
        whole, pieced = MemoryWorkspace(), MemoryWorkspace()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "BLOCK_BYTES", SMALL_BLOCK_BYTES)
            stored = await pieced.store_stream("s", "c", given_out(pieces))
        content = joined(pieces)
        assert pieced.retrieve(stored.reference) == content
        text = decoded(content)
        expected = await whole.store_result("s", ToolResult("c", "", (Text(text),)))
        assert (stored.lines, bool(stored.view)) == (expected.lines, bool(expected.view))
        assert not stored.view or pieced.read(stored.view) == whole.read(expected.view)

    async def test_bytes_that_are_not_utf8_are_kept_and_shown_as_replaced(self, workspace: Workspace) -> None:
        content = b"\xff\xfe" + b"x" * 1500 + b"\n\xe2\x82"
        stored = await workspace.store_stream("s", "c", [content])
        assert content_of(workspace, stored.reference) == content
        assert content_of(workspace, stored.view).decode() == view_of(content.decode("utf-8", "replace"))

    async def test_the_same_content_is_the_same_file_and_other_content_one_more(self, workspace: Workspace) -> None:
        stored = [await workspace.store_stream("s", "c", [text]) for text in ("one\n", "two\n", "one\n", "two\n")]
        assert stored[:2] == stored[2:]
        whole = await workspace.store_result("s", ToolResult("c", "", (Text("two\n"),)))
        assert whole == stored[1]

    async def test_an_output_of_nothing_is_an_empty_result(self, workspace: Workspace) -> None:
        outputs: list[Any] = [[], ["", b""], given_out([])]
        for output in outputs:
            stored = await workspace.store_stream("s", "c", output)
            assert (content_of(workspace, stored.reference), stored.lines) == (b"", 0)


class TestWhatMayBeGiven:
    """Anything that gives text or bytes, one after the other."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda _: ["a\n", b"b\n"],
            lambda _: iter(("a\n", "b\n")),
            lambda _: (piece for piece in ("a\n", "b\n")),
            lambda _: [bytearray(b"a\n"), memoryview(b"b\n")],
            lambda _: given_out(["a\n", b"b\n"]),
            lambda _: io.BytesIO(b"a\nb\n"),
            lambda _: io.StringIO("a\nb\n"),
            lambda path: path,
            lambda path: path.open("rb"),
            lambda path: path.open(encoding="utf-8"),
        ],
    )
    async def test_it_is_read_to_its_end(
        self, workspace: Workspace, tmp_path: Path, make: Callable[[Path], Any]
    ) -> None:
        path = tmp_path / "output.txt"
        path.write_bytes(b"a\nb\n")
        output = make(path)
        stored = await workspace.store_stream("s", "c", output)
        assert content_of(workspace, stored.reference) == b"a\nb\n"
        if isinstance(output, io.IOBase):
            output.close()

    async def test_a_subprocess_with_a_line_over_the_limit_of_its_stream_is_read(self, workspace: Workspace) -> None:
        """To iterate over an `asyncio.StreamReader` raises at a line over 64 KiB."""
        program = "print('x' * 200_000); print('end')"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
        assert process.stdout is not None
        stored = await workspace.store_stream("s", "c", process.stdout)
        await process.wait()
        assert content_of(workspace, stored.reference) == b"x" * 200_000 + b"\nend\n"

    @pytest.mark.parametrize("output", ["text", b"bytes", 5, None, {"a": 1}, [1], ["a", None], [b"", {}]])
    async def test_what_gives_neither_is_refused(self, workspace: Workspace, output: Any) -> None:
        with pytest.raises(ToolOutputError):
            await workspace.store_stream("s", "c", output)
        assert workspace.session_ids() == []

    async def test_a_file_that_is_not_there_is_the_file_systems_error(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        with pytest.raises(StorageError) as caught:
            await workspace.store_stream("s", "c", tmp_path / "none")
        assert caught.value.errno == errno.ENOENT

    @pytest.mark.parametrize("options", [{"mode": "rb", "buffering": 0}, {"mode": "rb"}, {"mode": "r"}])
    async def test_a_pipe_that_does_not_block_is_refused_since_a_pause_looks_like_its_end(
        self, workspace: Workspace, options: dict[str, Any]
    ) -> None:
        reading, writing = os.pipe()
        with os.fdopen(reading, **options) as output, os.fdopen(writing, "wb", buffering=0) as tool:
            tool.write(b"the first of many lines\n")
            os.set_blocking(reading, False)
            with pytest.raises(ToolOutputError, match="set_blocking"):
                await workspace.store_stream("s", "c", output)
        assert workspace.session_ids() == []

    async def test_a_file_of_a_socket_with_a_timeout_is_read(self, workspace: Workspace) -> None:
        """Its descriptor does not block, but its file waits."""

        def send() -> None:
            with theirs:
                theirs.sendall(b"late\n")

        ours, theirs = socket.socketpair()
        ours.settimeout(5)
        with ours, ours.makefile("rb") as output:
            threading.Timer(0.1, send).start()
            stored = await workspace.store_stream("s", "c", output)
        assert content_of(workspace, stored.reference) == b"late\n"

    async def test_a_file_outside_is_read_as_a_source_of_its_size(self, tmp_path: Path) -> None:
        path = tmp_path / "large.log"
        path.write_bytes(b"line\n" * 500_000)
        source = outside_source(path)
        assert source.size_bytes == 2_500_000
        assert [len(block) for block in source.blocks()] == [1_048_575, 1_048_575, 402_850]
        with pytest.raises(StorageError, match="no regular file"):
            outside_source(tmp_path)


class TestWhatDoesNotEnd:
    """Nothing gets a final name unless it is asked for, and then it says that it is not whole."""

    @pytest.mark.usefixtures("small_blocks")
    async def test_an_output_that_breaks_leaves_nothing(self, workspace: Workspace, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="the tool broke"):
            await workspace.store_stream("s", "c", breaking("a\n" * 100))
        assert [*workspace.session_ids(), *results_in(tmp_path), *unfinished(tmp_path)] == []

    @pytest.mark.usefixtures("small_blocks")
    async def test_what_came_before_is_kept_and_marked_when_that_is_asked_for(self, workspace: Workspace) -> None:
        with pytest.raises(ValueError, match="the tool broke") as caught:
            await workspace.store_stream("s", "c", breaking("a\n" * 100, "b"), keep_partial=True)
        (note,) = caught.value.__notes__
        reference = note.removeprefix("What came before it is kept in ")
        assert content_of(workspace, reference) == b"a\n" * 100 + b"b"
        whole = await workspace.store_stream("s", "c", ["a\n" * 100, "b"])
        assert (whole.reference, whole.partial) == (reference, "")

    async def test_a_partial_result_says_so_to_whoever_goes_on_with_the_session(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        async with workspace.result_writer("s", "c", keep_partial=True) as writer:
            await writer.write("half")
            stored = await writer.store(partial="timed out after 60 s")
        assert stored.partial == "timed out after 60 s"
        await workspace.record_stub("s", "the stub", stored)
        assert await LocalWorkspace(tmp_path).load_stubs("s", ["the stub"]) == {"the stub": stored}
        assert verify(workspace).findings == ()

    @pytest.mark.parametrize("keep_partial", [False, True])
    async def test_a_cancelled_output_is_discarded_or_kept(
        self, workspace: Workspace, tmp_path: Path, *, keep_partial: bool
    ) -> None:
        has_begun = asyncio.Event()

        async def slow() -> AsyncIterator[str]:
            yield "first\n" * 300_000
            has_begun.set()
            await asyncio.sleep(3600)

        task = asyncio.create_task(workspace.store_stream("s", "c", slow(), keep_partial=keep_partial))
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert unfinished(tmp_path) == []
        assert workspace.session_ids() == (["s"] if keep_partial else [])
        if keep_partial and isinstance(workspace, LocalWorkspace):
            record = workspace.session("s").index().results["tool_result-c.txt"]
            assert (record["partial"], record["lines"]) == ("cancelled", 300_000)

    async def test_what_a_thread_was_reading_when_it_was_cancelled_is_kept_as_far_as_it_came(
        self, workspace: Workspace
    ) -> None:
        come, goes_on = threading.Event(), threading.Event()

        def slow() -> Iterator[str]:
            yield "first\n"
            yield "second\n"
            come.set()
            goes_on.wait(30)

        task = asyncio.create_task(workspace.store_stream("s", "c", slow(), keep_partial=True))
        await asyncio.to_thread(come.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()
        whole = await workspace.store_stream("s", "c", ["first\n", "second\n"])
        assert whole.name == "tool_result-c.txt"

    async def test_a_generator_is_closed_when_its_output_is_not_wanted_any_more(self, workspace: Workspace) -> None:
        closed: list[str] = []

        async def waits() -> AsyncIterator[str]:
            try:
                async for line in endless():
                    yield line
            finally:
                closed.append("asynchronous")

        def counts() -> Iterator[str]:
            try:
                while True:
                    yield "x" * 100
            finally:
                closed.append("synchronous")

        for output in (waits(), counts()):
            with pytest.raises(ToolOutputError):
                await workspace.store_stream("s", "c", output, max_bytes=1000)
        assert closed == ["asynchronous", "synchronous"]

    async def test_more_than_may_come_is_refused_and_what_fits_may_be_kept(self, workspace: Workspace) -> None:
        await workspace.store_stream("s", "c", ["\u6f22" * 3], max_bytes=9)
        with pytest.raises(ToolOutputError, match="max_bytes=10"):
            await workspace.store_stream("s", "d", ["\u6f22" * 4], max_bytes=10, keep_partial=True)
        kept = await workspace.store_stream("s", "d", ["\u6f22" * 3])
        assert kept.name == "tool_result-d.txt"

    async def test_a_writer_that_is_left_without_storing_leaves_nothing(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        async with workspace.result_writer("s", "c") as writer:
            await writer.write(b"x" * 3_000_000)
            assert bool(unfinished(tmp_path)) is isinstance(workspace, LocalWorkspace)
        assert [*unfinished(tmp_path), *results_in(tmp_path), *workspace.session_ids()] == []
        for again in (writer.write("x"), writer.store()):
            with pytest.raises(ToolOutputError, match="begin a new one"):
                await again
        await writer.discard()


class TestLimits:
    async def test_an_endless_output_is_stopped_by_a_full_disk_and_nothing_is_left(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        for keep_partial in (False, True):
            with files_up_to(3_000_000), pytest.raises(WorkspaceFull):
                await workspace.store_stream("s", "c", endless(), keep_partial=keep_partial)
            assert [*results_in(tmp_path), *unfinished(tmp_path), *workspace.session_ids()] == []


class TestRedaction:
    """A hook sees each text whole, or nothing is stored."""

    @pytest.mark.usefixtures("small_blocks")
    async def test_the_hook_gets_the_text_whole_whatever_the_pieces_are(self, tmp_path: Path) -> None:
        seen: list[str] = []

        def redact(text: str) -> str:
            seen.append(text)
            return text.replace("secret", "[hidden]")

        for workspace in (LocalWorkspace(tmp_path, redact=redact), MemoryWorkspace(redact=redact)):
            stored = await workspace.store_stream("s", "c", list("a secret within\n" * 20))
            assert content_of(workspace, stored.reference) == b"a [hidden] within\n" * 20
            assert "a secret within\n" * 20 in seen
        assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    async def test_an_output_that_is_too_long_for_a_hook_is_refused_and_nothing_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streams, "MAX_REDACTED_BYTES", 2_000_000)
        workspace = LocalWorkspace(tmp_path, redact=lambda text: text)
        with pytest.raises(ToolOutputError, match="redaction hook gets whole texts"):
            await workspace.store_stream("s", "c", endless())
        assert list(tmp_path.iterdir()) == []

    async def test_what_is_cut_off_is_not_kept_where_a_hook_redacts(self, tmp_path: Path) -> None:
        """It may end within a secret."""
        for workspace in (LocalWorkspace(tmp_path, redact=str.upper), MemoryWorkspace(redact=str.upper)):
            with pytest.raises(ConfigError, match="keep_partial"):
                await workspace.store_stream("s", "c", ["x"], keep_partial=True)
            window = ContextWindow(session_id="s", offloader=workspace)
            with pytest.raises(ConfigError, match="keep_partial"):
                await window.add_tool_output("c", ["x"], keep_partial=True)


class TestOthersMeanwhile:
    """Whoever else works in the session does not wait for a tool."""

    async def test_no_lock_is_held_while_the_tool_is_at_work(self, tmp_path: Path) -> None:
        workspace, other = LocalWorkspace(tmp_path), LocalWorkspace(tmp_path, lock_timeout_s=0.1)

        async def output() -> AsyncIterator[str]:
            for number in range(3):
                yield f"{number}\n" * 600_000
                await workspace.archive("s", [{"role": "user", "content": str(number)}])
                await other.archive("s", [{"role": "user", "content": f"other {number}"}])

        stored = await workspace.store_stream("s", "c", output())
        assert stored.lines == 1_800_000
        assert len(await workspace.load_messages("s", 0, 99)) == 6
        assert verify(workspace).findings == ()

    async def test_many_outputs_at_once_do_not_mix(self, workspace: Workspace) -> None:
        texts = {f"c{number}": [f"{number} {line}\n" for line in range(300)] for number in range(20)}
        stored = await asyncio.gather(
            *(workspace.store_stream("s", call_id, given_out(lines)) for call_id, lines in texts.items())
        )
        for found, lines in zip(stored, texts.values(), strict=True):
            assert content_of(workspace, found.reference) == joined(lines)


KILLED = """
import asyncio, sys
from buoyline import LocalWorkspace

async def output():
    for number in range(10**9):
        yield f"line {number}\\n" * 2000
        if number == 100:
            print("at work", flush=True)

asyncio.run(LocalWorkspace(sys.argv[1]).store_stream("s", "c", output()))
"""


async def test_a_process_that_is_killed_leaves_no_final_name_and_gc_sweeps_the_rest(tmp_path: Path) -> None:
    await LocalWorkspace(tmp_path).archive("s", [{"role": "user", "content": "x"}])
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        process.send_signal(signal.SIGKILL)
    (left,) = unfinished(tmp_path)
    assert left.parent == tmp_path / "sessions"
    assert results_in(tmp_path) == []
    workspace = LocalWorkspace(tmp_path)
    assert [finding.kind for finding in verify(workspace).findings] == ["leftover"]
    assert collect(workspace, dry_run=False, grace_s=0).leftovers == ()
    then = time.time() - 2 * 3600
    os.utime(left, (then, then))
    collect(workspace, dry_run=False, grace_s=0)
    assert unfinished(tmp_path) == []
    assert verify(workspace).findings == ()


MEASURED = """
import asyncio, sys
from buoyline import ContextWindow, LocalWorkspace

kind, workdir = sys.argv[1:]

async def output(chunks):
    chunk = {"lines": b"0123456789 abcdefghijklmnopqrstuvwxyz 0123 abcd\\n" * 1300, "line": b"word " * 13000}[kind]
    for _ in range(chunks):
        yield chunk

def peak_kib():
    return int(next(row for row in open("/proc/self/status") if row.startswith("VmHWM")).split()[1])

async def main():
    workspace = LocalWorkspace(workdir, durability="off")
    window = ContextWindow(session_id="w", offloader=workspace)
    await window.add_tool_output("warm", output(40))
    for store in (
        lambda: workspace.store_stream("s", "c", output(3100)),
        lambda: window.add_tool_output("c", output(3100)),
    ):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = peak_kib()
        await store()
        print(peak_kib() - before)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "line"])
def test_an_output_of_200_mb_takes_under_16_mb_of_memory_and_its_stub_as_much_as_that_of_any_large_one(
    tmp_path: Path, kind: str
) -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of a process's memory is read and reset in /proc, as Linux has it")
    command = [sys.executable, "-c", MEASURED, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    stored, shown = map(int, done.stdout.split())
    # A preview looks at the first 16 MB line by line, and at all else block by block.
    assert (stored < 16_000_000 // 1024, shown < 100_000_000 // 1024) == (True, True), done.stdout


class TestInAWindow:
    """The output is a message of the conversation's dialect: itself, or a stub made from its file."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offloading, "_HELD_BYTES", 1000)

    def window(self, workspace: Workspace, **more: Any) -> ContextWindow:
        config = ContextConfig(tool_result_limit=500, preview_tokens=300)
        return ContextWindow(session_id="s", offloader=workspace, config=config, **more)

    async def test_a_small_output_is_a_message_and_nothing_is_stored(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        window = self.window(workspace)
        await window.add_tool_output("c", given_out(["all ", b"of it"]), name="tool")
        assert window.messages == [{"role": "tool", "tool_call_id": "c", "content": "all of it"}]
        assert list(tmp_path.iterdir()) == []

    async def test_an_output_over_what_is_held_that_fits_the_context_is_a_message(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        window = self.window(workspace)
        await window.add_tool_output("c", [" " * 40] * 100)
        assert window.messages[0]["content"] == " " * 4000
        assert [*unfinished(tmp_path), *results_in(tmp_path)] == []

    async def test_a_tools_own_limit_and_preview_hold_for_its_outputs(self, workspace: Workspace) -> None:
        rules = {"wide": ToolRule(limit=9000), "narrow": ToolRule(limit=200, preview_tokens=150)}
        window = ContextWindow(session_id="s", offloader=workspace, config=ContextConfig(tool_rules=rules))
        await window.add({"role": "assistant", "content": None, "tool_calls": [call("w", "wide"), call("n", "narrow")]})
        text = "".join(f"line {number}\n" for number in range(1500))
        await window.add_tool_output("w", [text])
        await window.add_tool_output("n", [text])
        await window.add_tool_output("o", [text])
        wide, narrow, other = (message["content"] for message in window.messages[1:])
        assert wide == text
        assert len(narrow) < len(other) < len(text)
        assert await window.prepare() == window.messages
        assert window.messages[1]["content"] == text

    async def test_a_tool_that_is_never_offloaded_may_fill_a_part_of_the_window_and_no_more(
        self, workspace: Workspace
    ) -> None:
        config = ContextConfig(tool_result_limit=500, tool_rules={"keep": ToolRule(offload="never")})
        window = ContextWindow(session_id="s", offloader=workspace, config=config, size=40_000)
        for number, lines in enumerate((2500, 6000)):
            text = "line\n" * lines
            await window.add({"role": "assistant", "content": None, "tool_calls": [call(f"c{number}", "keep")]})
            await window.add_tool_output(f"c{number}", [text])
        fitting, larger = (message["content"] for message in (await window.prepare())[1::2])
        assert fitting == "line\n" * 2500
        assert larger.startswith("[Tool result offloaded: 6,000 lines")

    async def test_what_is_read_back_is_a_message_up_to_what_may_be_read_back(self, workspace: Workspace) -> None:
        stored = await workspace.store_result("s0", ToolResult("c", "", (Text("line\n" * 3000),)))
        window = self.window(workspace)
        read = {"name": "read", "arguments": json.dumps({"path": stored.reference})}
        await window.add(
            {"role": "assistant", "content": None, "tool_calls": [{"id": "r", "type": "function", "function": read}]}
        )
        await window.add_tool_output("r", ["line\n" * 3000])
        assert (await window.prepare())[-1]["content"] == "line\n" * 3000

    async def test_the_stubs_of_one_turn_keep_its_budget(self, workspace: Workspace) -> None:
        config = ContextConfig(tool_result_limit=500, preview_tokens=400, turn_results_limit=1500)
        window = ContextWindow(session_id="s", offloader=workspace, config=config)
        ids = [f"c{number}" for number in range(6)]
        await window.add({"role": "assistant", "content": None, "tool_calls": [call(name, "ls") for name in ids]})
        for name in ids:
            await window.add_tool_output(name, [f"{name} line {number}\n" for number in range(900)])
        stubs = [message["content"] for message in window.messages[1:]]
        assert [bool(previewed_lines(stub)) for stub in stubs] == [True, True, True, True, False, False]
        assert window.turn_tokens < 1500 + 2 * 110
        assert await window.prepare() == window.messages
        assert [message["content"] for message in window.messages[1:]] == stubs

    async def test_the_message_has_the_form_of_the_call_that_it_answers(self, workspace: Workspace) -> None:
        window = self.window(workspace)
        block = {"type": "tool_use", "id": "t", "name": "ls", "input": {}}
        await window.add({"role": "assistant", "content": [block]})
        await window.add_tool_output("t", ["out"])
        result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "out"}]}
        assert window.messages[1] == {"role": "user", "content": [result]}

    @pytest.mark.parametrize("size", [1, 400])
    async def test_an_output_that_does_not_end_is_added_as_far_as_it_came_when_that_is_asked_for(
        self, workspace: Workspace, size: int
    ) -> None:
        window = self.window(workspace)
        lines = [f"line {number}\n" for number in range(size)]
        with pytest.raises(ValueError, match="the tool broke"):
            await window.add_tool_output("c", breaking(*lines))
        assert window.messages == []
        with pytest.raises(ValueError, match="the tool broke"):
            await window.add_tool_output("c", breaking(*lines), keep_partial=True)
        (message,) = window.messages
        assert "The tool did not come to its end: ValueError" in message["content"]
        assert "The tool did not come to its end: ValueError" in bare_stub(message["content"]) or size == 1
        assert "line 0\n" in message["content"]
        assert await window.prepare() == [message]

    async def test_a_tool_that_takes_too_long_leaves_what_it_gave_in_the_context(self, workspace: Workspace) -> None:
        window = self.window(workspace)

        async def hangs() -> AsyncIterator[str]:
            yield "begun\n"
            await asyncio.sleep(3600)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await window.add_tool_output("c", hangs(), keep_partial=True)
        assert window.messages[0]["content"] == "begun\n[The tool did not come to its end: cancelled]"

    async def test_bytes_that_are_no_text_are_stored_as_they_are(self, workspace: Workspace) -> None:
        window = self.window(workspace)
        await window.add_tool_output("c", [bytes(range(256)) * 20])
        await window.add_tool_output("d", [b"\xff"])
        assert "offloaded" in window.messages[0]["content"]
        assert window.messages[1]["content"] == "\ufffd"

    async def test_without_a_workspace_it_is_a_message_in_any_case(self) -> None:
        window = ContextWindow(session_id="s")
        await window.add_tool_output("c", [f"line {number}\n" for number in range(2000)])
        assert window.messages[0]["content"].count("\n") == 2000
        with pytest.raises(ValueError, match="the tool broke"):
            await window.add_tool_output("d", breaking("half"), keep_partial=True)
        assert window.messages[1]["content"].startswith("half\n[The tool did not")

    async def test_a_full_disk_adds_nothing(self, tmp_path: Path) -> None:
        window = self.window(LocalWorkspace(tmp_path))
        with files_up_to(2_000_000), pytest.raises(WorkspaceFull):
            await window.add_tool_output("c", endless(), keep_partial=True)
        assert window.messages == []
        assert unfinished(tmp_path) == []


def call(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
