"""What a file system may leave of a run of operations when the power fails: record, enumerate, rebuild.

The model promises less than any real file system, so that what holds here holds there:

- Writes to a file since its last sync are there or not, one 512-byte piece independently of the other, the new
  size with or without them (then the bytes are zeros). So are cuts.
- Entries made, renamed or removed in a directory since its last sync are there or not, in any combination. A rename
  is one change. A file's sync says nothing about its entry; a directory's sync nothing about the bytes of its files.

Sources: SQLite's ``test6.c`` for the idea; ALICE (OSDI 2014) for the model; CrashMonkey (OSDI 2018) for short
workloads, looked through without gaps.
"""

import fcntl
import hashlib
import itertools
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

T = TypeVar("T")

PIECE_BYTES = 512
ROOT = 0
"""The node of the directory that is there from the beginning, with its entry durable."""

MAX_SUBSET_OF = 5
"""Up to so many unsynced pieces of one file, all their subsets are states; beyond it the telling ones."""


@dataclass(frozen=True, slots=True)
class Make:
    """A file or directory came to be, without a name yet."""

    node: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class Entries:
    """Names in a directory changed, together or not at all; None for a name that is gone."""

    node: int
    changes: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes were written to a file."""

    node: int
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A file was cut, or grew without bytes."""

    node: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Sync:
    """What was written to the file, or changed in the directory, is durable."""

    node: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A call began, or was acknowledged."""

    call: int
    is_acknowledged: bool


Operation: TypeAlias = Make | Entries | Write | Resize | Sync | Mark


@dataclass(frozen=True, slots=True)
class State:
    """Files and directories as a crash left them, by node."""

    directories: dict[int, dict[str, int]]
    files: dict[int, bytes]

    def paths(self, node: int = ROOT, above: str = "") -> Iterator[tuple[str, int]]:
        """Yield every path below *node* with what it leads to, a directory before what is in it."""
        for name, inner in sorted(self.directories[node].items()):
            yield f"{above}{name}", inner
            if inner in self.directories:
                yield from self.paths(inner, f"{above}{name}/")

    def tree(self) -> dict[str, bytes | None]:
        """Return the content of every file by its path; None for a directory."""
        return {path: self.files.get(node) for path, node in self.paths()}

    def digest(self) -> bytes:
        """Return what two states have in common that look the same."""
        found = hashlib.sha256()
        for path, content in self.tree().items():
            size = -1 if content is None else len(content)
            found.update(f"{path}\0{size}\0".encode())
            found.update(content or b"")
        return found.digest()

    def build(self, folder: Path) -> dict[tuple[int, int], int]:
        """Put the state into the new directory *folder*; return the node of each device and inode."""
        folder.mkdir()
        made, nodes = {ROOT: folder}, {_identity(os.stat(folder)): ROOT}
        for name, node in self.paths():
            path = folder / name
            if node in made:
                os.link(made[node], path)
            elif node in self.directories:
                os.mkdir(path, 0o700)
            else:
                _put(path, self.files[node])
            made[node] = path
            nodes[_identity(os.stat(path))] = node
        return nodes


def scanned(folder: Path) -> tuple[State, dict[tuple[int, int], int]]:
    """Return *folder* as it is, and the node of each device and inode."""
    state, nodes = State({ROOT: {}}, {}), {_identity(os.stat(folder)): ROOT}
    for path in sorted(folder.rglob("*")):
        node = nodes.setdefault(_identity(path.lstat()), len(nodes))
        state.directories[nodes[_identity(path.parent.stat())]][path.name] = node
        if path.is_dir():
            state.directories[node] = {}
        else:
            state.files[node] = path.read_bytes()
    return state, nodes


class Disk:
    """What is durable, and what has been done since."""

    def __init__(self, state: State, operations: Iterable[Operation] = ()) -> None:
        """Begin with *state*, all of it durable, and do *operations*."""
        self._durable = State(dict(state.directories), dict(state.files))
        self._pending: dict[int, list[Operation]] = {}
        self.apply(*operations)

    @property
    def next_node(self) -> int:
        """A number that no file or directory has."""
        return 1 + max((*self._durable.directories, *self._durable.files))

    def digest(self) -> bytes:
        """Return what two disks have in common that look the same, and will whatever is done to them."""
        found = hashlib.sha256(repr(sorted(self._durable.directories.items())).encode())
        found.update(repr(sorted(self._durable.files.items())).encode())
        found.update(repr(sorted((node, changes) for node, changes in self._pending.items() if changes)).encode())
        return found.digest()

    def copy(self) -> "Disk":
        """Return a disk of its own that is as this one."""
        made = Disk(self._durable)
        made._pending = {node: list(operations) for node, operations in self._pending.items()}
        return made

    def apply(self, *operations: Operation) -> None:
        """Do *operations*."""
        for operation in operations:
            match operation:
                case Make(node=node, is_directory=True):
                    self._durable.directories[node] = {}
                case Make(node=node):
                    self._durable.files[node] = b""
                case Sync(node=node) if node in self._durable.directories:
                    self._durable.directories[node] = self._entries(node, self._pending.pop(node, ()))
                case Sync(node=node):
                    self._durable.files[node] = _written(self._durable.files[node], self._pending.pop(node, ()))
                case Mark():
                    pass
                case _:
                    self._pending.setdefault(operation.node, []).append(operation)

    def is_due(self, sync: Sync) -> bool:
        """Tell whether *sync* makes anything durable that is not; a name that begins with a dot means nothing yet."""
        return any(
            not isinstance(operation, Entries) or any(name[0] != "." for name, _ in operation.changes)
            for operation in self._pending.get(sync.node, ())
        )

    def cached(self) -> State:
        """Return what a process sees: all that was done."""
        directories = {n: self._entries(n, self._pending.get(n, ())) for n in self._durable.directories}
        files = {n: _written(content, self._pending.get(n, ())) for n, content in self._durable.files.items()}
        return State(directories, files)

    def states(self, limit: int) -> Iterator[State]:
        """Yield what a crash at this moment may leave; some of it more than once.

        Where the states of the directories, or of the files in one of these, combine to more than *limit*, fewer
        states of each are combined, and all states of each looked at with the others as they were, and whole.
        """
        directories = list(self._durable.directories)
        for combination in _combinations([self._directory_states(node) for node in directories], limit):
            found = State(dict(zip(directories, combination, strict=True)), {})
            files = sorted({node for _, node in found.paths() if node not in found.directories})
            for contents in _combinations([self._file_states(node) for node in files], limit):
                yield State(found.directories, dict(zip(files, contents, strict=True)))

    def _entries(self, node: int, changes: Iterable[Operation]) -> dict[str, int]:
        entries = dict(self._durable.directories[node])
        for change in changes:
            assert isinstance(change, Entries)
            for name, inner in change.changes:
                if inner is None:
                    entries.pop(name, None)
                else:
                    entries[name] = inner
        return entries

    def _directory_states(self, node: int) -> list[dict[str, int]]:
        chosen = [self._entries(node, subset) for subset in _subsets(self._pending.get(node, []))]
        return list({tuple(sorted(entries.items())): entries for entries in chosen}.values())

    def _file_states(self, node: int) -> list[bytes]:
        pieces = [piece for operation in self._pending.get(node, ()) for piece in _pieces(operation)]
        return list(dict.fromkeys(_written(self._durable.files[node], subset) for subset in _subsets(pieces)))


@dataclass(frozen=True, slots=True)
class Crash:
    """A state, and what callers had been told by then: calls before *acknowledged* were, *begun* had begun."""

    state: State
    acknowledged: int
    begun: int
    digest: bytes


def crashes(disk: Disk, operations: Iterable[Operation], limit: int, seen: set[bytes] | None = None) -> Iterator[Crash]:
    """Yield every different outcome of a crash at any moment of *operations*, which are done to *disk*.

    A moment that nothing is synced or told after leaves nothing that a later one does not leave, too.

    Args:
        disk: As it was before.
        operations: In order.
        limit: Bounds the states of one moment; see `Disk.states`.
        seen: Outcomes that are left out; those that are yielded are added.
    """
    seen = set() if seen is None else seen
    acknowledged = begun = 0
    for operation in (*operations, None):
        if operation is None or isinstance(operation, Sync | Mark):
            for state in disk.states(limit):
                digest = hashlib.sha256(state.digest() + b"%d %d" % (acknowledged, begun)).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield Crash(state, acknowledged, begun, digest)
        if isinstance(operation, Mark):
            begun = operation.call + 1
            acknowledged = begun if operation.is_acknowledged else acknowledged
        if operation is not None:
            disk.apply(operation)


class Killed(BaseException):
    """Ends a process in the middle of a call: nothing that its handlers of errors do has an effect."""


class Recorder:
    """Writes down, for as long as its block runs, all that the process does to the files of a directory.

    The functions of `os` are replaced, for all threads. Nothing is really synced, which would cost time and prove
    nothing. Nothing is random, so that what is done twice has the same effects.

    Attributes:
        operations: In the order in which they took effect.
    """

    def __init__(
        self, nodes: dict[tuple[int, int], int], next_node: int, *, process: int = 0, killed_after: int | None = None
    ) -> None:
        """Watch what is in *nodes*, by device and inode, and what comes to be in it from *next_node* on.

        Args:
            nodes: What is there.
            next_node: A number that none of them has.
            process: Tells its random names from those of others.
            killed_after: After so many operations, each further call raises `Killed` and does nothing.
        """
        self.operations: list[Operation] = []
        self._random = (f"{process:02d}{number:014d}" for number in itertools.count())
        self._killed_after = killed_after
        self._nodes = nodes
        self._next_node = next_node
        self._guard = threading.RLock()
        self._restoring = ExitStack()

    def __enter__(self) -> Self:
        """Begin to record."""
        recorded: dict[str, Callable[..., Any]] = {
            "open": self._open, "mkdir": self._mkdir, "link": self._link, "rename": self._rename,
            "replace": self._rename, "unlink": self._unlink, "remove": self._unlink, "rmdir": self._unlink,
            "write": self._write, "writev": self._write, "pwrite": self._pwrite, "ftruncate": self._ftruncate,
            "fsync": self._sync, "fdatasync": self._sync,
        }  # fmt: skip
        for name, wrapper in recorded.items():
            self._replace(os, name, wrapper)
        self._replace(fcntl, "fcntl", self._fcntl)
        self.put(os, "urandom", lambda size: next(self._random).encode()[:size])
        self.put(secrets, "token_hex", lambda _: next(self._random))
        return self

    def __exit__(self, *_: object) -> None:
        """Put the functions back."""
        self._restoring.close()

    def mark(self, call: int, *, is_acknowledged: bool) -> None:
        """Write down that a call began or was acknowledged."""
        if self._killed_after is not None and len(self.operations) >= self._killed_after:
            raise Killed
        self.operations.append(Mark(call, is_acknowledged))

    def put(self, module: Any, name: str, value: Any) -> None:
        """Let *value* stand in for what *module* has as *name*, for as long as the block runs."""
        self._restoring.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def _replace(self, module: Any, name: str, wrapper: Callable[..., Any]) -> None:
        real = getattr(module, name, None)
        if real is None:
            return

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._guard:
                if self._killed_after is not None and len(self.operations) >= self._killed_after:
                    raise Killed
                return wrapper(real, *args, **kwargs)

        self.put(module, name, call)

    def _open(
        self, real: Callable[..., int], path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        is_new = bool(flags & os.O_CREAT) and not _exists(path, dir_fd)
        descriptor = real(path, flags, mode, dir_fd=dir_fd)
        if is_new:
            self._make(os.fstat(descriptor), path, dir_fd, is_directory=False)
        elif flags & os.O_TRUNC:
            self._add(descriptor, lambda node: Resize(node, 0))
        return descriptor

    def _mkdir(self, real: Callable[..., None], path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        self._make(os.stat(path, dir_fd=dir_fd, follow_symlinks=False), path, dir_fd, is_directory=True)

    def _link(self, real: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        real(source, target, **options)
        folder = options.get("dst_dir_fd")
        node = self._nodes.get(_identity(os.stat(target, dir_fd=folder, follow_symlinks=False)))
        self._change(self._parent(target, folder), (os.path.basename(target), node))

    def _rename(self, real: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        above, below = (
            self._parent(source, options.get("src_dir_fd")),
            self._parent(target, options.get("dst_dir_fd")),
        )
        node = self._nodes.get(_identity(os.stat(source, dir_fd=options.get("src_dir_fd"), follow_symlinks=False)))
        real(source, target, **options)
        assert above == below, "a rename between directories has no place in the model yet"
        self._change(above, (os.path.basename(source), None), (os.path.basename(target), node))

    def _unlink(self, real: Callable[..., None], path: Any, *, dir_fd: int | None = None) -> None:
        above = self._parent(path, dir_fd)
        real(path, dir_fd=dir_fd)
        self._change(above, (os.path.basename(path), None))

    def _write(self, real: Callable[..., int], descriptor: int, content: Any) -> int:
        written = real(descriptor, content)
        whole = bytes(content) if not isinstance(content, list | tuple) else b"".join(map(bytes, content))
        end = os.lseek(descriptor, 0, os.SEEK_CUR) if self._knows(descriptor) else 0
        self._add(descriptor, lambda node: Write(node, end - written, whole[:written]))
        return written

    def _pwrite(self, real: Callable[..., int], descriptor: int, content: Any, offset: int) -> int:
        written = real(descriptor, content, offset)
        self._add(descriptor, lambda node: Write(node, offset, bytes(content)[:written]))
        return written

    def _ftruncate(self, real: Callable[..., None], descriptor: int, size_bytes: int) -> None:
        real(descriptor, size_bytes)
        self._add(descriptor, lambda node: Resize(node, size_bytes))

    def _sync(self, real: Callable[..., None], descriptor: int) -> None:
        if self._knows(descriptor):
            self._add(descriptor, Sync)
        else:
            real(descriptor)

    def _fcntl(self, real: Callable[..., Any], descriptor: int, command: int, *args: Any) -> Any:
        if command == getattr(fcntl, "F_FULLFSYNC", None) and self._knows(descriptor):
            return self._add(descriptor, Sync)
        return real(descriptor, command, *args)

    def _make(self, status: os.stat_result, path: Any, dir_fd: int | None, *, is_directory: bool) -> None:
        above = self._parent(path, dir_fd)
        if above is not None:
            node, self._next_node = self._next_node, self._next_node + 1
            # An inode that was freed may come back: it is another file.
            self._nodes[_identity(status)] = node
            self.operations.append(Make(node, is_directory))
            self._change(above, (os.path.basename(path), node))

    def _change(self, above: int | None, *changes: tuple[str, int | None]) -> None:
        if above is not None:
            self.operations.append(Entries(above, changes))

    def _add(self, descriptor: int, operation: Callable[[int], Operation]) -> None:
        node = self._nodes.get(_identity(os.fstat(descriptor)))
        if node is not None:
            self.operations.append(operation(node))

    def _knows(self, descriptor: int) -> bool:
        return _identity(os.fstat(descriptor)) in self._nodes

    def _parent(self, path: Any, dir_fd: int | None) -> int | None:
        above = os.path.dirname(path)
        status = os.stat(above or ".", dir_fd=dir_fd) if above or dir_fd is None else os.fstat(dir_fd)
        return self._nodes.get(_identity(status))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _put(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _pieces(operation: Operation) -> Iterator[Operation]:
    """Yield what may reach the disk of a write or a cut, one without the other; of a write the size first."""
    if isinstance(operation, Write):
        end = operation.offset + len(operation.content)
        yield Write(operation.node, end, b"")
        start = operation.offset
        while start < end:
            stop = min(end, start - start % PIECE_BYTES + PIECE_BYTES)
            yield Write(operation.node, start, operation.content[start - operation.offset : stop - operation.offset])
            start = stop
    else:
        yield operation


def _written(content: bytes, operations: Iterable[Operation]) -> bytes:
    found = bytearray(content)
    for operation in operations:
        match operation:
            case Write(offset=offset, content=piece):
                found.extend(bytes(max(0, offset - len(found))))
                found[offset : offset + len(piece)] = piece
            case Resize(size_bytes=size_bytes):
                del found[size_bytes:]
                found.extend(bytes(size_bytes - len(found)))
            case _:
                raise TypeError(operation)
    return bytes(found)


def _subsets(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield none of *items*, all of them, then others: every subset of a few, of many the telling ones."""
    count = len(items)
    yield ()
    yield tuple(items)
    if count <= MAX_SUBSET_OF:
        for size in range(1, count):
            yield from itertools.combinations(items, size)
        return
    for cut in range(1, count):
        yield tuple(items[:cut])
        yield tuple(items[cut:])
        yield (*items[:cut], *items[cut + 1 :])
        yield (items[cut],)
    yield items[0], items[-1]


def _combinations(axes: Sequence[list[T]], limit: int) -> Iterator[tuple[T, ...]]:
    """Yield one state of each axis: in every combination, or in as many as `Disk.states` says."""
    width = max(map(len, axes), default=0)
    while width > 2 and math.prod(min(len(axis), width) for axis in axes) > limit:
        width -= 1
    thinned = [axis[:1] + spread(axis[1:], width - 1) for axis in axes]
    if math.prod(map(len, thinned)) <= limit:
        yield from itertools.product(*thinned)
    else:
        width = 0
    for position, axis in enumerate(axes):
        if len(axis) > width:
            for corner in (0, 1):
                others = [other[min(corner, len(other) - 1)] for other in axes]
                for state in axis:
                    yield (*others[:position], state, *others[position + 1 :])


def spread(items: list[T], count: int) -> list[T]:
    """Return *count* of *items*, evenly spread, the first among them."""
    if len(items) <= count:
        return items
    return [items[position * len(items) // count] for position in range(count)]
