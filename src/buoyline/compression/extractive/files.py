"""Files: which ones a call creates, changes, deletes, moves or reads, and the change of each in one clause.

A file has several spellings: absolute, relative, and relative to a directory that a command entered. Directories only
help to compare. The spelling that is kept was written by somebody: the absolute one if there is one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from posixpath import basename, commonprefix, join, normpath
from typing import Any, Final, NamedTuple

from buoyline.compression.extractive.calls import Step, is_change, letters_of, patched_files
from buoyline.compression.extractive.checks import check_in, failing_lines
from buoyline.compression.extractive.commands import UNQUOTED, command_steps, entered
from buoyline.compression.extractive.lines import LineFinder, merged_pointers
from buoyline.compression.identifiers import readable
from buoyline.compression.pointers import Pointer
from buoyline.compression.work_state import MAX_TEXT_CHARS, FileOperation, FileState
from buoyline.previews.outlines import defined_names

MAX_LINE_CHARS: Final = 90
"""Of a quoted line of code."""

MAX_SHOWN_LINES: Final = 2
"""A change of so many lines is shown line by line, a larger one by its most telling line."""

MAX_NAMES: Final = 8
"""Of the definitions or headings of a new file."""

MAX_READ_LINES: Final = 40
MAX_READ_CHARS: Final = 400

_OLD_KEYS: Final = ("oldstring", "oldstr", "oldtext", "search", "old")
_NEW_KEYS: Final = ("newstring", "newstr", "newtext", "replace", "replacement", "new")
_CONTENT_KEYS: Final = frozenset({"content", "contents", "filetext"})

_NAMED = re.compile(r"\b(?:func(?:\s*\([^)]*\))?|def|class|function|fn|interface|struct|type)\s+(\w{2,80})")
_DEFINES = re.compile(r"\b(?:func|def|class|function|type|interface|struct|fn)\b")
_COMMENTS: Final = ("//", "#", "/*", "*", "import ", "from ")
_SETS_UP = re.compile(r"#!|<[!?]|</?(?:html|head|meta)\b|(?:import|from|package|use|using|#include)\b|[\W_]*$")
_STRING = re.compile(r"""["'][^"']*["'][,;]?""")
_LITERAL = re.compile(r"""(["'])[^"'\n]*\1""")
_WORD = re.compile(r"\w{2,80}")

_REDIRECT = re.compile(r"(?<![0-9&=>-])>{1,2}\s{0,4}([\w./~@+-]{1,400})")
_SHELL_FILE = re.compile(r"^(?:git\s+)?(rm|mv|cp|touch|tee|unlink)\s+((?:-\S+\s+)*)(.+)$")
_SED = re.compile(r"^sed\s+-i\S*\s.*?\s([\w./~@+-]{1,400})$")
_PATTERN = re.compile(r"[*?$`{}()\\]")
_DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr")

_OPEN_FILE = re.compile(
    r"^[(\[](?:Open )?File: (/?[^\s()\[\]]{1,400})(?: \(\d+ lines[^)\n]*\))?[)\]]\s*$", re.MULTILINE
)
"""Line in which an editor names the file that it shows: calls that change it need no path."""
_PATCHED: Mapping[str, FileOperation] = {"Add": "created", "Update": "changed", "Delete": "deleted"}
_NAMED_OPERATIONS: Final[Mapping[str, FileOperation]] = {
    "delete": "deleted",
    "remove": "deleted",
    "move": "moved",
    "rename": "moved",
    "create": "created",
}
"""Words of a tool's name that say what a replaced or written text does not, the first one counts."""


class FileChange(NamedTuple):
    """A call creates, changes, deletes, moves or reads a file.

    Attributes:
        path: As the call has it: a path that nobody wrote cannot be found again.
        new_path: Where it moves to; else empty.
        directory: The directory that the command entered before; empty if it entered none.
    """

    operation: FileOperation
    path: str
    new_path: str = ""
    directory: str = ""


def changes_in(step: Step) -> Iterator[FileChange]:
    """Yield the files that a call touches, in order; none if it has no result."""
    action = step.action
    if step.reading is None:
        return
    if step.has_failed:
        if failing_lines(step.reading.text):  # of a check, so the steps before it were taken
            yield from files_in(action.command, action.directory, before_checks=True)
    elif action.operation == "change":
        named: Iterator[FileOperation] = (_NAMED_OPERATIONS[word] for word in _NAMED_OPERATIONS if word in action.words)
        written: FileOperation = "created" if is_whole_file(action.arguments) else "changed"
        operation = next(named, None) or written
        patched = patched_files(action.arguments)
        for path in action.paths:
            patch = _PATCHED.get(patched.get(path, ""))
            yield FileChange(patch or operation, path, directory=action.directory)
    elif action.operation == "look":
        yield from (FileChange("read", path, directory=action.directory) for path in action.paths)
    elif action.operation == "run" and not action.is_harmless:
        yield from files_in(action.command, action.directory)
    elif not action.paths and is_change(action.words) and (shown := _OPEN_FILE.findall(step.reading.text)):
        yield FileChange("changed", shown[-1])


def files_in(command: str, directory: str = "", *, before_checks: bool = False) -> Iterator[FileChange]:
    """Yield the files that a command changes, in order; quoted texts of several lines and here-documents do nothing.

    It begins in *directory*, empty if that is not known. With *before_checks*, only steps before its first check count.
    """
    for step in command_steps(command):
        if before_checks and check_in(step):
            return
        if (inner := entered(step, directory)) is not None:
            directory = inner
            continue
        for path in _REDIRECT.findall(UNQUOTED.sub("''", step)):
            if path not in _DEVICES:
                yield FileChange("created", path, directory=directory)
        for words in (one.strip() for one in step.split("|")):
            if (found := _SHELL_FILE.match(words)) is not None:
                yield from _changes_by(found[1], list(_paths_in(found[3])), directory)
            elif (edited := _SED.match(words)) is not None:
                yield FileChange("changed", edited[1], directory=directory)


def _changes_by(program: str, paths: Sequence[str], directory: str) -> Iterator[FileChange]:
    match program, paths:
        case "mv", [old, new]:
            yield FileChange("moved", old, new, directory)
        case "cp", [_, new]:
            yield FileChange("created", new, directory=directory)
        case "rm" | "unlink", _:
            yield from (FileChange("deleted", path, directory=directory) for path in paths)
        case "touch" | "tee", _:
            yield from (FileChange("created", path, directory=directory) for path in paths)
        case _:
            pass


def _paths_in(words: str) -> Iterator[str]:
    """Yield the words up to a redirection that may be paths; a pattern names no file."""
    for word in words.split():
        if word.startswith((">", "2>", "&>", "<", "#")):
            return
        bare = word.strip("'\"")
        if bare and not word.startswith("-") and not _PATTERN.search(bare):
            yield bare


def note_change(
    files: dict[str, FileState], change: FileChange, step: Step, citations: LineFinder, *, home: str = ""
) -> None:
    """Note a change of the call *step* in *files*, by the spelling that is kept; *home* is as for `known_name`.

    If a directory is deleted or moved, so are the known files in it.
    """
    changes = [change]
    if change.operation in {"deleted", "moved"}:
        begin = join(home, change.directory, change.path).rstrip("/") + "/"
        inner = [one.path for one in files.values() if join(one.directory, one.path).startswith(begin)]
        changes += [FileChange(change.operation, path) for path in inner if path != change.path]
    if change.new_path:
        path = change.new_path
        path = join(path, basename(change.path)) if path.endswith(("/", ".")) else path
        changes.append(FileChange("created", path, directory=change.directory))
    for one in changes:
        _note(files, one, step, citations, home=home)


def _note(files: dict[str, FileState], change: FileChange, step: Step, citations: LineFinder, *, home: str) -> None:
    operation, path, _, directory = change
    index = step.call.index
    name = known_name(files, path, directory, home=home)
    known = files.pop(name, None) if name is not None else None
    spelled = path
    if known is not None and known.path.startswith("/") and not path.startswith("/"):
        spelled, directory = known.path, ""
    key = spelled if spelled not in files else join(directory, spelled)
    edit = edit_in(step.action.arguments)
    places = (citations.of(step.call, words) for words in (path, *(edit.lines if edit is not None else ())))
    pointers = merged_pointers(chain.from_iterable(places))
    if step.reading is not None and not any(path in str(value) for value in step.action.arguments.values()):
        pointers = merged_pointers((*citations.of_result(step.reading, path), *pointers))  # the editor names the file
    if known is not None and spelled != path:  # this call does not hold the spelling that is kept
        pointers = merged_pointers((*known.pointers[:1], *pointers))
    if operation == "read":
        found = known if known is not None and known.operation != "read" else None
        found = found or FileState(spelled, "read", 0, index, pointers)
        excerpt = step.reading.excerpt if step.reading is not None else None
        content = step.answer.pointer if step.answer is not None else None
        if excerpt is not None and excerpt.path:
            content = Pointer(excerpt.path, 1, excerpt.lines[-1][0] if excerpt.lines else 1)
        files[key] = replace(found, path=spelled, content=content, directory=directory)
        return
    before = known.operation if known is not None else None
    if operation == "changed" and before == "created":
        operation = "created"
    elif operation == "created" and before in {"read", "changed"}:
        operation = "changed"
    changes = (known.changes if known is not None else 0) + 1
    clause = edit.clause[:MAX_TEXT_CHARS] if edit is not None else ""
    files[key] = FileState(spelled, operation, changes, index, pointers, clause, directory=directory)


def known_name(files: Mapping[str, FileState], path: str, directory: str = "", *, home: str = "") -> str | None:
    """Return the key of *files* that names the same file as *path*; None if there is none.

    *directory* is what the same command entered; *home* is that of the commands before, which may not be that of
    *path*. Both are empty if not known.
    """
    if path in files and files[path].directory == directory:
        return path
    wanted = normpath(join(directory, path))
    last = wanted.rpartition("/")[2]
    alike = (name for name in files if name == last or name.endswith(f"/{last}"))
    names = {name: _full_name(files[name].directory, name) for name in alike}
    for spelled in (wanted, normpath(join(home, wanted))):
        if (same := next((name for name, full in names.items() if full == spelled), None)) is not None:
            return same
    if home and "/" not in wanted:  # every directory may have one of that name
        return None
    inner = [name for name, full in names.items() if _is_tail(full, wanted) or _is_tail(wanted, full)]
    return inner[0] if len(inner) == 1 else None


@lru_cache(maxsize=4_096)
def _full_name(directory: str, name: str) -> str:
    """Return the whole path of a file; many files of one name are compared with each other again and again."""
    return normpath(join(directory, name))


def _is_tail(path: str, tail: str) -> bool:
    """Return whether *tail* is relative and ends *path*; climbing paths end nothing."""
    return path.endswith(f"/{tail}") and not tail.startswith(("/", ".."))


# The change of a file in one clause, from the arguments of the call that made it.


def is_whole_file(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call that changes a file gives its whole content."""
    return any(letters_of(key) in _CONTENT_KEYS for key in arguments)


class Edit(NamedTuple):
    """A change in one clause, ``old → new``, and the lines of code that it quotes, as the call has them."""

    clause: str
    lines: tuple[str, ...]


def edit_in(arguments: Mapping[str, Any]) -> Edit | None:
    """Return the change that a call with *arguments* makes; None if its form is not known or nothing changes."""
    if content := _content_in(arguments):
        return _written(content.splitlines())
    texts = {letters_of(key): value for key, value in arguments.items() if isinstance(value, str)}
    old = next((texts[key] for key in _OLD_KEYS if key in texts), "")
    new = next((texts[key] for key in _NEW_KEYS if key in texts), None)
    if new is None:
        return None
    before = [line.strip() for line in old.splitlines()]
    after = [line.strip() for line in new.splitlines()]
    removed = [line for line in before if line and line not in set(after)]
    added = [line for line in after if line and line not in set(before)]
    if not added:
        return Edit(f"removed {_quoted(removed[0])}", (removed[0],)) if removed else None
    edit = _replaced(removed, added)
    named = next(((found[1], line) for line in before if (found := _NAMED.search(line))), None)
    if named is None or any(named[0] in line for line in edit.lines):
        return edit
    return Edit(f"in {named[0]}: {edit.clause}", (named[1], *edit.lines))


def _written(lines: Sequence[str]) -> Edit | None:
    """Return what a new file defines, else its first line of code."""
    if names := defined_names(lines, MAX_NAMES):
        return Edit(", ".join(map(readable, names)), ())
    first = next((line for line in lines if line.strip() and not _is_remark(line.strip())), "").strip()
    return Edit(_quoted(first), (first,)) if first else None


def _replaced(removed: Sequence[str], added: Sequence[str]) -> Edit:
    if not removed:
        line = _telling(added, [])
        return Edit(f"+ {_quoted(line)}", (line,))
    if len(removed) == len(added) <= MAX_SHOWN_LINES:
        pairs = list(zip(removed, added, strict=True))
    else:
        new = _telling(added, removed)
        pairs = [(_telling(removed, added), new)]
    clause = "; ".join(f"{_quoted(old, new)} → {_quoted(new, old)}" for old, new in pairs)
    return Edit(clause, tuple(line for pair in pairs for line in pair))


def _telling(lines: Sequence[str], others: Sequence[str]) -> str:
    """Return the line that says most about a change: a definition, else that with the most words not in *others*."""
    code = [line for line in lines if not _is_remark(line)] or lines
    known = _names("\n".join(others))
    return next(
        (line for line in code if _DEFINES.search(line)),
        max(code, key=lambda line: len(_names(line[:MAX_READ_CHARS]) - known)),
    )


def _names(code: str) -> set[str]:
    return set(_WORD.findall(_LITERAL.sub("", code)))


def _is_remark(line: str) -> bool:
    """Return whether a line of code is a comment, an import or a bare string."""
    return line.startswith(_COMMENTS) or _STRING.fullmatch(line) is not None


def _quoted(line: str, other: str = "") -> str:
    """Return a line in backquotes, cut so that it shows where it differs from *other*."""
    shown = readable(line)
    if len(shown) <= MAX_LINE_CHARS:
        return f"`{shown}`"
    same = len(commonprefix([shown, readable(other)]))
    if same > MAX_LINE_CHARS // 2:
        start = shown.rfind(" ", 0, same - MAX_LINE_CHARS // 4) + 1
        shown = f"…{shown[start:]}" if start else shown
    return f"`{shown}`" if len(shown) <= MAX_LINE_CHARS else f"`{shown[:MAX_LINE_CHARS].rstrip()}…`"


def beginning_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a file that a call with *arguments* writes, without imports; empty for an edit."""
    said = (readable(line) for line in _content_in(arguments).splitlines()[:MAX_READ_LINES])
    return [line for line in said if line and not _SETS_UP.match(line)]


def _content_in(arguments: Mapping[str, Any]) -> str:
    found = (value for key, value in arguments.items() if letters_of(key) in _CONTENT_KEYS)
    return next((value for value in found if isinstance(value, str)), "")
