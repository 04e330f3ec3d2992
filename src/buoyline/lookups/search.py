"""`search`: the passages that fit a question best, for an agent that knows no word to grep for."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from buoyline.errors import ConfigError
from buoyline.lookups.answer import (
    DATA_LABEL,
    LEAST_TOKENS_TO_NAME,
    Answer,
    AnswerBudget,
    Counter,
    Line,
    cut_row,
    reasons,
    shown_path,
    unread_row,
)
from buoyline.lookups.calls import NOBODY, Calls
from buoyline.lookups.files import files_to_search
from buoyline.lookups.hits import Deadline, LineRanges
from buoyline.lookups.passages import Candidate, Ranking, Words, chunks_of
from buoyline.lookups.read import description_of
from buoyline.lookups.sources import (
    Texts,
    Unread,
    noting_unread,
    repeated_after_removal,
    require_some_read,
    require_workspace,
)
from buoyline.previews.source import visible
from buoyline.workspace import ReadableWorkspace

MAX_QUERY_CHARS = 2_000

_CHUNKS_BETWEEN_LOOKS = 256
_ALL = (1, sys.maxsize)
_HEADINGS = ("## ", "### call ")
_RAREST = 3
_MAX_NAMED_CHARS = 60
_CUT = "[This passage is cut: read shows the rest of its lines.]\n"


@repeated_after_removal
def search(
    workspace: ReadableWorkspace,
    query: str,
    path: str | Sequence[str] | None = None,
    *,
    start: int = 1,
    session: str | None = None,
    timeout_s: float | None = None,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
) -> Answer:
    """Find the passages of files that fit a query best, in plain words of any language.

    Passages are ranked by BM25 over the words of the query. Rare words weigh most, identifiers and quoted phrases also
    count as a whole, and other forms of a word count half. The same files give the same answer. No file is held whole.
    From 4 MB of files on, the first search writes an index of their words into the workspace, in about the time of
    reading them (2 to 4 s for 100 MB of text), and later ones read only passages with the rarest words; see
    docs/lookups.md.

    *query* is a question, or some words. *path* is a file, the lines of a citation, a directory with everything below
    it, names such as ``tool_result-*.txt``, or several of these; None searches all that was archived or offloaded:
    transcripts, and tool results in their readable form. *start* is the rank of the first passage to show, from 1, as
    in an earlier answer. After *timeout_s* seconds the answer has the hits so far. For the other arguments see
    `buoyline.lookups`.

    Returns:
        Passages of up to 800 characters, the best first, each with a citation that `read` accepts and its numbered
        lines. `Answer.total` counts all passages that hold a word of the query, with an index about; up to 4,000 are
        ranked. `Answer.lines` has the lines in the order of the text.

    Raises:
        ConfigError: *workspace* is no workspace, *query* has no word or over 2,000 characters, *start* is below 1, or
            *max_tokens* is too small.
        InvalidNameError: *path* leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session.
        StorageError: A file cannot be read.
    """
    require_workspace(workspace)
    if start < 1:
        raise ConfigError("start", f"{start} is too small; it counts from 1")
    if not isinstance(query, str):
        raise ConfigError("query", f"must be text, not {type(query).__name__}")
    if len(query) > MAX_QUERY_CHARS:
        raise ConfigError("query", f"has {len(query):,} characters; give up to {MAX_QUERY_CHARS:,}")
    words = Words(query)
    if not words.texts:
        raise ConfigError("query", "has no word to look for; grep finds other characters")
    ranking = Ranking(words)
    unread: Unread = {}
    ranges = files_to_search(workspace, path, session, unread)
    stopped_in = _rank(Texts(workspace), ranges, ranking, Deadline(timeout_s), unread)
    require_some_read(ranges, unread)
    ranked = [_Passage(candidate) for candidate in ranking.best()]
    rarest = _rarest(ranking) if start == 1 and max_tokens >= LEAST_TOKENS_TO_NAME else ""
    row = unread_row(unread, max_tokens)
    files = len(ranges.keys() - unread)
    page = _Page(ranking, len(ranked), files, start, stopped_in, Calls(workspace), rarest, row)
    shown = AnswerBudget(max_tokens, counter).fill(ranked[start - 1 :], page)
    following = page.following(len(shown))
    repeated = {"query": query, "path": path if path is None or isinstance(path, str) else [*path], "session": session}
    return Answer(
        text=page.text(shown),
        lines=tuple(line for passage in shown for line in passage.lines()),
        total=ranking.total,
        next={**repeated, **following} if following else {},
        unread=reasons(unread),
    )


def _rank(texts: Texts, ranges: LineRanges, ranking: Ranking, deadline: Deadline, unread: Unread) -> str:
    """Rank the passages in *ranges*; return the file in which the time was up, or nothing."""
    from buoyline.lookups.search_index import indexed_passages  # noqa: PLC0415 - SQLite, which only searches need

    indexed = indexed_passages(texts, [path for path in ranges if _ALL in ranges[path]], ranking.words, deadline)
    ranking.add_unread(indexed.passages, indexed.chars, indexed.unread, indexed.unread_holding)
    for path in ranges:
        if path in indexed.files:
            for chunk, counts in indexed.read.get(path, ()):
                ranking.add_read(path, chunk, counts)
            continue
        with noting_unread(path, unread):
            if description_of(texts, path) is not None:  # an image has no words
                continue
            for place, chunk in enumerate(chunks_of(texts.chunks(path)), 1):
                if any(first <= chunk.last and chunk.number <= last for first, last in ranges[path]):
                    ranking.add(path, chunk)
                if place % _CHUNKS_BETWEEN_LOOKS == 0 and deadline.is_over():
                    return path
        if deadline.is_over():
            return path
    return indexed.stopped_in


def _rarest(ranking: Ranking) -> str:
    """Return a row with the words that fewest passages hold, which a `grep` needs, and words that none holds."""
    held = sorted((count, place) for place, count in enumerate(ranking.holding) if count)[:_RAREST]
    if len(ranking.holding) == 1 or not held:
        return ""
    texts = [visible(text[:_MAX_NAMED_CHARS]) for text in ranking.words.texts]
    named = ", ".join(f"{texts[place]} ({count:,})" for count, place in held)
    absent = [text for text, count in zip(texts, ranking.holding, strict=True) if not count][:_RAREST]
    return f"[Rarest words, and in how many passages: {named}{'; in none: ' if absent else ''}{', '.join(absent)}.]\n"


@dataclass(frozen=True, slots=True)
class _Passage:
    """The first *chars* characters of a passage; all if that is None."""

    found: Candidate
    chars: int | None = None

    @property
    def content(self) -> str:
        return self.found.chunk.text[: self.chars]

    def shortened(self, chars: int) -> Self:
        return replace(self, chars=chars)

    def lines(self) -> list[Line]:
        """Return the lines that are shown, without blank ones at the end."""
        path, chunk = self.found.path, self.found.chunk
        texts = self.content.removesuffix("\n").split("\n")
        while len(texts) > 1 and not texts[-1].strip():
            texts.pop()
        return [
            Line(path, number, 1 if number > chunk.number else chunk.column, text.removesuffix("\r"), is_hit=True)
            for number, text in enumerate(texts, chunk.number)
        ]


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about *files* files that shows passages from rank *start* on."""

    ranking: Ranking
    ranked: int
    files: int
    start: int
    stopped_in: str
    calls: Calls
    rarest: str
    unread: str

    def frame(self) -> str:
        return self._heading(self.ranked) + self._footer(0)

    def row(self, passage: _Passage) -> str:
        """Return a passage below its citation and its call or speaker, if it begins within one."""
        path, whole = passage.found.path, replace(passage, chars=None).lines()
        citation = f"== {shown_path(path)}:{whole[0].number}-{whole[-1].number}\n"
        owner = NOBODY if whole[0].content.startswith(_HEADINGS) else self.calls.owner(path, whole[0].number)
        who = f"@ {owner.label}\n" if owner.label else ""
        lines = "".join(f"{line.label}\t{line.text}\n" for line in passage.lines())
        return citation + who + lines + ("" if passage.content == passage.found.chunk.text else _CUT)

    def text(self, passages: Sequence[_Passage]) -> str:
        return self._heading(len(passages)) + "".join(map(self.row, passages)) + self._footer(len(passages))

    def following(self, count: int) -> dict[str, Any]:
        end = self.start + count
        return {"start": end} if end <= self.ranked else {}

    def _heading(self, count: int) -> str:
        files = f"{self.files:,} file" + ("" if self.files == 1 else "s")
        if self.start > self.ranked or not count:
            further = "further " if self.ranked else ""
            return f"[No {further}passage with a word of the query in {files}{self._until()}.]\n{self.unread}"
        shown = f"{self.start}-{self.start + count - 1} of {self.ranking.total} with words of the query"
        return f"[Passages {shown} in {files}, the best first. {DATA_LABEL}]\n{self.unread}{self.rarest}"

    def _footer(self, count: int) -> str:
        time = f"[Not all was searched{self._until()}.]\n" if self.stopped_in and count else ""
        return time + cut_row(self.following(count))

    def _until(self) -> str:
        if not self.stopped_in:
            return ""
        return f": the time was up in {shown_path(self.stopped_in)}; search fewer files at once"
