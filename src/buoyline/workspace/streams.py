"""Tool results that come piece by piece: where the pieces are until the last one, and the writer that takes them.

They wait in ``sessions/``, in a file without a final name, while no lock is held and the session need not exist;
docs/format.md, "Streaming".
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol, Self, TypeVar

from buoyline.errors import ConfigError, ToolOutputError
from buoyline.messages import Text, ToolResult
from buoyline.offloader.lines import is_readable
from buoyline.offloader.protocol import StoredResult
from buoyline.offloader.source import BlockCutter, decoded
from buoyline.offloader.wrapping import view_blocks
from buoyline.workspace import layout
from buoyline.workspace._files import Handle, Tree
from buoyline.workspace.content import Measure
from buoyline.workspace.quotas import Allowance
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.results import Results, StagedResult
from buoyline.workspace.session import Session
from buoyline.workspace.sources import file_source

T = TypeVar("T")

MAX_REDACTED_BYTES = 64_000_000
"""A hook gets each text whole, so an output is held in memory for it; beyond this it is refused."""


class Sink(Protocol):
    """What takes the blocks of one result. Each method may block."""

    def append(self, block: bytes) -> None:
        """Take a block: whole lines, or a part of a long one."""
        ...

    def settle(self) -> None:
        """Do what takes long once all is there, before `store`."""
        ...

    def store(self, partial: str) -> StoredResult:
        """Make a result of it."""
        ...

    def discard(self) -> None:
        """Forget it; after `store`, what that has left."""
        ...


class Run(Protocol):
    """Runs work that may block, and waits for its end, even when cancelled."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run *work*."""
        ...


class StreamWriter:
    """Writes one result to a sink, by the megabyte; see `buoyline.offloader.ResultWriter`."""

    def __init__(self, call_id: str, sink: Sink, *, run: Run, run_in_order: Run) -> None:
        """Begin with nothing.

        Args:
            call_id: Of the call, for errors.
            sink: Takes what is written.
            run: Runs what concerns this result alone.
            run_in_order: Runs what concerns its session.
        """
        self._call_id = call_id
        self._sink = sink
        self._run, self._run_in_order = run, run_in_order
        self._cutter = BlockCutter()
        self._waiting: list[bytes] = []
        self._is_over = False

    async def write(self, chunk: str | bytes) -> None:
        """Take what comes next; most of it is written at once, the rest with what follows.

        Raises:
            ToolOutputError: It was stored or discarded already, or is more than a redaction hook can be given.
            QuotaExceededError: The session or the workspace would exceed its quota; all is discarded.
            StorageError: The file system refused; all is discarded.
        """
        self._require_open()
        content = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else bytes(chunk)
        self._waiting += self._cutter.take(content)
        if self._waiting:
            await self._guarded(self._run(self._append_waiting))

    async def store(self, *, partial: str = "") -> StoredResult:
        """Store what was written.

        Args:
            partial: Why it is not whole; empty where it is.

        Returns:
            Where it is, durably.

        Raises:
            ToolOutputError: It was stored or discarded already.
            BuoylineError: As `LocalWorkspace.store_result` does; all is discarded.
        """
        self._require_open()
        self._waiting.append(self._cutter.rest())
        await self._guarded(self._run(self._settle))
        stored = await self._guarded(self._run_in_order(lambda: self._sink.store(partial)))
        await self.discard()
        return stored

    async def discard(self) -> None:
        """Forget what was written and not stored."""
        if not self._is_over:
            self._is_over = True
            await _finished(self._run(self._sink.discard))

    async def __aenter__(self) -> Self:
        """Return the writer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Discard what was not stored."""
        await self.discard()

    def _append_waiting(self) -> None:
        # Not taken out before it is written: a call that is cancelled before it begins leaves it to the next one.
        while self._waiting:
            self._sink.append(self._waiting[0])
            del self._waiting[0]

    def _settle(self) -> None:
        self._append_waiting()
        self._sink.settle()

    async def _guarded(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.discard()
            raise

    def _require_open(self) -> None:
        if self._is_over:
            raise ToolOutputError(self._call_id, "it was stored or discarded already; begin a new one")


class FileSink:
    """Keeps a result in a file without a final name, and makes its view from there."""

    def __init__(
        self,
        session: Session,
        allowance: Allowance,
        prepare: Callable[[], None],
        publish: Callable[[StagedResult, str], StoredResult],
    ) -> None:
        """Write nothing yet.

        Args:
            session: Whose quota it counts against; it need not exist.
            allowance: Grants what is written.
            prepare: Makes sure that there is a workspace.
            publish: Gives the file its name, and says why it is partial.
        """
        self._tree = session.tree
        self._session = session
        self._allowance = allowance
        self._prepare = prepare
        self._publish = publish
        self._file = _StagedFile(self)
        self._view: _StagedFile | None = None
        self._granted_bytes = 0
        self._is_readable = True

    def open(self) -> tuple[str, Handle]:
        """Create a file without a final name."""
        self._prepare()
        return self._tree.stage(layout.SESSIONS)

    def grant(self, size_bytes: int) -> None:
        """Ask for room for *size_bytes* more.

        Raises:
            QuotaExceededError: There is none.
        """
        self._prepare()
        self._allowance.admit_staged(self._session, self._granted_bytes, size_bytes)
        self._granted_bytes += size_bytes

    def append(self, block: bytes) -> None:
        """Write *block* at the end."""
        self._file.append(block)
        self._is_readable = self._is_readable and is_readable(decoded(block))

    def settle(self) -> None:
        """Make the content durable, and that of its view."""
        self._file.sync()
        if self._is_readable or self._view is not None:
            return
        self._view = _StagedFile(self)
        source = file_source(self._tree, self._file.name)
        for block in view_blocks(source):
            self._view.append(block.encode("utf-8"))
        self._view.sync()

    def store(self, partial: str) -> StoredResult:
        """Publish both."""
        view = self._view
        staged = StagedResult(self._tree, self._file.name, self._file.measure())
        if view is not None:
            staged = StagedResult(
                self._tree, self._file.name, self._file.measure(), view.name, view.newlines, view.size_bytes
            )
        return self._publish(staged, partial)

    def discard(self) -> None:
        """Remove what has no final name, and close it."""
        for file in (self._file, *((self._view,) if self._view else ())):
            file.remove(self._tree)


class _StagedFile:
    """A file that grows, with what is known of its content."""

    def __init__(self, sink: FileSink) -> None:
        self.name = ""
        self.size_bytes = 0
        self.newlines = 0
        self._sink = sink
        self._handle: Handle | None = None
        self._digest = hashlib.sha256()
        self._last = b"\n"

    def append(self, block: bytes) -> None:
        self._sink.grant(len(block))
        handle = self._opened()
        handle.append(block)
        handle.write_back(self.size_bytes, len(block))
        self._digest.update(block)
        self.size_bytes += len(block)
        self.newlines += block.count(b"\n")
        self._last = block[-1:] or self._last

    def sync(self) -> None:
        self._opened().sync()

    def measure(self) -> Measure:
        lines = self.newlines + (self._last != b"\n")
        return Measure(self.size_bytes, self._digest.hexdigest(), lines, ((0, self.size_bytes),))

    def remove(self, tree: Tree) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None
            tree.remove(self.name)

    def _opened(self) -> Handle:
        if self._handle is None:
            self.name, self._handle = self._sink.open()
        return self._handle


class HeldSink:
    """Keeps a result in memory, where it is not to be written before all of it is known."""

    def __init__(self, call_id: str, keep: Callable[[bytes, str], StoredResult], max_bytes: int | None = None) -> None:
        """Give all of it to *keep*, with why it is partial; refuse more than *max_bytes*."""
        self._call_id = call_id
        self._keep = keep
        self._max_bytes = max_bytes
        self._blocks: list[bytes] = []
        self._size_bytes = 0

    def append(self, block: bytes) -> None:
        """Hold *block*.

        Raises:
            ToolOutputError: It is too much.
        """
        self._size_bytes += len(block)
        if self._max_bytes is not None and self._size_bytes > self._max_bytes:
            reason = (
                f"a redaction hook gets whole texts, and this one has more than {self._max_bytes:,} bytes; nothing was "
                "stored: redact it as it comes and use a workspace without the hook, or pass a smaller max_bytes"
            )
            raise ToolOutputError(self._call_id, reason)
        self._blocks.append(block)

    def settle(self) -> None:
        """Do nothing."""

    def store(self, partial: str) -> StoredResult:
        """Hand it over."""
        return self._keep(b"".join(self._blocks), partial)

    def discard(self) -> None:
        """Let go of it."""
        self._blocks.clear()


def sink_for(
    results: Results,
    call_id: str,
    *,
    session: Session,
    allowance: Allowance,
    redaction: Redaction,
    prepare: Callable[[], None],
) -> Sink:
    """Return what takes one of the *results* of *session*: a file, or memory where a hook has to see all of it first.

    Args:
        results: Of the session.
        call_id: The id of the call.
        session: Whose quota it counts against.
        allowance: Grants what is written.
        redaction: Has the hook.
        prepare: Makes sure that there is a workspace.
    """
    if not redaction.is_active:
        return FileSink(session, allowance, prepare, lambda staged, partial: results.publish(call_id, staged, partial))

    def keep(content: bytes, _: str) -> StoredResult:
        redacted = redaction.result(as_result(call_id, content))
        prepare()
        return results.store(redacted)

    return HeldSink(call_id, keep, MAX_REDACTED_BYTES)


async def done(work: Callable[[], T]) -> T:
    """Run *work*, which takes no time worth a thread."""
    return work()


def as_result(call_id: str, content: bytes) -> ToolResult:
    """Return a tool result that says *content*, as it is shown, for a hook that takes texts."""
    return ToolResult(call_id, "", (Text(decoded(content)),))


def refuse_partial() -> None:
    """Say why there are no partial outputs where a hook redacts: an output may end in the middle of a secret.

    Raises:
        ConfigError: Always.
    """
    reason = "what a tool gave until it was stopped may end within a secret, which no redaction hook would know"
    raise ConfigError("keep_partial", f"{reason}; leave it out")


async def _finished(work: Awaitable[T]) -> T:
    """Wait for the end of *work* before a cancellation is let through."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise
