"""What a session promises over a crash: calls of `Session`, and checks of each state that they may leave."""

import asyncio
import base64
import hashlib
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Self

from crash_states import ROOT, Crash, Disk, Killed, Mark, Operation, Recorder, State, Sync, crashes, scanned

from buoyline.errors import StaleWindowError
from buoyline.messages import Media, Text, ToolResult, jsonl
from buoyline.messages.payloads import take_out
from buoyline.messages.registry import detect
from buoyline.offloader.protocol import StoredFile
from buoyline.offloader.transcript import render
from buoyline.workspace.documents import check_workspace
from buoyline.workspace.layout import blob_name, reference_to
from buoyline.workspace.results import get_blob
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, NewForm, NewLine
from buoyline.workspace.workspace import LocalWorkspace

WORKDIR, SESSION = "workspace", "s1"
SETTINGS = {"size": 4000, "system": "be brief " * 80}


class Process:
    """Somebody who works on the session: a window, and what stores without one."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.workspace = LocalWorkspace(folder / WORKDIR, durability="sync" if durable else "off")
        self.window, self.plain = self.workspace.session(SESSION), self.workspace.session(SESSION)
        self.is_open = False

    def look(self) -> None:
        """Open the window's handle."""
        self.window.open()
        self.window.settings = SETTINGS
        self.is_open = True

    def write(self, work: Callable[[Session], object]) -> None:
        """Do *work* with the window's handle; if another has continued the session, open it again first."""
        if not self.is_open:
            self.look()
        try:
            work(self.window)
        except StaleWindowError:
            self.look()
            work(self.window)


@dataclass(frozen=True)
class Contents:
    """What a session holds, as far as callers can tell; *context* is what stands for archived messages."""

    messages: tuple[str, ...] = ()
    context: tuple[Any, ...] | None = None
    results: frozenset[str] = frozenset()
    settings: bool = False


@dataclass(frozen=True)
class Call:
    """One call."""

    def run(self, process: Process) -> None:
        """Make the call."""
        raise NotImplementedError

    def after(self, contents: Contents) -> Contents:
        """Return what *contents* become."""
        raise NotImplementedError

    def under_way(self, contents: Contents) -> list[Contents]:
        """Return what may be seen of the call before it is acknowledged: a window's settings come first."""
        done = self.after(contents)
        return [contents, done, replace(contents, settings=done.settings)]

    def repeat(self, process: Process, seen: Contents, before: Contents) -> None:
        """Make the call once more, as somebody does who has looked at what became of it."""
        if seen != self.after(before):
            self.run(process)


@dataclass(frozen=True)
class Add(Call):
    texts: tuple[str, ...]

    def run(self, process: Process) -> None:
        lines = [NewLine({"role": "user", "content": text}, keys=("1:abc",)) for text in self.texts]
        process.write(lambda session: session.append(lines))

    def after(self, contents: Contents) -> Contents:
        return replace(contents, messages=contents.messages + self.texts, settings=True)


@dataclass(frozen=True)
class Form(Call):
    number: int
    text: str

    def run(self, process: Process) -> None:
        stored = {0: (StoredFile("tool_result-c1.txt", 3, "00000000"),)}
        forms = [NewForm(self.number, {"role": "user", "content": self.text}, ("1:def",), stored=stored)]
        process.write(lambda session: session.note_forms(forms))

    def after(self, contents: Contents) -> Contents:
        messages = (*contents.messages[: self.number], self.text, *contents.messages[self.number + 1 :])
        return replace(contents, messages=messages, settings=True)


@dataclass(frozen=True)
class Compact(Call):
    until: int
    summary: str

    def run(self, process: Process) -> None:
        process.write(self._compact)

    def _compact(self, session: Session) -> None:
        known = session.state.context.until if session.state.context else 0
        rendered = session.archive(
            [_rendered(line.value["content"]) for line in session.read(range(known, self.until))]
        )
        number = session.append_summary({"text": self.summary})
        session.note_context(
            ContextRecord(
                ((0, session.state.end),),
                self.until,
                summary=number,
                transcript=rendered.transcript,
                left=((known, self.until),),
                lines=rendered.lines,
            )
        )

    def after(self, contents: Contents) -> Contents:
        texts = contents.messages[: self.until]
        transcript = "".join(f"{line}\n" for text in texts for line in _rendered(text))
        return replace(contents, context=(self.until, self.summary, transcript), settings=True)


@dataclass(frozen=True)
class Offload(Call):
    """A batch that left a context which is not ours; with a picture in each message if *has_picture*."""

    texts: tuple[str, ...]
    has_picture: bool = False

    def run(self, process: Process) -> None:
        asyncio.run(process.workspace.offload_context(SESSION, self._messages()))

    def repeat(self, process: Process, seen: Contents, before: Contents) -> None:
        self.run(process)  # it has ids, so nobody needs to look

    def after(self, contents: Contents) -> Contents:
        views = [detect(message).view(take_out(message, _reference)[0]) for message in self._messages()]
        rendered = render(views, len(contents.messages), [NOON] * len(views), lambda _: None)
        transcript = contents.context[2] if contents.context else ""
        transcript += "".join(f"{line}\n" for lines in rendered for line in lines)
        return replace(contents, messages=contents.messages + self.texts, context=(0, "", transcript))

    def _messages(self) -> list[dict[str, Any]]:
        return [
            {
                "id": f"m-{text[:9]}",
                "role": "user",
                "content": [{"type": "text", "text": text}, *[SEEN] * self.has_picture],
            }
            for text in self.texts
        ]


def _reference(payload: bytes, media_type: str) -> str:
    return reference_to(blob_name(payload, media_type))


@dataclass(frozen=True)
class Store(Call):
    call_id: str
    text: str
    picture: bytes = b""

    def run(self, process: Process) -> None:
        pictures = (Media("image", "image/png", len(self.picture), payload=self.picture),) if self.picture else ()
        result = ToolResult(self.call_id, "tool", (Text(self.text), *pictures))
        path = asyncio.run(process.workspace.offload_tool_result(SESSION, result))
        assert Path(path).read_text("utf-8") == self.text

    def after(self, contents: Contents) -> Contents:
        return replace(contents, results=contents.results | {self.text})


def _rendered(text: str) -> list[str]:
    return [f"## {text[:20]}", text[:200], ""]


@dataclass(frozen=True)
class Scenario:
    """*calls* whose crash states are looked at, after others that are durable *before*.

    Attributes:
        later: What succeeds at any time later.
        then: What a process does that goes on after a kill, if not that.
    """

    calls: tuple[Call, ...]
    before: tuple[Call, ...] = ()
    later: Add | Offload = Add(("and later",))
    then: Call | None = None


@dataclass(frozen=True)
class Recording:
    """What was done for *calls*.

    Attributes:
        start: What was on the disk before, all of it durable.
        past: What a process did that was killed then.
        operations: What was done, with marks where a call began and where it was acknowledged.
        before: What the session may have held before, each as good as the others.
        torn: What had been set aside at the end.
        is_cut_at_the_end: The power only fails when all calls were acknowledged.
    """

    start: Disk
    calls: tuple[Call, ...]
    before: tuple[Contents, ...]
    later: Add | Offload
    operations: tuple[Operation, ...] = ()
    past: tuple[Operation, ...] = ()
    torn: frozenset[bytes] = frozenset()
    is_cut_at_the_end: bool = False

    def due_syncs(self) -> dict[str, list[int]]:
        """Return the places of the syncs that made something durable, by the file or directory of each."""
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
        asked.update(repr((outcomes, self.calls[: crash.begun], crash.acknowledged, sorted(self.torn))).encode())
        return asked.digest()

    def crashes(self, limit: int, seen: set[bytes] | None = None) -> Iterator[Crash]:
        """Yield each outcome of a crash; see `crash_states.crashes`."""
        disk, operations = self.start.copy(), self.operations
        disk.apply(*self.past)
        if self.is_cut_at_the_end:
            disk.apply(*operations)
            last = len(self.calls) - 1
            found = crashes(disk, (Mark(last, is_acknowledged=True),), limit, seen)
            return (crash for crash in found if crash.acknowledged > last)
        return crashes(disk, operations, limit, seen)

    def outcomes(self, acknowledged: int, begun: int) -> list[Contents]:
        """Return what the session may hold when so many calls were acknowledged and so many had begun."""
        possible = list(self.before)
        for call in self.calls[:acknowledged]:
            possible = [call.after(found) for found in possible]
        for call in self.calls[acknowledged:begun]:
            possible = [seen for found in possible for seen in call.under_way(found)]
        return possible


def recorded(scenario: Scenario, folder: Path) -> Recording:
    """Make the calls of *scenario* in *folder* and return what was done."""
    contents = prepared(scenario, folder)
    state, nodes = scanned(folder)
    return record(Process(folder), folder, nodes, Recording(Disk(state), scenario.calls, (contents,), scenario.later))


def prepared(scenario: Scenario, folder: Path) -> Contents:
    """Make in the new *folder* the calls that come before, and return what the session holds then."""
    folder.mkdir()
    contents = Contents()
    with still(Recorder({}, 0, process=99)):
        process = Process(folder, durable=False)
        for call in scenario.before:
            call.run(process)
            contents = call.after(contents)
    return contents


def record(
    who: Process,
    folder: Path,
    nodes: dict[tuple[int, int], int],
    undone: Recording,
    *,
    process: int = 0,
    killed_after: int | None = None,
) -> Recording:
    """Let *who* make the calls of *undone* in *folder*, which is as its start and past say; return what is done."""
    disk = undone.start.copy()
    disk.apply(*undone.past)
    recorder = Recorder(nodes, disk.next_node, process=process, killed_after=killed_after)
    with still(recorder), suppress(Killed):
        for number, call in enumerate(undone.calls):
            recorder.mark(number, is_acknowledged=False)
            call.run(who)
            recorder.mark(number, is_acknowledged=True)
    end = disk.copy()
    end.apply(*recorder.operations)
    assert end.cached().tree() == scanned(folder)[0].tree(), "something was done that was not recorded"
    return replace(undone, operations=tuple(recorder.operations), torn=set_aside(folder))


@contextmanager
def still(recorder: Recorder) -> Iterator[None]:
    """Record during the block, with a clock that stands: what is done twice gives the same bytes."""
    with recorder:
        recorder.put(jsonl, "datetime", Noon)
        yield


class Noon(datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Return noon."""
        return cls(2026, 1, 1, 12, tzinfo=tz)


@dataclass(frozen=True)
class Again(Call):
    """A call that a process repeats after another one came to its end in the middle of it."""

    call: Call
    before: Contents
    seen: Contents

    def run(self, process: Process) -> None:
        self.call.repeat(process, self.seen, self.before)

    def repeat(self, process: Process, seen: Contents, before: Contents) -> None:
        self.call.repeat(process, seen, self.before)

    def after(self, contents: Contents) -> Contents:
        return self.call.after(self.before)

    def under_way(self, contents: Contents) -> list[Contents]:
        return [contents, *self.call.under_way(self.before)]


def recorded_after_kill(
    scenario: Scenario, killed_after: int, folder: Path, *, is_repeated: bool, is_at_work: bool = False
) -> Recording:
    """Return what the next process does when the first was killed in the midst of the calls of *scenario*.

    What the first one did not sync is still not durable: the power may fail any time later. *is_at_work*: the next
    process has looked at the session before the first began.
    """
    contents = prepared(scenario, folder)
    state, nodes = scanned(folder)
    second = Process(folder)
    if is_at_work:
        with still(Recorder({}, 0, process=98)):
            second.look()
            second.plain.load()
    undone = Recording(Disk(state), scenario.calls, (contents,), scenario.later)
    first = record(Process(folder), folder, nodes, undone, killed_after=killed_after)
    marks = [operation for operation in first.operations if isinstance(operation, Mark)]
    begun, acknowledged = (sum(mark.is_acknowledged is done for mark in marks) for done in (False, True))
    before, seen = tuple(first.outcomes(acknowledged, begun)), observed(folder)
    assert seen in before
    call = scenario.then or scenario.later
    if is_repeated and begun:
        again = Again(scenario.calls[begun - 1], first.outcomes(begun - 1, begun - 1)[0], seen)
        if isinstance(again.call, Offload) or seen != again.after(seen):
            call = again  # who sees that it is there goes on, and what is acknowledged next vouches for it
        if is_at_work:
            second.window.open()
    undone = Recording(Disk(state), (call,), (seen,), scenario.later, past=first.operations, is_cut_at_the_end=True)
    return record(second, folder, nodes, undone, process=1)


def recorded_after_crash(recording: Recording, crash: Crash, folder: Path) -> Recording:
    """Return what the next process does to repeat what was under way when the crash came."""
    with built(crash.state, folder):
        seen = observed(folder)
    nodes = crash.state.build(folder)
    number = max(crash.begun - 1, 0)
    before = next((found for found in recording.outcomes(number, number)), Contents())
    call = Again(recording.calls[number], before, seen)
    undone = Recording(Disk(crash.state), (call,), (seen,), recording.later)
    return record(Process(folder), folder, nodes, undone, process=1)


def check(recording: Recording, crash: Crash, folder: Path) -> None:
    """Make sure that a crash broke no promise, whatever is done next.

    Raises:
        AssertionError: A promise is broken.
        BuoylineError: A call that should succeed does not.
    """
    with still(Recorder({}, 0, process=97)):
        _check(recording, crash, folder)


def _check(recording: Recording, crash: Crash, folder: Path) -> None:
    with built(crash.state, folder):
        seen = observed(folder)
        assert seen in recording.outcomes(crash.acknowledged, crash.begun), "what was acknowledged, and whole calls"
        assert all(found.is_torn for found in Process(folder).plain.damage())
        go_on(folder, recording.later, [seen])
    if not crash.begun:
        return
    call = recording.calls[crash.begun - 1]
    befores = recording.outcomes(crash.begun - 1, crash.begun - 1)
    with built(crash.state, folder):
        if crash.acknowledged < crash.begun:
            call.repeat(Process(folder, durable=False), seen, befores[0])
        go_on(folder, recording.later, [call.after(before) for before in befores])
        if crash.begun == len(recording.calls):
            assert recording.torn <= set_aside(folder), "torn bytes are kept"


def go_on(folder: Path, later: Add | Offload, ends: Sequence[Contents]) -> None:
    """Make sure that the next call succeeds and finds one of *ends* before it, and that all is well then."""
    later = replace(later, texts=("at last",))  # not the batch of the process that went on before
    later.run(Process(folder, durable=False))
    assert observed(folder) in [later.after(end) for end in ends]
    damage = Process(folder).plain.damage()
    assert all(found.is_torn and found.file.endswith("summaries.jsonl") for found in damage)  # till the next summary


def observed(folder: Path) -> Contents:
    """Return what a reader finds."""
    session = Process(folder).plain
    state = session.load()
    assert not state.damaged
    if state.exists:
        check_workspace(session.disk)
    transcript, context = "", state.context
    if state.transcript.length:
        path = folder / WORKDIR / session.name / "transcript.md"
        content = path.read_bytes()[: state.transcript.length]
        assert f"{zlib.crc32(content):08x}" == state.transcript.crc
        transcript = content.decode()
    shown = (0, "", transcript) if transcript else None
    if context is not None and context.summary is not None:
        shown = (context.until, session.summaries()[context.summary]["text"], transcript)
    messages = list[str]()
    for line in session.read(range(state.end)):
        content = line.value["content"]
        messages.append(content if isinstance(content, str) else content[0]["text"])
        for reference in line.refs:
            get_blob(session.disk, reference.reference)
    results = frozenset(_stored_text(session, record) for record in state.results.values())
    return Contents(tuple(messages), shown, results, state.settings is not None)


def _stored_text(session: Session, record: dict[str, Any]) -> str:
    """Return the text of a result, all of whose files are as its record says."""
    texts = list[str]()
    for name, size_bytes, crc in record["files"]:
        if name.startswith("data/"):
            get_blob(session.disk, reference_to(name))
            continue
        content = session.disk.read(f"{session.name}/{name}")
        assert (len(content), f"{zlib.crc32(content):08x}") == (size_bytes, crc)
        texts.append(content.decode())
    return texts[0]


def set_aside(folder: Path) -> frozenset[bytes]:
    return frozenset(path.read_bytes() for path in (folder / WORKDIR).glob("sessions/*/torn/[!.]*"))


@contextmanager
def built(state: State, folder: Path) -> Iterator[None]:
    """Put *state* into *folder* for as long as the block runs."""
    state.build(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder)


PICTURE = base64.b64encode(bytes(range(256)) * 3).decode()
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
NOON = "2026-01-01T12:00:00.000Z"
TEXT = "a line of output\n" * 50
ROWS = '{"rows": [' + "12345, " * 200 + "0]}"
LARGE = tuple(f"{word} " * 130 for word in ("two", "three"))
OLD, LEFT = Add(("one", "two " * 200)), Offload(("gone", "left " * 150))
PLAIN = Offload(("later", "and later"))

SCENARIOS = {
    "the first message of a session": Scenario((Add(("one",)),)),
    "one message": Scenario((Add(("next",)),), (OLD,)),
    "several messages": Scenario((Add(("next", *LARGE)),), (OLD,)),
    "a message, and a form by the next process": Scenario((Add(("next",)),), (OLD,), then=Form(1, "short")),
    "a message, and a compaction by the next process": Scenario((Add(("next",)),), (OLD,), then=Compact(1, "sum")),
    "two messages": Scenario((Add(("yes",)), Add(("yes",))), (OLD,)),
    "a form": Scenario((Form(1, "short " * 90),), (OLD,)),
    "a form of a new message": Scenario((Add(LARGE), Form(2, "short")), (OLD,)),
    "the first compaction": Scenario((Compact(1, "short " * 150),), (OLD,)),
    "the second compaction": Scenario((Add(LARGE), Compact(3, "short " * 150)), (OLD, Compact(1, "first"))),
    "the first batch that was offloaded": Scenario((LEFT,), later=PLAIN),
    "a batch that was offloaded": Scenario((Offload(("next", *LARGE)),), (LEFT,), later=PLAIN),
    "a batch with a picture": Scenario((Offload(("seen",), has_picture=True),), (LEFT,), later=PLAIN),
    "a result": Scenario((Store("c1", TEXT),), (OLD,)),
    "a result with a view": Scenario((Store("c1", ROWS),), (OLD,)),
    "another result of the same call": Scenario((Store("c1", TEXT),), (OLD, Store("c1", "short"))),
    "the first result of a session": Scenario((Store("c1", TEXT, b"picture" * 99),), later=PLAIN),
}
