"""Shell commands: their steps, the directories that they enter, their programs, and whether they only read."""

import re
from collections.abc import Iterator
from posixpath import join, normpath
from typing import Final

from buoyline.compression.citations import CUT
from buoyline.compression.identifiers import readable

MAX_COMMAND_CHARS: Final = 4_000
"""The rest is a script or a piped text."""

SUBJECT_CHARS: Final = 40

_STEPS = re.compile(r"&&|\|\||;|\n|(?<![&>|<\\])&(?![&>])")
_QUOTED = re.compile(
    r"(?<!<)<<-?\s*['\"]?([A-Za-z_]\w*)['\"]?(?P<rest>[^\n]*)\n(?:(?:.*?\n)??[ \t]*\1[ \t]*$|.*\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\n(?:[^\"\\]|\\.)*\"|'[^'\n]*\n[^']*'",
    re.DOTALL | re.MULTILINE,
)
"""Here-documents, to the end if theirs was cut off, and quoted texts of several lines: their words run nothing.

The rest of the line that begins a here-document does run: ``cat <<EOF > a.py`` writes a file.
"""

UNQUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
"""A text in quotation marks: a separator or a ``>`` in it separates or redirects nothing."""

_READING_COMMAND = re.compile(
    r"(?:cd|ls|cat|grep|rg|find|head|tail|wc|pwd|which|tree|file|stat|du|df|echo|env|printenv|type|ps|jq|awk|less"
    r"|sed\s+-n|git\s+(?:-\S+\s+\S+\s+)?(?:status|log|diff|show|branch|blame|ls-files|rev-parse|remote|grep|config)"
    r"|gh\s+\w+\s+(?:view|list|diff|status|checks)|gh\s+api\s+[^-\s]\S*\s*(?:--(?:jq|paginate)|$))(?=\s|$)"
)
_WRITES = re.compile(r"(?<![0-9&=-])>(?!&)")
_STEP = re.compile(r"&&|\|\||;|\n")
_PROGRAM = re.compile(r"[\w./-]{1,200}")
_PROGRAM_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")


def command_steps(command: str) -> list[str]:
    """Return the steps of a command, without here-documents; a separator in quotes separates nothing."""
    return [step for step, _ in separated_steps(command)]


def separated_steps(command: str) -> list[tuple[str, str]]:
    """Return the steps of a command, each with the separator behind it; it is ``&`` behind one in the background."""
    text = _QUOTED.sub(lambda found: f"''{found['rest'] or ''}", command[:MAX_COMMAND_CHARS])
    quoted = [match.span() for match in UNQUOTED.finditer(text)]
    steps: list[tuple[str, str]] = []
    start = 0
    for found in _STEPS.finditer(text):
        if not any(begin < found.start() < end for begin, end in quoted):
            steps.append((text[start : found.start()].strip(), found[0]))
            start = found.end()
    return [(step, separator) for step, separator in (*steps, (text[start:].strip(), "")) if step]


def entered(step: str, directory: str) -> str | None:
    """Return the directory behind a step of a command begun in *directory*; None if it is no ``cd``.

    It is empty if it is not known.
    """
    found = step.split()
    if found[:1] not in (["cd"], ["pushd"]):
        return None
    to = found[1].strip("'\"") if len(found) > 1 else ""
    if not to or to.startswith(("-", "$", "~", "`")):
        return ""
    return normpath(join(directory, to))


def directory_behind(command: str, directory: str) -> str:
    """Return the directory behind *command*, begun in *directory*; empty if it is not known as an absolute path."""
    for step in command_steps(command):
        if (inner := entered(step, directory)) is not None:
            directory = inner if inner.startswith("/") else ""
    return directory


def entered_first(command: str, directory: str) -> str:
    """Return the first directory that *command*, begun in *directory*, enters; *directory* if it enters none."""
    found = (entered(step, directory) for step in command_steps(command))
    return next((inner for inner in found if inner is not None), directory)


def only_reads(command: str) -> bool:
    """Return whether no step of a command changes anything, as far as its form says."""
    steps = [step.strip() for step in _STEP.split(command) if step.strip()]
    return all(_READING_COMMAND.match(step) and not _WRITES.search(step) for step in steps)


def programs_in(command: str) -> Iterator[str]:
    """Yield the programs of a command's steps, and those that their output is piped to, with their subcommands.

    Directories, variables and options are left out.
    """
    for part in _PROGRAM_SEPARATOR.split(command[:MAX_COMMAND_CHARS]):
        words = [word for word in part.split() if not word.startswith("-") and "=" not in word]
        if words and _PROGRAM.fullmatch(words[0]) and words[0] not in {"cd", "export", "set", "source"}:
            yield readable(" ".join(words[: 3 if words[1:2] in (["run"], ["exec"]) else 2]))


def program_of(command: str) -> str:
    """Return the first program of a command, since later ones are mostly filters; its first words if it has none."""
    text = readable(command[:MAX_COMMAND_CHARS])
    if len(text) > SUBJECT_CHARS:
        words = text[: SUBJECT_CHARS + 1].rpartition(" ")[0]
        text = words or f"{text[:SUBJECT_CHARS]}{CUT}"
    return next(programs_in(command), text)
