"""What a workspace promises over a crash: public calls, and checks of each state that they may leave."""

import base64
import hashlib
import shutil
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Self

from crash_states import ROOT, Crash, Disk, Killed, Mark, Operation, Recorder, State, Sync, crashes, scanned

from buoyline.errors import NotFoundError, StaleWindowError
from buoyline.maintenance.verify import verify
from buoyline.messages import Media, Text, ToolResult, times
from buoyline.offloader import ModelCall
from buoyline.offloader.view import view_of
from buoyline.workspace import LocalWorkspace

WORKDIR = "workspace"
SESSION = "s1"

LEFT_BY_A_POWER_CUT = frozenset({"bad-last-record", "unfinished-batch", "stale-transcript"})
"""Warnings that docs/format.md foresees until the next writer has come."""


@dataclass(frozen=True)
class Contents:
    """What a session holds, as far as callers can tell."""

    messages: tuple[Any, ...] = ()
    results: frozenset[str] = frozenset()
    stubs: frozenset[str] = frozenset()
    summaries: tuple[str, ...] = ()
    window: tuple[Any, ...] | None = None
    head: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """One call of a workspace's public methods."""

    @property
    def is_durable(self) -> bool:
        """Tell whether what it did is durable when it is acknowledged, or only with the next call that is."""
        return True

    async def run(self, workspace: LocalWorkspace) -> None:
        """Make the call."""
        raise NotImplementedError

    def after(self, contents: Contents) -> Contents:
        """Return what *contents* become."""
        return contents

    def under_way(self, contents: Contents) -> list[Contents]:
        """Return what may be seen of the call before it is acknowledged."""
        return [contents, self.after(contents)]

    async def repeat(self, workspace: LocalWorkspace, seen: Contents) -> None:
        """Make the call once more, as somebody does who does not know what became of it and has *seen* this."""
        await self.run(workspace)

    async def confirm(self, workspace: LocalWorkspace) -> None:
        """Make sure of what `Contents` do not tell."""


@dataclass(frozen=True)
class Open(Call):
    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.initialize()


@dataclass(frozen=True)
class Archive(Call):
    messages: tuple[Any, ...]
    batch_id: str = ""

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.archive(SESSION, self.messages, batch_id=self.batch_id)

    def after(self, contents: Contents) -> Contents:
        return replace(contents, messages=contents.messages + self.messages)


@dataclass(frozen=True)
class Repetition(Call):
    """The same batch right after itself: it is in the archive already."""

    archive: Archive

    async def run(self, workspace: LocalWorkspace) -> None:
        await self.archive.run(workspace)


@dataclass(frozen=True)
class Store(Call):
    call_id: str
    text: str
    picture: bytes = b""

    @property
    def result(self) -> ToolResult:
        pictures = (Media("image", "image/png", len(self.picture), payload=self.picture),) if self.picture else ()
        return ToolResult(self.call_id, "tool", (Text(self.text), *pictures))

    async def run(self, workspace: LocalWorkspace) -> None:
        stored = await workspace.store_result(SESSION, self.result)
        assert Path(stored.reference).read_text("utf-8") == self.text
        assert (Path(stored.view).read_text("utf-8") if stored.view else None) == view_of(self.text)
        assert [Path(part.reference).read_bytes() for part in stored.parts[1:]] == [self.picture] * bool(self.picture)

    def after(self, contents: Contents) -> Contents:
        return replace(contents, results=contents.results | {self.text})


@dataclass(frozen=True)
class Stream(Store):
    """A result that comes piece by piece."""

    async def run(self, workspace: LocalWorkspace) -> None:
        middle = len(self.text) // 2
        stored = await workspace.store_stream(SESSION, self.call_id, [self.text[:middle], self.text[middle:]])
        assert Path(stored.reference).read_text("utf-8") == self.text
        assert (Path(stored.view).read_text("utf-8") if stored.view else None) == view_of(self.text)


@dataclass(frozen=True)
class Stub(Call):
    stub: str
    stored: Store

    @property
    def is_durable(self) -> bool:
        return False

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.record_stub(SESSION, self.stub, await workspace.store_result(SESSION, self.stored.result))

    def after(self, contents: Contents) -> Contents:
        return replace(contents, stubs=contents.stubs | {self.stub})


@dataclass(frozen=True)
class Summarize(Call):
    text: str

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.append_summary(SESSION, {"text": self.text})

    async def repeat(self, workspace: LocalWorkspace, seen: Contents) -> None:
        # A summary has no id. Whoever sees it goes on, and the next call that is acknowledged vouches for it, too.
        await (OLD if self.text in seen.summaries else self).run(workspace)

    def after(self, contents: Contents) -> Contents:
        return replace(contents, summaries=(*contents.summaries, self.text))


@dataclass(frozen=True)
class Start(Call):
    settings: dict[str, Any]

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.start_window(SESSION, self.settings, writer="first")

    def after(self, contents: Contents) -> Contents:
        return replace(contents, window=(), head=())

    async def confirm(self, workspace: LocalWorkspace) -> None:
        assert (await workspace.load_window(SESSION)).settings == self.settings


CALLS = [ModelCall("2026-05-01T12:00:00.000Z", 3, {"messages": 70}, {"input_tokens": 90}, "a-model")]


@dataclass(frozen=True)
class Extend(Call):
    messages: tuple[Any, ...]

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.extend_window(SESSION, self.messages, [], calls=CALLS)

    def after(self, contents: Contents) -> Contents:
        return self.under_way(contents)[-1]

    def under_way(self, contents: Contents) -> list[Contents]:
        missing, there = self._missing(contents), contents.window or ()
        return [replace(contents, window=(*there, *missing[:count])) for count in range(len(missing) + 1)]

    async def repeat(self, workspace: LocalWorkspace, seen: Contents) -> None:
        await replace(self, messages=self._missing(seen)).run(workspace)

    def _missing(self, contents: Contents) -> tuple[Any, ...]:
        """Return those that are not there yet: what a crash left of the call may be a part of it."""
        return self.messages[sum(message in self.messages for message in contents.window or ()) :]


@dataclass(frozen=True)
class Replace(Call):
    messages: tuple[Any, ...]
    head: tuple[str, ...]

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.replace_window(SESSION, self.messages, self.head, 0, [], calls=CALLS)

    def after(self, contents: Contents) -> Contents:
        return replace(contents, window=self.messages, head=self.head)


@dataclass(frozen=True)
class Claim(Call):
    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.claim_window(SESSION, writer="second")

    async def confirm(self, workspace: LocalWorkspace) -> None:
        try:
            await workspace.extend_window(SESSION, [], [], writer="first")
        except StaleWindowError:
            return
        raise AssertionError("the one before was not refused")


@dataclass(frozen=True)
class Again(Call):
    """A call that a process repeats after another one came to its end in the middle of it."""

    call: Call
    before: Contents
    seen: Contents = field(repr=False)

    @property
    def is_durable(self) -> bool:
        return self.call.is_durable

    async def run(self, workspace: LocalWorkspace) -> None:
        await self.call.repeat(workspace, self.seen)

    async def repeat(self, workspace: LocalWorkspace, seen: Contents) -> None:
        await self.call.repeat(workspace, seen)

    def after(self, contents: Contents) -> Contents:
        # A stub that was recorded before the call may be gone: it becomes durable with the next commit only.
        done = self.call.after(self.before)
        return replace(done, stubs=contents.stubs | (done.stubs - self.before.stubs))

    def under_way(self, contents: Contents) -> list[Contents]:
        found = self.call.under_way(replace(self.before, stubs=self.before.stubs & contents.stubs))
        return [contents, *found, self.after(contents)]

    async def confirm(self, workspace: LocalWorkspace) -> None:
        await self.call.confirm(workspace)


@dataclass(frozen=True)
class Scenario:
    """*calls* whose crash states are looked at, after others that are durable *before*."""

    calls: tuple[Call, ...]
    before: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Recording:
    """What was done for *calls*.

    Attributes:
        start: What was on the disk before, all of it durable.
        past: What a process did that was killed then.
        operations: What was done, with marks where a call began and where it was acknowledged.
        calls: In order.
        before: What the session may have held before, each as good as the others.
        torn: What had been set aside at the end.
        is_cut_at_the_end: The power only fails when all calls were acknowledged.
    """

    start: Disk
    operations: tuple[Operation, ...]
    calls: tuple[Call, ...]
    before: tuple[Contents, ...]
    past: tuple[Operation, ...] = ()
    torn: frozenset[bytes] = frozenset()
    is_cut_at_the_end: bool = False

    def due_syncs(self) -> dict[str, list[int]]:
        """Return the places of the syncs that made something durable, by the file or directory of each.

        One without a name at the end was never more than a temporary.
        """
        disk, found = self.start.copy(), dict[str, list[int]]()
        final = self.start.copy()
        final.apply(*self.past, *self.operations)
        names = {node: path for path, node in final.cached().paths()} | {ROOT: "."}
        disk.apply(*self.past)
        for place, operation in enumerate(self.operations):
            if isinstance(operation, Sync) and operation.node in names and disk.is_due(operation):
                found.setdefault(names[operation.node], []).append(place)
            disk.apply(operation)
        return found

    def without(self, places: Sequence[int]) -> "Recording":
        """Return the same without the operations at some places."""
        kept = (operation for place, operation in enumerate(self.operations) if place not in places)
        return replace(self, operations=tuple(kept))

    def question(self, crash: Crash) -> bytes:
        """Return what two crashes have in common of which `check` asks the same."""
        asked = hashlib.sha256(crash.state.digest())
        outcomes = sorted({repr(found) for found in self.outcomes(crash.acknowledged, crash.begun)})
        calls = self.calls[: crash.acknowledged], self.calls[crash.acknowledged : crash.begun]
        asked.update(repr((outcomes, calls, sorted(self.torn))).encode())
        return asked.digest()

    def crashes(self, limit: int, seen: set[bytes] | None = None) -> Iterator[Crash]:
        """Yield each outcome of a crash; see `crash_states.crashes`."""
        disk, operations = self.start.copy(), self.operations
        disk.apply(*self.past)
        if self.is_cut_at_the_end:
            disk.apply(*operations)
            last = len(self.calls) - 1
            operations = (Mark(last, is_acknowledged=True),)
            return (crash for crash in crashes(disk, operations, limit, seen) if crash.acknowledged > last)
        return crashes(disk, operations, limit, seen)

    def outcomes(self, acknowledged: int, begun: int) -> list[Contents]:
        """Return what the session may hold when so many calls were acknowledged and so many had begun."""
        possible = list(self.before)
        for number, call in enumerate(self.calls[:acknowledged]):
            is_loose = not any(other.is_durable for other in self.calls[number:acknowledged])
            possible = [call.after(found) for found in possible] + (possible if is_loose else [])
        for call in self.calls[acknowledged:begun]:
            possible = [seen for found in possible for seen in call.under_way(found)]
        return possible


async def recorded(scenario: Scenario, folder: Path) -> Recording:
    """Make the calls of *scenario* in *folder* and return what was done."""
    contents = await prepared(scenario, folder)
    state, nodes = scanned(folder)
    return await record(folder, nodes, Disk(state), scenario.calls, (contents,))


async def prepared(scenario: Scenario, folder: Path) -> Contents:
    """Make in the new *folder* the calls that come before, and return what the session holds then."""
    folder.mkdir()
    contents = Contents()
    workspace = opened(folder)
    for call in scenario.before:
        await call.run(workspace)
        contents = call.after(contents)
    await workspace.close()
    return contents


async def record(
    folder: Path,
    nodes: dict[tuple[int, int], int],
    disk: Disk,
    calls: tuple[Call, ...],
    before: tuple[Contents, ...],
    *,
    process: int = 0,
    killed_after: int | None = None,
    workspace: LocalWorkspace | None = None,
) -> Recording:
    """Make *calls* in *folder*, which is as *disk* says, from a new process as it were, or with *workspace*."""
    workspace = workspace or opened(folder, durability="fsync")
    recorder = Recorder(nodes, disk.next_node, process=process, killed_after=killed_after)
    with recorder, suppress(Killed):
        recorder.put(times, "datetime", Noon)
        for number, call in enumerate(calls):
            recorder.mark(number, is_acknowledged=False)
            await call.run(workspace)
            recorder.mark(number, is_acknowledged=True)
    await workspace.close()
    end = disk.copy()
    end.apply(*recorder.operations)
    assert end.cached().tree() == scanned(folder)[0].tree(), "something was done that was not recorded"
    return Recording(disk, tuple(recorder.operations), calls, before, torn=set_aside(folder))


class Noon(datetime):
    """A clock that stands, so that what is done twice gives the same bytes."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Return noon."""
        return cls(2026, 1, 1, 12, tzinfo=tz)


async def recorded_after_kill(
    scenario: Scenario, killed_after: int, folder: Path, *, other: Call | None, is_at_work: bool = False
) -> Recording:
    """Return what the next process does when the first was killed in the midst of the calls of *scenario*.

    What the first one did not sync is still not durable: the power may fail any time later.

    Args:
        scenario: What the first process does.
        killed_after: After so many operations.
        folder: New, to work in.
        other: What the next process calls; None lets it repeat what was under way.
        is_at_work: The next process has looked at the session before the first began.
    """
    contents = await prepared(scenario, folder)
    state, nodes = scanned(folder)
    second = opened(folder, durability="fsync")
    if is_at_work:
        await (OLD if OLD in scenario.before else scenario.before[0]).run(second)  # it is there already
    first = await record(folder, nodes, Disk(state), scenario.calls, (contents,), killed_after=killed_after)
    marks = [operation for operation in first.operations if isinstance(operation, Mark)]
    begun, acknowledged = (sum(mark.is_acknowledged is done for mark in marks) for done in (False, True))
    before, seen = tuple(first.outcomes(acknowledged, begun)), await observed(folder)
    assert seen in before
    if other is None:
        other = Again(scenario.calls[begun - 1], first.outcomes(begun - 1, begun - 1)[0], seen) if begun else LATER
    disk = Disk(state, first.operations)
    again = await record(folder, nodes, disk, (other,), before, process=1, workspace=second)
    return replace(again, start=Disk(state), past=first.operations, is_cut_at_the_end=True)


async def recorded_after_crash(recording: Recording, crash: Crash, folder: Path) -> Recording:
    """Return what the next process does to repeat what was under way when the crash came."""
    with built(crash.state, folder):
        seen = await observed(folder)
    nodes = crash.state.build(folder)
    number = max(crash.begun - 1, 0)
    call = Again(recording.calls[number], recording.outcomes(number, number)[0], seen)
    return await record(folder, nodes, Disk(crash.state), (call,), (seen,), process=1)


async def check(recording: Recording, crash: Crash, folder: Path) -> None:
    """Make sure that a crash broke no promise, whatever is done next.

    Raises:
        AssertionError: A promise is broken.
        BuoylineError: A call that should succeed does not.
    """
    acknowledged = recording.calls[: crash.acknowledged]
    with built(crash.state, folder):
        seen = await observed(folder)
        outcomes = recording.outcomes(crash.acknowledged, crash.begun)
        assert seen in outcomes, "what was acknowledged, and whole calls only"
        check_findings(folder)
        await confirm(folder, acknowledged)
        await go_on(folder, [seen])
        check_recorded(folder, acknowledged)
    if not crash.begun:
        return
    call = recording.calls[crash.begun - 1]
    if crash.acknowledged < crash.begun:
        ends = [call.after(found) for found in recording.outcomes(crash.acknowledged, crash.acknowledged)]
    else:
        ends = [seen if call.is_durable else call.after(seen)]
    with built(crash.state, folder):
        async with opened(folder) as workspace:
            await call.repeat(workspace, seen)
        await confirm(folder, recording.calls[: crash.begun])
        await go_on(folder, ends)
        if crash.begun == len(recording.calls):
            assert recording.torn <= set_aside(folder), "torn bytes are kept"


def check_findings(folder: Path) -> None:
    """Make sure that verification calls nothing damaged that a crash left."""
    with suppress(NotFoundError):
        for found in verify(opened(folder)).findings:
            assert found.severity == "note" or found.kind in LEFT_BY_A_POWER_CUT, found


def check_recorded(folder: Path, acknowledged: Sequence[Call]) -> None:
    """Make sure that the results that were acknowledged have their records, also when the next writer has come."""
    calls = [call.call if isinstance(call, Again) else call for call in acknowledged]
    texts = {call.text for call in calls if isinstance(call, Store)}
    for found in verify(opened(folder)).findings if texts else ():
        if found.kind == "unrecorded-result":
            assert (folder / WORKDIR / found.path).read_text("utf-8") not in texts, found


async def confirm(folder: Path, calls: Sequence[Call]) -> None:
    """Make sure of what the acknowledged *calls* promise besides `Contents`."""
    async with opened(folder) as workspace:
        for call in calls:
            await call.confirm(workspace)


async def go_on(folder: Path, ends: Sequence[Contents]) -> None:
    """Make sure that the next call succeeds and finds one of *ends* before it, and that all is well then."""
    async with opened(folder) as workspace:
        await LATER.run(workspace)
    assert await observed(folder) in [LATER.after(end) for end in ends]
    findings = [finding for finding in verify(opened(folder)).findings if finding.severity != "note"]
    assert findings == [], findings


async def observed(folder: Path) -> Contents:
    """Return what a reader finds."""
    workspace = opened(folder)
    results = [path for path in session_files(folder, "tool_result-*.txt") if not path.name.endswith(".view.txt")]
    window = await found_or(None, workspace.load_window(SESSION))
    messages = await found_or([], workspace.load_messages(SESSION, 0, 1 << 30))
    found = Contents(
        messages=tuple(message for _, message in messages),
        results=frozenset(path.read_text("utf-8") for path in results),
        stubs=frozenset(await found_or({}, workspace.load_stubs(SESSION, [STUB]))),
        summaries=tuple(summary["text"] for summary in await found_or([], workspace.load_summaries(SESSION))),
        window=None if window is None else tuple(message for _, message in window.messages),
        head=() if window is None else window.head,
    )
    await workspace.close()
    return found


async def found_or(default: Any, found: Awaitable[Any]) -> Any:
    """Return what is found; *default* where nothing is there."""
    try:
        return await found
    except NotFoundError:
        return default


def opened(folder: Path, durability: str = "off") -> LocalWorkspace:
    return LocalWorkspace(folder / WORKDIR, durability=durability)


def session_files(folder: Path, pattern: str) -> Iterator[Path]:
    return (folder / WORKDIR / "sessions" / SESSION).glob(pattern)


def set_aside(folder: Path) -> frozenset[bytes]:
    return frozenset(path.read_bytes() for path in session_files(folder, "torn/[!.]*"))


@contextmanager
def built(state: State, folder: Path) -> Iterator[None]:
    """Put *state* into *folder* for as long as the block runs."""
    state.build(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder)


SMALL = {"role": "user", "content": "one"}
NEXT = {"role": "user", "content": "next"}
LARGE = tuple({"role": "assistant", "content": f"{word} " * 130} for word in ("two", "three"))
PICTURE = base64.b64encode(bytes(range(256)) * 3).decode()
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
STUB = "[the output is in a file]"
STUBBED = {"role": "tool", "tool_call_id": "c1", "content": STUB}
TEXT = "a line of output\n" * 50
ROWS = '{"rows": [' + "12345, " * 200 + "0]}"
SETTINGS = {"size": 4000, "system": "be brief " * 80}

LATER = Archive(({"role": "user", "content": "and later"},), "later")
OLD = Archive(({"role": "user", "content": "zero"},), "old")
WINDOW = (Start(SETTINGS), Extend((SMALL,)))

SCENARIOS = {
    "the first call of a workspace": Scenario((Archive((SMALL,), "a"),)),
    "the first call of a session": Scenario((Archive((SMALL,)),), (Open(),)),
    "one message": Scenario((Archive((SMALL,)),), (OLD,)),
    "several messages": Scenario((Archive((SMALL, NEXT, LARGE[0]), "a"),), (OLD,)),
    "two batches": Scenario((Archive((SMALL,)), Archive(LARGE[:1], "b")), (OLD,)),
    "a batch and its repetition": Scenario((Archive(LARGE[:1], "a"), Repetition(Archive(LARGE[:1], "a"))), (OLD,)),
    "a payload": Scenario((Archive(({"role": "user", "content": [SEEN]},), "a"),), (OLD,)),
    "a tool result": Scenario((Store("c1", TEXT),), (OLD,)),
    "a tool result with a view": Scenario((Store("c1", ROWS),), (OLD,)),
    "a tool result with a picture": Scenario((Store("c1", TEXT, b"picture" * 99),), (OLD,)),
    "another tool result of the same call": Scenario((Store("c1", TEXT),), (OLD, Store("c1", "short"))),
    "a result that is streamed": Scenario((Stream("c1", TEXT),), (OLD,)),
    "a result with a view that is streamed": Scenario((Stream("c1", ROWS),), (OLD,)),
    "a stub and its message": Scenario((Stub(STUB, Store("c1", TEXT)), Archive((STUBBED,))), (OLD, Store("c1", TEXT))),
    "the first summary": Scenario((Summarize("short " * 150),), (OLD,)),
    "the second summary": Scenario((Summarize("short " * 150),), (Summarize("first"), OLD)),
    "a window": Scenario((Start(SETTINGS),), (Open(),)),
    "messages of a window": Scenario((Extend((NEXT, *LARGE)),), WINDOW),
    "a window after a compaction": Scenario((Replace(LARGE, ("summary",)),), (*WINDOW, OLD)),
    "a window that is taken over": Scenario((Claim(),), WINDOW),
}
