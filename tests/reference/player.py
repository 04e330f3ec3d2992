"""Plays a script on one version of buoyline: reads an operation a line as JSON, and writes an answer a line.

It runs in the environment of each version, as ``python -m reference.player old|new SALT WORKDIR``, and knows buoyline
only by `Names`. So that two versions can be compared byte for byte, the clock shows the number of the operation,
identifiers are counted; the SALT keeps those of two processes apart. If a script asks for it, stubs show the first
lines of a result. Nothing else is replaced.
"""

import asyncio
import base64
import dataclasses
import datetime as dt
import errno
import hashlib
import importlib
import itertools
import json
import os
import re
import sys
import types
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reference.names import Names

Plain = Any
"""What JSON can say."""

SYNCS = ("fdatasync", "fsync", "ftruncate", "link", "rename", "replace")
"""Functions of `os` that are listed, in order: those that make something durable, give it its name, or cut it."""

FAILING = (*SYNCS, "mkdir", "open", "write")
"""Functions of `os` of which the n-th call can fail."""

CALL_KEYS = ("tool_calls", "tool_use", "toolUse")
"""One of them is in each message with a tool call."""

_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_UNSTEADY = frozenset({"duration_s", "done", "problems", "reason"})
"""Fields of events that are times, or prose about managers."""

_COUNTED = re.compile(r"(?<![0-9a-f])b0a7[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}(?![0-9a-f])")
_CRC = re.compile(r'("crc":"?)[0-9a-f]+')
_BEFORE = re.compile(r'"before":\{[^{}]*\}')
_TEMPORARY = re.compile(r"\.tmp-[0-9a-z-]*[0-9a-f]{16}")


class _AnyTime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _REAL_TIME)


_REAL_TIME = dt.datetime


class Clock(_REAL_TIME, metaclass=_AnyTime):
    """A `datetime` for which it is as many seconds after the epoch as operations were played."""

    seconds = 0

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return (_EPOCH + dt.timedelta(seconds=cls.seconds)).astimezone(tz)


class Calls:
    """Lists what buoyline asks of the file system, and lets one call fail."""

    def __init__(self, workdir: str) -> None:
        self.workdir = workdir
        self.listed: list[str] = []
        self.count, self.failing = 0, 0
        for name in FAILING:
            setattr(os, name, self._watched(name, getattr(os, name)))

    def begin(self, failing: int) -> None:
        self.listed, self.count, self.failing = [], 0, failing

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if not sys._getframe(1).f_globals.get("__name__", "").startswith("buoyline."):
                return real(*args, **named)
            if name != "open" or args[1] & os.O_CREAT:
                self.count += 1
                if self.count == self.failing:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            if name in SYNCS:
                self.listed.append(f"{name} {self._paths(args, named)}")
            return real(*args, **named)

        return call

    def _paths(self, args: Sequence[Any], named: Mapping[str, Any]) -> str:
        if isinstance(args[0], int):
            return self._shown(_path_of(args[0]))
        directories = (named.get("src_dir_fd"), named.get("dst_dir_fd"))
        found = [
            os.path.join("" if directory is None else _path_of(directory), path)
            for path, directory in zip(args[:2], directories, strict=True)
        ]
        return " -> ".join(map(self._shown, found))

    def _shown(self, path: str) -> str:
        return _TEMPORARY.sub(".tmp-*", os.path.relpath(path, self.workdir))


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


class Summarizer:
    """Says how many messages it was shown, without a model; it may raise, be slow, or wait until it is let go."""

    def __init__(self, names: Names, settings: Mapping[str, Any]) -> None:
        self._names, self._settings = names, settings
        self._asked = 0
        self.holds = False
        self.waiting = asyncio.Event()
        self.released = asyncio.Event()

    async def summarize(self, request: Any) -> Any:
        self._asked += 1
        if self.holds:
            self.holds = False
            self.waiting.set()
            await self.released.wait()
        for _ in range(self._settings.get("steps", 0)):
            await asyncio.sleep(0)
        if self._asked in self._settings.get("raises_at", ()):
            raise RuntimeError("the model is away")
        first, last = request.sources[0], request.sources[-1]
        words = f"Messages {first.index} to {last.index}, {request.focus or 'no focus'}."
        pointer = "" if first.pointer is None else f" [{first.pointer}]"
        fields = dict.fromkeys(request.fields, f"{words}{pointer}")
        return self._names["Draft"]("counting", fields, () if first.pointer is None else (first.pointer,))


class BareOffloader:
    """Has AgentScope's two methods alone."""

    def __init__(self) -> None:
        self._count = 0

    async def offload_context(self, session_id: str, msgs: Sequence[Any], **_: Any) -> str:
        self._count += 1
        return f"bare://{session_id}/context/{self._count}-{len(msgs)}"

    async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
        self._count += 1
        return f"bare://{session_id}/result/{self._count}"


class Player:
    """Plays operations on one window at a time; each is a method, and its arguments are the operation's."""

    def __init__(self, names: Names, workdir: str) -> None:
        self.names, self.workdir = names, workdir
        names.summarize_by_count()
        self.calls = Calls(workdir)
        self.offloader: Any = None
        self.window: Any = None
        self.said: list[Any] = []
        self.settings: dict[str, Any] = {}
        self.summarizer: Summarizer | None = None
        self._events: list[Plain] = []
        self._told = 0
        self._shown: set[str] = set()
        self._looks: dict[str, tuple[int, int]] = {}
        self._counted: dict[str, str] = {}

    async def answer(self, operation: Mapping[str, Any]) -> Plain:
        """Play one operation; return its answer, the error's class, events, syncs, and files that changed."""
        Clock.seconds += 1
        arguments = dict(operation)
        name, failing, cancelled = arguments.pop("do"), arguments.pop("fails_at", 0), arguments.pop("cancels_at", 0)
        self.calls.begin(failing)
        self._events = []
        found: dict[str, Plain] = {"do": name}
        try:
            found["answer"] = await self._run(getattr(self, f"do_{name}")(**arguments), cancelled)
        except asyncio.CancelledError:
            found["error"] = "CancelledError"
        except (AttributeError, ImportError):
            raise  # a name that the table has wrong, which must not look like an answer
        except Exception as error:  # noqa: BLE001 - each other error is a part of the answer
            found["error"] = self.names.shown(type(error).__name__)
            found["text"] = str(error)
        await self._settle()
        found["events"], found["syncs"] = self._events, self.calls.listed
        found["calls"] = self.calls.count
        self.calls.begin(0)
        found["files"] = self._changed()
        return json.loads(self._steady(json.dumps(found, ensure_ascii=False)))

    async def _run(self, work: Coroutine[Any, Any, Plain], cancels_at: int) -> Plain:
        task: asyncio.Task[Plain] = asyncio.ensure_future(_counted(work, cancels_at, lambda: task.cancel()))  # noqa: PLW0108 - made before the task
        await asyncio.wait([task], timeout=10)
        if not task.done() and self.summarizer is not None:  # it waits for what the script holds back
            self.summarizer.released.set()
        return await task

    async def _settle(self) -> None:
        """Wait for the background: until nothing is left of it, or it waits itself."""
        while running := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
            waiting = self.summarizer.waiting if self.summarizer is not None else asyncio.Event()
            if waiting.is_set() and self.summarizer is not None and not self.summarizer.released.is_set():
                return
            arrival = asyncio.ensure_future(waiting.wait())
            await asyncio.wait([*running, arrival], return_when=asyncio.FIRST_COMPLETED)
            arrival.cancel()
            await asyncio.gather(arrival, return_exceptions=True)

    async def do_locate(self) -> str:
        """Return where the version is installed."""
        return str(importlib.import_module("buoyline").__file__)

    async def do_show_first_lines(self) -> None:
        """Give the stubs of all versions the same previews and token counts, and all versions the same presets.

        Previews of large results and the counts in their stubs differ on purpose since the baseline, and with their
        tokens all that a window plans. So do presets: those of the baseline mask old results before each call. The
        baseline records no calls.
        """
        stubs: Any = importlib.import_module("buoyline.offloader.stub")
        stubs._COUNTED_BYTES = 1 << 22  # the size up to which the baseline counts exactly
        if self.names.is_new:
            importlib.import_module("buoyline.management.registry")  # a window imports it when it has a document
            importlib.import_module(
                "buoyline.window.context"
            ).ContextLog.note_call = _do_nothing  # a new kind of record
        for name, module in [*sys.modules.items()]:
            if name.startswith("buoyline.") and ".previews" not in name and hasattr(module, "preview_of"):
                module.preview_of = _first_lines  # type: ignore[attr-defined]
            if name.startswith("buoyline.") and hasattr(module, "built_in"):
                module.built_in = partial(_built_in_then, module.built_in)  # type: ignore[attr-defined]

    # Windows

    async def do_say(self, messages: Sequence[Plain], pins: Sequence[int] = ()) -> None:
        """Take the conversation of which `add` takes the next message."""
        self.said, self.pins = [_native(message) for message in messages], frozenset(pins)

    async def do_open(self, **settings: Any) -> None:
        self.settings = settings
        self._make_offloader()
        self.window = self.names["ContextWindow"](
            session_id=settings.get("session", "s1"),
            offloader=self.offloader,
            size=settings["size"],
            config=self._config(settings.get("config", {})),
            system=settings.get("system", ""),
            tools=settings.get("tools", ()),
            dialect=settings.get("dialect"),
            management=settings.get("management"),
            **self._hooks(),
        )

    async def do_resume(self, dialect: str | None = None, **settings: Any) -> Plain:
        """Go on as another process would; the old window is not closed."""
        self.settings |= settings
        if not isinstance(self.offloader, self.names["MemoryWorkspace"]):
            await self._close_offloader()
            self._make_offloader()
        self.window = await self.names["ContextWindow"].resume(
            self.offloader, self.settings.get("session", "s1"), dialect=dialect, **self._hooks()
        )
        return {"messages": self._messages(self.window.messages), **self._measures()}

    def _make_offloader(self) -> None:
        kind = self.settings.get("offloader", "local")
        if kind == "local":
            durability = self.settings.get("durability", "off")
            redact = _redacted if self.settings.get("redacts") else None
            self.offloader = self.names["LocalWorkspace"](self.workdir, durability=durability, redact=redact)
        else:
            self.offloader = {"memory": self.names["MemoryWorkspace"], "bare": BareOffloader, "none": lambda: None}[
                kind
            ]()

    async def _close_offloader(self) -> None:
        if self.offloader is not None and hasattr(self.offloader, "close"):
            await self.offloader.close()

    def _config(self, settings: Mapping[str, Any]) -> Any:
        rules = {tool: self.names["ToolRule"](**rule) for tool, rule in settings.get("tool_rules", {}).items()}
        return self.names["ContextConfig"](**{**settings, "tool_rules": rules})

    def _hooks(self) -> dict[str, Any]:
        settings = self.settings.get("summarizer")
        self.summarizer = None if settings is None else Summarizer(self.names, settings)
        answering: dict[str, Any] = self.settings.get("should_offload", {})
        asked = itertools.count(1)

        async def should_offload(tool: str, tokens: int, *, candidate: Any) -> bool:
            self._events.append({"asked": tool, "tokens": tokens, "message": candidate.message})
            for _ in range(answering.get("steps", 0)):
                await asyncio.sleep(0)
            if next(asked) in answering.get("raises_at", ()):
                raise RuntimeError("the hook is broken")
            return tool not in answering.get("keeps", ())

        return {
            "summarizer": self.summarizer,
            "on_event": self._on_event,
            "should_offload": should_offload if answering else None,
        }

    def _on_event(self, event: Any) -> None:
        self._told += 1
        self._events.append({"event": self.names.shown(type(event).__name__), **self._plain(event)})
        if self._told in self.settings.get("event_raises_at", ()):
            raise RuntimeError("the hook is broken")

    async def do_add(self, count: int = 1, **options: Any) -> Plain:
        """Add the next messages of the conversation."""
        for _ in range(min(count, len(self.said) - self.window.added)):
            at = self.window.added
            await self.window.add(self.said[at], pinned=at in self.pins, **options)
        return self._measures()

    async def do_stream(self, call_id: str, chunks: Sequence[str], **options: Any) -> Plain:
        following = json.dumps(self._plain(self.said[self.window.added : self.window.added + 1]))
        if not any(key in following for key in CALL_KEYS):  # its results would have no call, but an archived one's id
            await getattr(self.window, self.names.method("add_tool_output"))(call_id, iter(chunks), **options)
        return self._measures()

    async def do_prepare(self, **options: Any) -> Plain:
        messages = await self.window.prepare(**options)
        return {"messages": self._messages(messages), **self._measures()}

    async def do_save(self) -> Plain:
        await self.window.save()
        return {"messages": self._messages(self.window.messages), **self._measures()}

    async def do_compress(self, config: Mapping[str, Any] | None = None, **options: Any) -> Plain:
        if config is not None:
            options["config"] = self._config(config)
        if "before" in options:  # the baseline archived calls that waited for their results
            answers = [
                at for at, message in enumerate(self.said[: self.window.added]) if message["role"] == "assistant"
            ]
            options["before"] = min(options["before"], max(answers, default=0))
        summary = await getattr(self.window, self.names.method("compress"))(**options)
        return {"summary": self._plain(summary), **self._measures()}

    async def do_compress_ahead(self, *, holds: bool = False) -> Plain:
        if self.summarizer is not None:
            self.summarizer.holds = holds
        began = await getattr(self.window, self.names.method("compress_ahead"))()
        if self.summarizer is not None and not began:
            self.summarizer.holds = False
        return {"began": began}

    async def do_release(self) -> None:
        if self.summarizer is not None:
            self.summarizer.released.set()

    async def do_request_compression(self, focus: str = "") -> Plain:
        return self._plain(getattr(self.window, self.names.method("request_compression"))(focus))

    async def do_recover(self) -> Plain:
        messages = await getattr(self.window, self.names.method("recover_from_overflow"))()
        return {"messages": self._messages(messages), **self._measures()}

    async def do_usage(self, factor: float, output_tokens: int = 0) -> Plain:
        usage = {"prompt_tokens": int(self.window.tokens * factor), "completion_tokens": output_tokens}
        return [getattr(self.window, self.names.method("note_usage"))(usage), self._measures()]

    async def do_close(self) -> None:
        if self.summarizer is not None:
            self.summarizer.released.set()
        if self.window is not None:
            await self.window.close()
        await self._close_offloader()
        self.window = self.offloader = None

    def _measures(self) -> Plain:
        window = self.window
        return {
            "tokens": window.tokens,
            "turn_tokens": window.turn_tokens,
            "added": window.added,
            "exceeding": window.exceeding(),
        }

    def _messages(self, messages: Sequence[Any]) -> Plain:
        """Return each message by its hash and, if it is the very object that was added, its index; new ones whole."""
        own = {id(message): at for at, message in enumerate(self.said)}
        found: list[Plain] = []
        for message in self._apart(messages):
            spelled = self._steady(json.dumps(self._plain(message), ensure_ascii=False))
            digest = hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            found.append([digest, own.get(id(message))])
            if digest not in self._shown:
                self._shown.add(digest)
                found[-1].append(json.loads(spelled))
        return found

    def _apart(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return *messages* one by one: in Bedrock's form, the baseline returned neighbors of one role apart."""
        translation: Any = getattr(self.window, "_translation", None)
        if not hasattr(translation, "_heads"):
            return messages
        translation.of(self.window._context.whole)  # after a resume, nothing was returned yet
        undone: Any = importlib.import_module("buoyline.window.window")._undone
        found: Sequence[Any] = undone(messages, translation._heads)
        return found

    # What is on disk

    async def do_verify(self) -> Plain:
        report = self.names["verify"](self.names["LocalWorkspace"](self.workdir))
        return sorted([found.severity, found.kind, found.path] for found in report.findings)

    async def do_archived(self) -> Plain:
        """Return the session's messages that are archived, as they are read again."""
        window = self.window
        end = window.added - len(self._apart(window.messages))
        return await self.offloader.load_messages(self.settings.get("session", "s1"), 0, end) if end > 0 else []

    async def do_files(self) -> Plain:
        return {name: self._content(path) for name, path in self._paths()}

    def _paths(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(Path(self.workdir).rglob("*")):
            if path.is_file() and ".locks" not in path.parts:
                yield _TEMPORARY.sub(".tmp-*", path.relative_to(self.workdir).as_posix()), path

    def _content(self, path: Path) -> str:
        content = path.read_bytes()
        try:
            return self._steady(content.decode())
        except UnicodeDecodeError:
            return f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"

    def _changed(self) -> Plain:
        """Return the hash of each file that is not as it was after the last operation; None for one that is gone."""
        changed: dict[str, str | None] = {}
        paths = dict(self._paths())
        for name, path in paths.items():
            status = path.stat()
            look = status.st_mtime_ns, status.st_size
            if self._looks.get(name) != look:
                self._looks[name] = look
                changed[name] = hashlib.sha256(self._content(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        for name in [*self._looks]:
            if name not in paths:
                del self._looks[name]
                changed[name] = None
        return changed

    # What needs no window

    async def do_preview(self, text: str, max_tokens: int) -> Plain:
        return self.names["preview"](text, max_tokens, self.names["default_counter"]())

    async def do_convert(self, messages: Sequence[Plain], to: str) -> Plain:
        return self._plain(self.names["convert"]([_native(message) for message in messages], to))

    async def do_look_up(self, name: str, **arguments: Any) -> Plain:
        return self._plain(self.names[name](self.names["LocalWorkspace"](self.workdir), **arguments))

    async def do_look_around(self, max_tokens: int) -> Plain:
        """Read and retrieve the beginning of each file of the sessions."""
        workspace, found = self.names["LocalWorkspace"](self.workdir), dict[str, Plain]()
        for name, _ in self._paths():
            if name.startswith("sessions/"):
                for lookup in ("read", "retrieve"):
                    try:
                        answer = self.names[lookup](workspace, name, max_tokens=max_tokens)
                        found[f"{lookup} {name}"] = self._plain(answer)
                    except Exception as error:  # noqa: BLE001 - each error is a part of the answer
                        found[f"{lookup} {name}"] = self.names.shown(type(error).__name__)
        return found

    def _plain(self, value: Any) -> Plain:
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return {self.names.shown(key): self._plain(v) for key, v in fields.items() if key not in _UNSTEADY}
        if isinstance(value, Mapping):
            return {str(key): self._plain(inner) for key, inner in value.items()}
        if isinstance(value, bytes):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, str | int | float | None):
            return value
        if isinstance(value, Sequence):
            return [self._plain(inner) for inner in value]
        return repr(type(value).__name__)

    def _steady(self, text: str) -> str:
        """Name counted identifiers in the order in which they are seen, and mask checksums of lines that change so.

        After a resume, the baseline wrote the names in ``before`` in an order that depends on the hash seed.
        """
        if "b0a7" not in text and '"before":' not in text:
            return text
        lines = text.split("\n")
        for at, line in enumerate(lines):
            named = _COUNTED.sub(lambda found: self._counted.setdefault(found[0], f"<id {len(self._counted)}>"), line)
            named = _BEFORE.sub(_sorted_names, named)
            if named != line:
                lines[at] = _CRC.sub(r"\1<crc>", named)
        return "\n".join(lines)


def _sorted_names(found: "re.Match[str]") -> str:
    offsets = json.loads(f"{{{found[0]}}}")["before"]
    return f'"before": {json.dumps(dict(sorted(offsets.items())))}'


def _redacted(text: str) -> str:
    return re.sub(r"secret-\d+", "[gone]", text)


def _native(message: Plain) -> Any:
    """Return a message with its bytes."""
    if isinstance(message, dict):
        if "$bytes" in message:
            return base64.b64decode(message["$bytes"])
        return {key: _native(value) for key, value in message.items()}
    return [*map(_native, message)] if isinstance(message, list) else message


async def _counted(work: Coroutine[Any, Any, Plain], last: int, cancel: Callable[[], object]) -> Plain:
    """Await *work*, and call *cancel* when it waits for the *last* time, counted from 1; 0: never."""
    return await _stepped(work, last, cancel)


@types.coroutine
def _stepped(work: Coroutine[Any, Any, Plain], last: int, cancel: Callable[[], object]) -> Any:
    step: Callable[[], Any] = partial(work.send, None)
    for number in itertools.count(1):
        try:
            waited = step()
        except StopIteration as end:
            return end.value
        if number == last:
            asyncio.get_running_loop().call_soon(cancel)
        try:
            result = yield waited
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the coroutine
            step = partial(work.throw, error)
        else:
            step = partial(work.send, result)


def _count_identifiers(salt: str) -> None:
    numbers = itertools.count(1)
    uuid.uuid4 = lambda: uuid.UUID(f"b0a7{salt:0>4}{next(numbers):024x}")


def _do_nothing(*_: object) -> None:
    pass


def _built_in_then(built_in: Callable[[str], Any], name: str) -> Any:
    """Return the document *name* as the baseline has it; *built_in* returns that of the version."""
    found = built_in(name)
    known = json.loads((Path(__file__).parent.parent / "data" / "presets_of_719dc1b.json").read_text("utf-8"))
    return type(found).read(known[name], name=name, source=name) if name in known else found


def _first_lines(source: Any, max_tokens: int, counter: Any, *, before: str = "") -> str:
    """Return as many of the first lines as fit behind *before*, with their numbers."""
    shown = ""
    for number, line in enumerate("".join(source.blocks()).split("\n"), 1):
        longer = f"{shown}{number}: {line[:400]}\n"
        if counter.count(before + longer) > max_tokens:
            break
        shown = longer
    return shown.removesuffix("\n")


async def _play(names: Names, workdir: str) -> None:
    player = Player(names, workdir)
    for line in sys.stdin:
        print(json.dumps(await player.answer(json.loads(line))), flush=True)  # noqa: T201 - the protocol


def main() -> None:
    """Answer each line of standard input."""
    version, salt, workdir = sys.argv[1:]
    _count_identifiers(salt)
    dt.datetime = Clock  # type: ignore[misc]
    asyncio.run(_play(Names(is_new=version == "new"), workdir))


if __name__ == "__main__":
    main()
