"""What a workspace promises over a crash: calls that are recorded, and checks of each state that they may leave."""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Self, TypeVar

from crash_states import ROOT, Crash, Disk, Entries, Mark, Operation, Recorder, Replay, State, Sync, crashes, scanned

from buoyline.errors import BuoylineError, CorruptError, NotFoundError, StaleWindowError
from buoyline.maintenance.verify import verify
from buoyline.messages import Media, Text, ToolResult, times
from buoyline.offloader import ModelCall
from buoyline.offloader.view import view_of
from buoyline.workspace import LocalWorkspace, session
from buoyline.workspace.pool import WorkerPool

T = TypeVar("T")

WORKDIR = "workspace"
SESSION = "s1"
PACKAGE = str(Path(session.__file__).parent)

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
class Look(Call):
    """A writer takes in what there is, and writes nothing."""

    async def run(self, workspace: LocalWorkspace) -> None:
        await workspace.initialize()
        with workspace.session(SESSION).writing():
            pass


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
        view = view_of(self.text)
        assert (Path(stored.view).read_text("utf-8") if stored.view else None) == view
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
        view = view_of(self.text)
        assert (Path(stored.view).read_text("utf-8") if stored.view else None) == view


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
        facts = facts_of(self.text) if WITH_FACTS in self.text else {}
        await workspace.append_summary(SESSION, {"text": self.text, **facts})

    async def repeat(self, workspace: LocalWorkspace, seen: Contents) -> None:
        if self.text not in seen.summaries:
            await self.run(workspace)
        else:
            # A summary has no id. Whoever sees it goes on, and the next call that is acknowledged vouches for it, too.
            await OLD.run(workspace)

    def after(self, contents: Contents) -> Contents:
        return replace(contents, summaries=(*contents.summaries, self.text))


WITH_FACTS = "with facts"


def facts_of(text: str) -> dict[str, Any]:
    """Return the facts of the summary with this text; no other summary has them."""
    return {"items": [{"text": f"{number} {text}"} for number in range(9)], "work": {"plan": [text]}}


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


STUB = "[the output is in a file]"
LATER = Archive(({"role": "user", "content": "and later"},), "later")


@dataclass(frozen=True)
class Scenario:
    """Calls whose crash states are looked at, after others that are durable before.

    Attributes:
        calls: In order.
        before: In order.
        damage: Done to the session's directory before *calls*; then the archive cannot be read.
        instead: What may be called after a crash, too, in the place of a repetition.
    """

    calls: tuple[Call, ...]
    before: tuple[Call, ...] = ()
    damage: Callable[[Path], object] | None = None
    instead: Call | None = None


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


def repeated(call: Call) -> Call:
    """Return the call that *call* repeats, or itself."""
    return repeated(call.call) if isinstance(call, Again) else call


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
        is_damaged: The archive could not be read before.
        is_cut_at_the_end: The power only fails when all calls were acknowledged.
    """

    start: Disk
    operations: tuple[Operation, ...]
    calls: tuple[Call, ...]
    before: tuple[Contents, ...]
    past: tuple[Operation, ...] = ()
    torn: frozenset[bytes] = frozenset()
    is_damaged: bool = False
    is_cut_at_the_end: bool = False

    def syncs(self) -> dict[Sync, str]:
        """Return every sync with the name that its file or directory has in every scenario; empty for a temporary."""
        final = self.start.copy()
        final.apply(*self.past, *self.operations)
        state = final.cached()
        names = {node: path.removeprefix(WORKDIR) for path, node in state.paths()} | {ROOT: "/.."}
        found: dict[Sync, str] = {}
        for operation in (*self.past, *self.operations):
            if isinstance(operation, Sync):
                end = "/" if operation.node in state.directories else ""
                found[operation] = synced_name(names.get(operation.node, "/(gone)") + end)
        return found

    def without(self, left_out: Collection[Sync]) -> "Recording":
        """Return the same without some of its syncs."""

        def kept(operations: Iterable[Operation]) -> tuple[Operation, ...]:
            return tuple(operation for operation in operations if operation not in left_out)

        return replace(self, past=kept(self.past), operations=kept(self.operations))

    def question(self, crash: Crash) -> bytes:
        """Return what two crashes have in common of which `check` asks the same."""
        asked = hashlib.sha256(crash.state.digest())
        outcomes = sorted({repr(found) for found in self.outcomes(crash.acknowledged, crash.begun)})
        calls = self.calls[: crash.acknowledged], self.calls[crash.acknowledged : crash.begun]
        asked.update(repr((outcomes, calls, self.is_damaged, sorted(self.torn))).encode())
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

    def killed(self, place: int) -> tuple[Disk, int, int]:
        """Return the disk after the operation at *place*, and how many calls were acknowledged and begun."""
        disk = self.start.copy()
        disk.apply(*self.past, *self.operations[: place + 1])
        marks = [operation for operation in self.operations[: place + 1] if isinstance(operation, Mark)]
        return disk, sum(mark.is_acknowledged for mark in marks), sum(not mark.is_acknowledged for mark in marks)

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
    folder.mkdir()
    contents = Contents()
    workspace = opened(folder)
    for call in scenario.before:
        await call.run(workspace)
        contents = call.after(contents)
    if scenario.damage is not None:
        scenario.damage(folder / WORKDIR / "sessions" / SESSION)
    state, nodes = scanned(folder)
    made = await record(folder, nodes, Disk(state), scenario.calls, (contents,))
    return replace(made, is_damaged=scenario.damage is not None)


async def record(
    folder: Path,
    nodes: dict[tuple[int, int], int],
    disk: Disk,
    calls: tuple[Call, ...],
    before: tuple[Contents, ...],
    *,
    process: int = 0,
    workspace: LocalWorkspace | None = None,
) -> Recording:
    """Make *calls* in *folder*, which is as *disk* says, from a new process as it were, or with *workspace*."""
    workspace = workspace or opened(folder, durability="fsync")
    recorder = Recorder(
        nodes, disk.next_node, process=process, package=PACKAGE, inner=("descriptors.py", "local_tree.py", "commit.py")
    )
    with recorder:
        recorder.put(times, "datetime", Noon)
        for number, call in enumerate(calls):
            recorder.mark(number, is_acknowledged=False)
            await call.run(workspace)
            recorder.mark(number, is_acknowledged=True)
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
    recording: Recording, place: int, folder: Path, *, other: Call | None, is_at_work: bool = False
) -> Recording:
    """Return what the next process does where the first was killed behind the operation at *place*.

    What the first one did not sync is still not durable: the power may fail any time later.

    Args:
        recording: Of the first process.
        place: Among its operations.
        folder: New, to work in.
        other: What the next process calls; None lets it repeat what was under way.
        is_at_work: The next process has looked at the session before the first began.
    """
    disk, acknowledged, begun = recording.killed(place)
    before = tuple(recording.outcomes(acknowledged, begun))
    with built(disk.cached(), folder):
        seen = await observed(folder)
    assert recording.is_damaged or seen in before
    if other is None and begun:
        other = Again(recording.calls[begun - 1], recording.outcomes(begun - 1, begun - 1)[0], seen)
    past = (*recording.past, *recording.operations[: place + 1])
    if not is_at_work:
        again = await record(folder, disk.cached().build(folder), disk, (other or LATER,), before, process=1)
        return replace(again, start=recording.start, past=past, is_cut_at_the_end=True)
    nodes = recording.start.cached().build(folder)
    workspace = opened(folder, durability="fsync")
    looked = await record(folder, nodes, recording.start, (Look(),), before, process=2, workspace=workspace)
    Replay(folder, nodes).do(*past)
    again = await record(folder, nodes, disk, (other or LATER,), before, process=1, workspace=workspace)
    return replace(again, start=recording.start, past=(*looked.operations, *past), is_cut_at_the_end=True)


async def recorded_after_loss(recording: Recording, place: int, folder: Path, *, other: Call) -> Recording:
    """Return what the next process does where the first was killed likewise, and the journal was lost then.

    The power fails once there is a journal again: before, what the first one did not sync is in no journal at all.
    """
    disk, acknowledged, begun = recording.killed(place)
    above = dict(disk.cached().paths())[f"{WORKDIR}/sessions/{SESSION}"]
    loss = (Entries(above, (("journal.jsonl", None),)), Sync(above))
    disk.apply(*loss)
    before = recording.outcomes(acknowledged, begun)[-1]
    again = await record(folder, disk.cached().build(folder), disk, (other,), (before,), process=1)
    rebuilt = 1 + next(n for n, o in enumerate(again.operations) if isinstance(o, Entries) and o.names("journal.jsonl"))
    begin = [operation for operation in again.operations[:rebuilt] if isinstance(operation, Mark)]
    past = (*recording.past, *recording.operations[: place + 1], *loss, *again.operations[:rebuilt])
    return replace(
        again, start=recording.start, past=past, operations=(*begin, *again.operations[rebuilt:]), is_damaged=True
    )


async def recorded_after_crash(
    recording: Recording, crash: Crash, folder: Path, *, instead: Call | None = None
) -> Recording:
    """Return what the next process does to repeat what was under way when the crash came, or calls *instead*."""
    with built(crash.state, folder):
        seen = await observed(folder)
    nodes = crash.state.build(folder)
    number = max(crash.begun - 1, 0)
    before = recording.outcomes(number, number)[0]
    # With a damaged archive, a reader does not see what only the next writer's recovery brings back.
    bases = tuple(recording.outcomes(number, crash.begun)) if recording.is_damaged else (seen,)
    calls = (instead or Again(recording.calls[number], before, seen),)
    again = await record(folder, nodes, Disk(crash.state), calls, bases, process=1)
    return replace(again, is_damaged=recording.is_damaged)


async def check(recording: Recording, crash: Crash, folder: Path) -> None:
    """Make sure that a crash broke no promise, whatever is done next.

    Raises:
        AssertionError: A promise is broken.
        BuoylineError: A call that should succeed does not.
    """
    outcomes = recording.outcomes(crash.acknowledged, crash.begun)
    with built(crash.state, folder):
        seen = await observed(folder)
        if recording.is_damaged:
            assert any(found.messages[: len(seen.messages)] == seen.messages for found in outcomes)
        else:
            assert seen in outcomes, "what was acknowledged, and whole calls only"
            check_findings(folder)
        await confirm(folder, recording.calls[: crash.acknowledged])
        await go_on(folder, outcomes if recording.is_damaged else [seen])
        check_recorded(folder, recording.calls[: crash.acknowledged])
    if not crash.begun:
        return
    call = recording.calls[crash.begun - 1]
    if crash.acknowledged < crash.begun:
        ends = [call.after(found) for found in recording.outcomes(crash.acknowledged, crash.acknowledged)]
    else:
        ends = [seen if call.is_durable else call.after(seen)]
    with built(crash.state, folder):
        workspace = opened(folder)
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
    texts = {call.text for call in map(repeated, acknowledged) if isinstance(call, Store)}
    for found in verify(opened(folder)).findings if texts else ():
        if found.kind == "unrecorded-result":
            assert (folder / WORKDIR / found.path).read_text("utf-8") not in texts, found


async def confirm(folder: Path, calls: Sequence[Call]) -> None:
    """Make sure of what the acknowledged *calls* promise besides `Contents`."""
    workspace = opened(folder)
    for call in calls:
        await call.confirm(workspace)


async def go_on(folder: Path, ends: Sequence[Contents]) -> None:
    """Make sure that the next call succeeds and finds one of *ends* before it, and that all is well then."""
    workspace = opened(folder)
    await LATER.run(workspace)
    found = await observed(folder)
    assert found in [LATER.after(end) for end in ends]
    lines = (folder / WORKDIR / "sessions" / SESSION / "context.jsonl").read_bytes().splitlines()
    assert len(lines) == len(found.messages)
    assert all(isinstance(json.loads(line), dict) for line in lines)
    findings = [finding for finding in verify(opened(folder)).findings if finding.severity != "note"]
    assert findings == [], findings


async def observed(folder: Path) -> Contents:
    """Return what a reader finds."""
    workspace = opened(folder)
    results = [path for path in session_files(folder, "tool_result-*.txt") if not path.name.endswith(".view.txt")]
    window = await found_or(None, workspace.load_window(SESSION))
    messages = await found_or([], workspace.load_messages(SESSION, 0, 1 << 30))
    return Contents(
        messages=tuple(message for _, message in messages),
        results=frozenset(path.read_text("utf-8") for path in results),
        stubs=frozenset(await found_or({}, workspace.load_stubs(SESSION, [STUB]))),
        summaries=texts_of(await found_or([], workspace.load_summaries(SESSION))),
        window=None if window is None else tuple(message for _, message in window.messages),
        head=() if window is None else window.head,
    )


def texts_of(summaries: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the texts of *summaries*, of which the last two have the facts that they were stored with."""
    for summary in summaries[-2:]:
        assert {key: summary[key] for key in ("items", "work") if key in summary} == (
            facts_of(summary["text"]) if WITH_FACTS in summary["text"] else {}
        )
    return tuple(summary["text"] for summary in summaries)


async def found_or(default: Any, found: Awaitable[Any]) -> Any:
    """Return what is found; *default* where nothing is there, or a lost journal keeps readers from knowing."""
    try:
        return await found
    except NotFoundError:
        return default
    except CorruptError as error:
        if "is gone" in error.reason:
            return default
        raise


class AtOnce(WorkerPool):
    """Lanes without threads: each of thousands of workspaces would start three, which took half of the time."""

    def submit(self, key: str, work: Callable[[], T]) -> Future[T]:
        """Run *work* in the thread that asks for it."""
        done: Future[T] = Future()
        try:
            done.set_result(work())
        except BuoylineError as error:
            done.set_exception(error)
        return done


def opened(folder: Path, durability: str = "off") -> LocalWorkspace:
    workspace = LocalWorkspace(folder / WORKDIR, durability=durability)
    workspace._pool = AtOnce()
    return workspace


def session_files(folder: Path, pattern: str) -> Iterator[Path]:
    return (folder / WORKDIR / "sessions" / SESSION).glob(pattern)


def synced_name(path: str) -> str:
    """Return what *path* is called in every scenario."""
    name = path.replace(f"/sessions/{SESSION}/", "") or "session/"
    for pattern, kind in NAMES.items():
        name = re.sub(pattern, kind, name)
    return name


NAMES = {
    r"^/data/\w.*[^/]$": "(blob)",
    r"^torn/.*[^/]$|^/data/torn/.*[^/]$": "(torn bytes)",
    r"^tool_result-.*\.view\.txt$": "(view)",
    r"^tool_result-.*\.txt$": "(result)",
    r"^facts-\d+\.jsonl$": "(facts)",
    r".*\.tmp-.*|.*\(gone\).*": "",
}


UNTOLD = (
    "Handle.sync",
    "LocalTree.sync_directory",
    "LocalTree._write_temporary",
    "LocalTree._write_new",
    "Appender._sync_or_defer",
)


def shown(statement: str) -> str:
    """Return what a sync is known by without the lines of the source."""
    steps = re.sub(r":\d+\b", "", statement).split(" > ")
    return " > ".join(step for step in steps if step not in UNTOLD)


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
OTHERS = tuple({"role": "assistant", "content": f"{word} " * 130} for word in ("four", "fives"))
PICTURE = base64.b64encode(bytes(range(256)) * 3).decode()
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
STUBBED = {"role": "tool", "tool_call_id": "c1", "content": STUB}
TEXT = "a line of output\n" * 50
ROWS = '{"rows": [' + "12345, " * 200 + "0]}"
SETTINGS = {"size": 4000, "system": "be brief " * 80}

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
    "a tool result with another picture": Scenario((Store("c1", TEXT, b"new"),), (OLD, Store("c1", TEXT, b"old"))),
    "another tool result of the same call": Scenario((Store("c1", TEXT),), (OLD, Store("c1", "short"))),
    "a result that is streamed": Scenario((Stream("c1", TEXT),), (OLD,)),
    "a result with a view that is streamed": Scenario((Stream("c1", ROWS),), (OLD,)),
    "a stub and its message": Scenario((Stub(STUB, Store("c1", TEXT)), Archive((STUBBED,))), (OLD, Store("c1", TEXT))),
    "the first summary": Scenario((Summarize("short " * 150),), (OLD,)),
    "the second summary": Scenario((Summarize("short " * 150),), (OLD, Summarize("first"))),
    "a summary with facts": Scenario((Summarize(f"{WITH_FACTS} " * 75),), (OLD,)),
    "a summary that ends the use of older facts": Scenario(
        (Summarize(f"{WITH_FACTS} " * 75),), (OLD, *(Summarize(f"{number} {WITH_FACTS}") for number in range(3)))
    ),
    "a window": Scenario((Start(SETTINGS),), (Open(),)),
    "a window of a session that is there": Scenario((Start(SETTINGS),), (Store("c1", TEXT),)),
    "messages of a window": Scenario((Extend((NEXT, *LARGE)),), WINDOW, instead=Extend(OTHERS)),
    "a window after a compression": Scenario((Replace(LARGE, ("summary",)),), (*WINDOW, OLD)),
    "a window that is taken over": Scenario((Claim(),), WINDOW),
    "a journal that was lost": Scenario(
        (Archive((SMALL,), "a"),), (OLD, Archive(LARGE, "b")), lambda session: (session / "journal.jsonl").unlink()
    ),
}
