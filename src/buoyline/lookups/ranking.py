"""`search`: passages that have most to do with a question, for those who know no word to grep for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from buoyline.errors import ConfigError
from buoyline.lookups.answer import DATA_LABEL, Answer, Budget, Counter, Line, Spelling, as_arguments, shown_path
from buoyline.lookups.chunks import Chunk, chunks_of
from buoyline.lookups.extents import Extents, searched
from buoyline.lookups.media import description_of
from buoyline.lookups.places import require_files
from buoyline.lookups.relevance import Candidate, Ranking
from buoyline.lookups.scanning import Deadline
from buoyline.lookups.words import Words
from buoyline.workspace import LocalWorkspace
from buoyline.workspace._files import Tree

MAX_QUERY_CHARS = 2_000

_CHUNKS_BETWEEN_LOOKS = 256
_CUT = "[This passage is cut: read shows the rest of its lines.]\n"


def search(
    workspace: LocalWorkspace,
    query: str,
    path: str | Sequence[str] | None = None,
    *,
    start: int = 1,
    session: str | None = None,
    confined: bool = False,
    timeout_s: float | None = None,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    spelling: Spelling = as_arguments,
) -> Answer:
    """Find the passages of files that have most to do with a query, in plain words of any language.

    Passages are ranked by BM25 over the words of the query: rare ones weigh most, in identifiers and quoted words the
    whole counts, too, and other forms of a word count half. Nothing is kept on disk; the same files give the same
    answer. Blocking; the cost is linear in the bytes that are searched (1 to 6 s for 100 MB of text), and they are
    never held whole.

    Args:
        workspace: Where to search.
        query: A question, or some words.
        path: A file, the lines of a pointer, a directory with all that is below it, a glob such as
            ``tool_result-*.txt``, or several of these. None searches what left the contexts: transcripts, and tool
            results in their readable form.
        start: Rank of the first passage to show, 1-based; an earlier answer says where it has ended.
        session: The one session to search where *path* is None; else whose directory a relative *path* is looked
            for in first.
        confined: Whether nothing else is reached but that directory, and payloads in ``data/`` by their whole name.
        timeout_s: After how many seconds to answer with what was found until then.
        max_tokens: For the whole text of the answer.
        counter: Counts them; the default counter where it is None.
        spelling: Says in the answer how to go on.

    Returns:
        Passages of up to 800 characters, the best first, each with its place as a pointer that `read` takes, and its
        lines with their numbers. `Answer.total` counts all passages that hold a word of the query; up to 4,000 are
        ranked. `Answer.lines` has their lines, in the order of the text.

    Raises:
        ConfigError: *workspace* is not on disk, *query* has no word or over 2,000 characters, *start* cannot be,
            or *max_tokens* is too few.
        InvalidNameError: *path* leads out of the workspace, or to a hidden file.
        NotFoundError: There is no such file or session.
        StorageError: A file cannot be read.
    """
    require_files(workspace)
    if start < 1:
        raise ConfigError("start", f"{start} cannot be; it counts from 1")
    ranking = Ranking(_wanted(query))
    extents = searched(workspace, path, session, confined=confined)
    stopped_in = _rank(workspace.tree, extents, ranking, Deadline(timeout_s))
    ranked = [_Passage(candidate) for candidate in ranking.best()]
    page = _Page(ranking, len(ranked), len(extents), start, stopped_in, spelling)
    shown = Budget(max_tokens, counter).fill(ranked[start - 1 :], page)
    following = page.following(shown)
    repeated = {"query": query, "path": path if path is None or isinstance(path, str) else [*path], "session": session}
    return Answer(
        text=page.text(shown),
        lines=tuple(line for passage in shown for line in passage.lines()),
        total=ranking.total,
        next={**repeated, **following} if following else {},
    )


def _wanted(query: str) -> Words:
    if not isinstance(query, str):
        raise ConfigError("query", f"must be text, not {type(query).__name__}")
    if len(query) > MAX_QUERY_CHARS:
        raise ConfigError("query", f"has {len(query):,} characters; give up to {MAX_QUERY_CHARS:,}")
    wanted = Words(query)
    if not len(wanted):
        raise ConfigError("query", "has no word to look for; grep finds other characters")
    return wanted


def _rank(tree: Tree, extents: Extents, ranking: Ranking, deadline: Deadline) -> str:
    """Rank what is in *extents*; return the file in which the time was up, or nothing."""
    for path, ranges in extents.items():
        if description_of(tree, path) is not None:  # a picture has no words
            continue
        for place, chunk in enumerate(chunks_of(tree.chunks(path)), 1):
            if any(first <= chunk.last and chunk.number <= last for first, last in ranges):
                ranking.add(path, chunk)
            if place % _CHUNKS_BETWEEN_LOOKS == 0 and deadline.is_over():
                return path
        if deadline.is_over():
            return path
    return ""


@dataclass(frozen=True, slots=True)
class _Passage:
    """A passage as it is shown: its first *chars* characters, or all where that is None."""

    found: Candidate
    chars: int | None = None

    @property
    def content(self) -> str:
        return self.found.chunk.text[: self.chars]

    def shortened(self, chars: int) -> Self:
        return replace(self, chars=chars)

    def lines(self) -> list[Line]:
        return _lines(self.found.path, self.found.chunk._replace(text=self.content))

    def text(self) -> str:
        whole, lines = _lines(self.found.path, self.found.chunk), self.lines()
        rows = "".join(f"{_label(line)}\t{line.text}\n" for line in lines)
        cut = "" if self.content == self.found.chunk.text else _CUT
        return f"== {shown_path(self.found.path)}:{whole[0].number}-{whole[-1].number}\n{rows}{cut}"


def _lines(path: str, chunk: Chunk) -> list[Line]:
    """Return the lines of *chunk* without the blank ones at its end."""
    texts = chunk.text.removesuffix("\n").split("\n")
    while len(texts) > 1 and not texts[-1].strip():
        texts.pop()
    return [
        Line(path, number, 1 if place else chunk.column, text.removesuffix("\r"), is_hit=True)
        for place, (number, text) in enumerate(enumerate(texts, chunk.number))
    ]


def _label(line: Line) -> str:
    return str(line.number) if line.column == 1 else f"{line.number}:{line.column}"


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about *files* files, whose passages are shown from rank *start* on."""

    ranking: Ranking
    ranked: int
    files: int
    start: int
    stopped_in: str
    spelling: Spelling

    def frame(self) -> str:
        return self._heading(self.ranked) + self._footer(0)

    def row(self, passage: _Passage) -> str:
        return passage.text()

    def text(self, passages: Sequence[_Passage]) -> str:
        return self._heading(len(passages)) + "".join(map(self.row, passages)) + self._footer(len(passages))

    def following(self, passages: Sequence[_Passage]) -> dict[str, Any]:
        """Return where to go on behind *passages*; empty when nothing is left."""
        return self._following(len(passages))

    def _following(self, count: int) -> dict[str, Any]:
        end = self.start + count
        return {"start": end} if end <= self.ranked else {}

    def _heading(self, count: int) -> str:
        files = f"{self.files:,} file" + ("" if self.files == 1 else "s")
        if self.start > self.ranked or not count:
            further = "further " if self.ranked else ""
            return f"[No {further}passage with a word of the query in {files}{self._until()}.]\n"
        shown = f"{self.start}-{self.start + count - 1} of {self.ranking.total}"
        return f"[Passages {shown} with words of the query in {files}, the best first. {DATA_LABEL}]\n"

    def _footer(self, count: int) -> str:
        time = f"[Not all was searched{self._until()}.]\n" if self.stopped_in and count else ""
        following = self._following(count)
        return time + (f"[Cut here. To go on, {self.spelling(following)}]\n" if following else "")

    def _until(self) -> str:
        if not self.stopped_in:
            return ""
        return f": the time was up in {shown_path(self.stopped_in)}; search fewer files at once"
