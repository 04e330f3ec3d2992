"""`grep`: lines that match a pattern, in time linear in the bytes."""

import importlib
import re
import time
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from buoyline.errors import ConfigError, StorageError
from buoyline.lookups.answer import DATA_LABEL, Answer, AnswerRow, Counter, Frame, Line, fitted, merged, numbered, shown
from buoyline.lookups.sources import Sources, Target, places
from buoyline.workspace.workspace import Workspace

MAX_PATTERN_CHARS = 1_000

FindFirst = Callable[[bytes, int, int], int]
r"""Returns where the first match between two positions begins, or -1. A match lies within one line; ``^``, ``$`` and
``\b`` see the bytes before the first position and after the second."""


# RE2 cannot be interrupted. A pattern of 8,106 instructions took 9 s for 256 KiB; those of up to 2,000 take 4 ms.
_MAX_PROGRAM_SIZE = 2_000

# While RE2 compiles a pattern it holds the interpreter lock. With its own limit of 8 MB, ``(?i)\pL{400}`` took
# 184 ms; with this one 5. Searching is as fast.
_COMPILED_BYTES = 1 << 20

# Blocks of lines are searched at once, so anchors of a text become anchors of a line.
_ESCAPE = re.compile(rb"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


def compile_pattern(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> FindFirst:
    """Prepare *pattern* for searching lines of UTF-8.

    With RE2 no pattern that a model wrote can hang the process. Python's own `re` takes more than ten seconds for
    ``(a+)+$`` on thirty characters and holds the interpreter lock meanwhile. *literal* takes *pattern* for plain text,
    and *ignore_case* upper and lower case for the same, in all scripts.

    Raises:
        ConfigError: *pattern* is empty, holds a line end, is too long or too large, or is not RE2 syntax.
    """
    try:
        needle = pattern.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("pattern", f"holds a lone surrogate at {error.start}, which no text has") from error
    if not pattern or "\n" in pattern or len(pattern) > MAX_PATTERN_CHARS:
        problem = f"must have 1 to {MAX_PATTERN_CHARS:,} characters and no line end: each line is searched on its own"
        raise ConfigError("pattern", problem)
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.literal, options.case_sensitive = literal, not ignore_case
    options.never_nl = options.never_capture = True
    options.max_mem = _COMPILED_BYTES
    options.log_errors = False
    anchors = {rb"\A": b"^", rb"\z": b"$"}
    by_line = _ESCAPE.sub(lambda escape: anchors.get(escape[0], escape[0]), needle)
    expression = needle if literal else b"(?m)" + by_line
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = b"".join(part for part in error.args if isinstance(part, bytes)).decode("utf-8", "replace")
        problem = (
            f"not RE2 syntax, which has no look-around and no back-references: {reason.replace('(?m)', '', 1)}; "
            "\\Q before a text searches for it as it is"
        )
        raise ConfigError("pattern", problem) from error

    if compiled.programsize > _MAX_PROGRAM_SIZE:
        raise ConfigError("pattern", "is too large; give smaller repetitions, or fewer alternatives")
    search = compiled.search

    def find_first(content: bytes, position: int, end: int) -> int:
        match = search(content, position, end)
        return -1 if match is None else int(match.start())

    return find_first


MAX_HITS = 10_000
MAX_CONTEXT_LINES = 100

# RE2 cannot be interrupted, so the clock is looked at after so many bytes.
_STEP_BYTES = 1 << 18

_NAMED_FILES = 5
_FAR = 1 << 62


class Hits(NamedTuple):
    """Path and line number of each hit, and what kept others from being found."""

    found: Sequence[tuple[str, int]]
    problem: str = ""


def grep(
    workspace: Workspace,
    pattern: str,
    path: str | Sequence[str] | None = None,
    *,
    context: int = 0,
    ignore_case: bool = False,
    literal: bool = False,
    last: bool = False,
    start: int = 1,
    session: str | None = None,
    live: bool = False,
    timeout_s: float = 30.0,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
) -> Answer:
    """Search files line by line for *pattern*, in RE2 syntax or, with *literal*, plain text.

    *path* is as for `read`, or a pattern of names such as ``tool_result-*.txt``, or several of these; None searches
    all that was archived or offloaded. *context* lines are shown around each hit. With *last* the newest hits come
    first. *start* is the number of the first hit to show. The time is linear in the bytes; after *timeout_s* seconds
    the answer has the hits so far. For the other arguments see `buoyline.lookups`.

    Returns:
        Each path after ``==``, below it hits as ``line: text`` and lines of context as ``line- text``. A row after
        ``@`` says who or which tool wrote the lines below it. `Answer.total` counts up to 10,000 hits. If there is no
        hit, those that differ in case.

    Raises:
        ConfigError: *pattern* is not RE2 syntax or too large, another argument is out of range.
        NotFoundError: There is no such file or session.
    """
    if not 0 <= context <= MAX_CONTEXT_LINES or start < 1:
        raise ConfigError("context", f"must be 0 to {MAX_CONTEXT_LINES}, and start 1 or more")
    sources, deadline = Sources(workspace, session, live=live), time.monotonic() + timeout_s
    searched = places(sources, path, newest_first=last)
    find_first = compile_pattern(pattern, literal=literal, ignore_case=ignore_case)
    hits, note = _find(sources, searched, find_first, deadline, last=last), ""
    if not hits.found and not hits.problem and not ignore_case:
        find_first = compile_pattern(pattern, literal=literal, ignore_case=True)
        again = _find(sources, searched, find_first, deadline, last=last)
        hits, note = (again, "No hit in this case; without regard to case: ") if again.found else (hits, "")
    files = "1 file" if len(searched) == 1 else f"{len(searched):,} files"
    total, problem = len(hits.found), hits.problem + sources.unread_row()
    if total < start:
        return Answer(f"[No {'further ' if total else ''}hit in {files}.]\n{problem}", total=total)
    counted = Counts(name for name, _ in hits.found)
    per_file = ", ".join(f"{name.rpartition('/')[2]} {count:,}" for name, count in counted.most_common(_NAMED_FILES))
    listed = f" ({per_file})" if len(counted) > 1 and len(per_file) < max_tokens // 3 else ""

    def frame(rows: Sequence[AnswerRow]) -> Frame:
        end = start + sum(line.is_hit for row in rows for line in row.lines)
        order = ", the newest first" if last else ""
        heading = f"[{note}Hits {start}-{end - 1} of {total:,} in {files}{listed}{order}. {DATA_LABEL}]\n"
        return Frame(heading + problem, {"start": end} if end <= total else {})

    for around in (context, 0):
        page = hits.found[start - 1 :][: max(max_tokens // (2 + 2 * around), 1)]
        rows = _rows(sources, page, around, last=last)
        answer = fitted(rows, frame, total=total, max_tokens=max_tokens, counter=counter)
        if any(line.is_hit for line in answer.lines):
            break  # else the lines before the first hit fill the answer
    return answer


def _find(sources: Sources, searched: Iterable[Target], find_first: FindFirst, deadline: float, *, last: bool) -> Hits:
    """Return the first hits in *searched*; with *last* those of each file from its end."""
    found: list[tuple[str, int]] = []
    problem = ""
    for place in searched:
        numbers: deque[int] = deque(maxlen=MAX_HITS if last else None)
        try:
            for number in _hits_in(sources.blocks(place.name), place, find_first, deadline):
                numbers.append(number)
                if not last and len(found) + len(numbers) == MAX_HITS:
                    break
        except TimeoutError:
            problem = f"[The time was up in {place.name}: give fewer files as path.]\n"
        except StorageError as error:
            sources.unread[place.name] = str(error.strerror)
        found += ((place.name, number) for number in (reversed(numbers) if last else numbers))
        if len(found) >= MAX_HITS:
            return Hits(found[:MAX_HITS], f"[There may be more than {MAX_HITS:,} hits; these are the first.]\n")
        if time.monotonic() > deadline:
            break
    return Hits(found, problem)


def _hits_in(blocks: Iterable[bytes], place: Target, find_first: FindFirst, deadline: float) -> Iterator[int]:
    """Yield the numbers of the lines that match; raise TimeoutError after the deadline."""
    number = 1
    for block in blocks:
        at = 0
        while at < len(block):
            stop = block.find(b"\n", at + _STEP_BYTES) + 1 or len(block)
            # The last line end is left out: after it, an empty match would be one of the next line.
            while at < stop and (found := find_first(block, at, stop - 1)) >= 0:
                number += block.count(b"\n", at, found)
                if any(first <= number <= end for first, end in place.ranges):
                    yield number
                number, at = number + 1, block.find(b"\n", found) + 1
            number, at = number + block.count(b"\n", at, stop), max(stop, at)
            if time.monotonic() > deadline:
                raise TimeoutError


def _rows(sources: Sources, hits: Sequence[tuple[str, int]], context: int, *, last: bool) -> Iterator[AnswerRow]:
    """Yield a row for each line to show; the first of a file or a message also names it."""
    for name, group in groupby(hits, key=itemgetter(0)):
        spans = list(_spans([number for _, number in group], context, last=last))
        headings = {hit: sources.heading(name, hit) for hit, _, _ in spans}
        ranges = merged([*((first, end) for _, first, end in spans), *((at, at) for at, _ in headings.values() if at)])
        texts = {number: shown(content) for number, content in numbered(sources.blocks(name), ranges)}
        above, before, owner = f"== {name}\n", 0, (0, "")
        for hit, first, end in spans:
            if before and context and first != before + 1:
                above = "--\n"
            at, label = headings[hit]
            if (at, label) != owner and at != hit:
                above += f"@ {texts.get(at, label).lstrip('# ')}\n" if at or label else ""
            owner = at, label
            for number in (each for each in range(first, end + 1) if each in texts):
                line = Line(name, number, texts[number], number == hit)
                yield AnswerRow(f"{above}{number}{':' if number == hit else '-'} {line.text}\n", (line,))
                above = ""
            before = end


def _spans(numbers: Sequence[int], context: int, *, last: bool) -> Iterator[tuple[int, int, int]]:
    """Yield each hit with the first and last line to show around it; no line is shown twice."""
    before, behind = [-_FAR, *numbers], [*numbers[1:], _FAR]
    if last:  # lines between two hits belong to the later one, which is shown first
        before, behind = [*numbers[1:], 0], [_FAR, *numbers]
    for earlier, hit, later in zip(before, numbers, behind, strict=False):
        begin = earlier + 1 if last else min(earlier + context, hit - 1) + 1
        end = max(later - context, hit + 1) - 1 if last else later - 1
        yield hit, max(hit - context, begin, 1), min(hit + context, end)
