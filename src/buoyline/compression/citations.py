"""Check a summary without a model: its exact claims must occur in its sources, its citations must back them."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Final, NamedTuple

from buoyline.compression.identifiers import WORD, mentions, readable, says_error
from buoyline.compression.pointers import POINTER, Pointer, citation_marks, pointers_in
from buoyline.compression.summary import Draft, ResultExcerpt, SourceMessage, SummaryRequest
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.messages import ToolResult
from buoyline.messages.model import Part, Role
from buoyline.offloader.transcript import render_parts

MARK: Final = " (unverified)"
"""Follows a claim that was found nowhere. It is in words, since the next reader may be a person."""

CUT: Final = "…"
"""Marks a cut in a quotation; a string that touches it may be incomplete and is no claim."""

ARROW: Final = " \u2192 "
"""Separates a call from its outcome."""

BETWEEN: Final = " \u00b7 "
"""Separates sentences that share a line."""

MIN_DIGITS: Final = 2

# A pointer names lines of the archive, and a multiplication sign precedes a count that buoyline added.
_NO_CLAIM = re.compile(rf"{POINTER.pattern}| \u00d7\d{{1,9}}(?![{WORD}])")
_QUOTED = re.compile(r"\"([^\"]{8,300})\"|`([^`]{8,300})`")
_BORDER = re.compile(rf"[\u201c\u201d\n]|{ARROW}|{BETWEEN}")
_ARGUMENT = re.compile(r", ([\w.-]{1,80})=")
"""Begins an argument of a call in a summary. In JSON the same border is `", "name": "`."""

# In JSON a name may follow an escape: the ``n`` of ``\n`` is no letter of the name.
_NAME_BEGINS = re.compile(rf"(?<![{WORD}])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{{4}})")
_NAME_ENDS = re.compile(rf"(?![{WORD}])")


class _Claim(NamedTuple):
    text: str
    end: int


def claims(text: str) -> tuple[str, ...]:
    """Return the exact strings that *text* claims, in the order of the text, each once.

    These are paths, URLs, identifiers (with a digit, an underscore, an inner capital or a dot), hashes, versions,
    numbers of at least two digits, and quoted error messages. Pointers, the counts that buoyline adds behind a
    multiplication sign, and strings at a cut are left out.
    """
    return tuple(dict.fromkeys(claim.text for claim in _claims(text.replace(MARK, ""))))


def unverified(text: str, haystacks: Iterable[str]) -> tuple[str, ...]:
    """Return the claims of *text* that occur in none of *haystacks*.

    They are in the order of the text. A claim has to occur as a whole: ``8080`` does not verify ``80``. In an error
    message any blank or line end equals any other, and ``12345`` verifies ``12,345``. The haystacks are the messages of
    a summary, as text or as JSON.
    """
    found = claims(text)
    # No claim spans two of them, since none has a line end or a cut.
    known, on_one_line = f"\n{CUT}\n".join(haystacks), ""
    if any(" " in claim for claim in found):
        # A user may quote an earlier citation within a message.
        on_one_line = readable(_without_citations(known.replace("\\n", "\n").replace('\\"', '"')))
    return tuple(claim for claim in found if not _is_backed(claim, known, on_one_line))


def _is_backed(claim: str, known: str, on_one_line: str) -> bool:
    if " " in claim:
        message = readable(claim)
        return message in on_one_line or _holds_arguments(on_one_line, message)
    plain = claim.replace(",", "")
    return contains_whole(known, claim) or (plain != claim and contains_whole(known, plain))


def contains_whole(text: str, name: str) -> bool:
    """Return whether *name* occurs in *text* as a whole, not as part of a longer name."""
    at = text.find(name)
    while at >= 0:
        if _NAME_ENDS.match(text, at + len(name)) and _NAME_BEGINS.match(text, at):
            return True
        at = text.find(name, at + 1)
    return False


def mark(text: str, unverified: Iterable[str]) -> str:
    """Add `MARK` behind every place in *text* that makes one of these claims, as `unverified` returns them.

    Old marks in *text* are replaced, so that marking twice changes nothing.
    """
    plain = text.replace(MARK, "")
    doubtful = frozenset(unverified)
    found = _claims(plain) if doubtful else ()
    ends = sorted({claim.end for claim in found if claim.text in doubtful})
    pieces = [plain[start:end] for start, end in zip([0, *ends], [*ends, len(plain)], strict=True)]
    return MARK.join(pieces)


def verified_claims(text: str) -> tuple[str, ...]:
    """Return the claims that `mark` did not mark in *text*."""
    pieces = text.split(MARK)
    ends, found = frozenset(accumulate(map(len, pieces[:-1]))), _claims("".join(pieces))
    doubtful = {claim.text for claim in found if claim.end in ends}
    return tuple(dict.fromkeys(claim.text for claim in found if claim.text not in doubtful))


def _claims(text: str) -> list[_Claim]:
    text = _without_citations(text)
    found: list[_Claim] = []
    for kind, string, start in mentions(text):
        end = start + len(string)
        is_cut = CUT in (text[start - 1 : start], text[end : end + 1])
        if not is_cut and (kind != "number" or sum(char.isdigit() for char in string) >= MIN_DIGITS):
            found.append(_Claim(string, end))
    # Error messages in quotation marks or backticks. Line ends, curly quotation marks and the separators above part
    # texts from different places; no message crosses them.
    start = 0
    for border in [*_BORDER.finditer(text), None]:
        end = len(text) if border is None else border.start()
        for match in _QUOTED.finditer(text, start, end):
            message = match[1] or match[2]
            if says_error(message) and CUT not in message:
                found.append(_Claim(message, match.end()))
        start = end if border is None else border.end()
    return sorted(found, key=lambda claim: claim.end)


def _without_citations(text: str) -> str:
    """Return *text* with blanks in place of what is no claim, at the same length."""
    return _NO_CLAIM.sub(lambda match: " " * len(match[0]), text)


def _holds_arguments(text: str, message: str) -> bool:
    """Return whether *message* is of several arguments of one call: an odd quotation mark pairs with the next."""
    first, *others = _ARGUMENT.split(message)
    if not others or first not in text:
        return False
    pairs = zip(others[::2], others[1::2], strict=True)
    rest = "".join(rf'"?\s?,\s?"{re.escape(name)}"\s?:\s?"?{re.escape(value)}' for name, value in pairs)
    return re.search(re.escape(first) + rest, text) is not None


# The archived messages line by line, numbered as in the transcript.
#
# A summarizer that sees the numbers of ``transcript.md`` can cite lines that exist, and its citations can be checked
# without reading a file.


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line that can be cited.

    *path* is its file, relative to the session's directory, and *number* counts from 1. Without a number the path is
    empty, and the number 0.
    """

    path: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptBlock:
    """Lines of one message that have one author, in order; there may be none.

    If *is_result*, a tool wrote them, so they are data and never an instruction.
    """

    role: Role
    is_result: bool
    lines: tuple[NumberedLine, ...]


def blocks_of(sources: Sequence[SourceMessage]) -> Iterator[TranscriptBlock]:
    """Yield the lines of *sources* in reading order; lines that a stub shows follow its reference line.

    A message may take other lines in the transcript than here, because another version rendered it. Its lines then
    have no numbers: a wrong number is worse than none.
    """
    first = sources[0].index if sources else 0
    notices = {excerpt.stub: _notice(excerpt) for source in sources for excerpt in _offloaded(source)}
    messages = [source.message for source in sources]
    for source, pieces in zip(sources, render_parts(messages, first, [""] * len(messages), notices.get), strict=True):
        yield from _blocks(source, pieces)


def _offloaded(source: SourceMessage) -> list[ResultExcerpt]:
    return [excerpt for excerpt in source.excerpts if excerpt is not None and excerpt.path and excerpt.stub]


def _notice(excerpt: ResultExcerpt) -> str:
    return f"[offloaded to {excerpt.path}]"


def _blocks(source: SourceMessage, pieces: Sequence[Sequence[str]]) -> Iterator[TranscriptBlock]:
    pointer, role = source.pointer, source.message.role
    if pointer is not None and sum(map(len, pieces)) != pointer.end - pointer.start + 1:
        pointer = None
    number = 0 if pointer is None else pointer.start
    shown = {_notice(excerpt): excerpt for excerpt in _offloaded(source)}
    parts: list[Part | None] = [None, *source.message.parts, None]
    for part, texts in zip(parts, pieces, strict=True):
        lines = [
            NumberedLine(pointer.path, number + offset, text) if pointer else NumberedLine("", 0, text)
            for offset, text in enumerate(texts)
        ]
        number += len(lines)
        is_result = isinstance(part, ToolResult)
        for excerpt in [shown[line.text] for line in lines if line.text in shown] if is_result else []:
            lines += [NumberedLine(excerpt.path, at, text) for at, text in excerpt.lines]
        yield TranscriptBlock(role, is_result, tuple(lines))


def pointer_to(lines: Sequence[NumberedLine]) -> Pointer | None:
    """Return the pointer to *lines*, which are in one file and in order; None if they have no numbers or are empty."""
    if not lines or not lines[0].number:
        return None
    return Pointer(lines[0].path, lines[0].number, lines[-1].number)


# Check that cited lines hold what the summary says; correct or remove citations that do not.
#
# A model miscounts lines more often than it misquotes them, so a wrong citation is moved to the place of its claims if
# there is one.


MAX_CITED_LINES: Final = 80
"""Of one citation. A longer one is narrowed if its claims can be found, since it leads to no place in particular."""

NEAR_LINES: Final = 12
"""Claims within this distance are cited as one place."""

MAX_HITS: Final = 200
"""Of one claim. A claim with more hits does not tell one place from another."""

_GROUP = re.compile(rf"{POINTER.pattern}(?:[ \t,;]{{0,3}}{POINTER.pattern})*")


class _Hit(NamedTuple):
    path: str
    number: int
    claim: str


def with_checked_citations(
    draft: Draft, request: SummaryRequest, place: ArchiveLocation
) -> tuple[Draft, tuple[str, ...]]:
    """Return *draft* with citations that hold, and the citations that were removed.

    A citation holds if its lines exist and contain at least one exact string of its sentence. A sentence without exact
    strings needs only lines that exist. Citations of the previous summary are kept: their lines are not at hand, and
    were checked when it was written. The lines at hand are those of *request*; *place* says which lines exist. Removed
    citations are spelled ``path:start-end``, in reading order, each once.
    """
    if not POINTER.search("\n".join(draft.fields.values())):
        return draft, ()
    check = _Check(_Lines(line for block in blocks_of(request.sources) for line in block.lines), place)
    fields = {name: "\n".join(check.line(line) for line in text.split("\n")) for name, text in draft.fields.items()}
    found = [pointer for text in fields.values() for pointer in pointers_in(text)]
    return replace(draft, fields=fields, pointers=tuple(dict.fromkeys(found))), tuple(dict.fromkeys(check.dropped))


class _Check:
    def __init__(self, lines: "_Lines", place: ArchiveLocation) -> None:
        self._lines = lines
        self._place = place
        self.dropped: list[str] = []

    def line(self, text: str) -> str:
        """Return one line of a field with its citations checked."""
        pieces: list[str] = []
        start = 0
        for match in _GROUP.finditer(text):
            sentence = text[start : match.start()]
            said, cited = claims(sentence), list(pointers_in(match[0]))
            kept = [pointer for pointer in cited if self._holds(pointer, said)]
            wrong = [pointer for pointer in cited if pointer not in kept]
            better = self._lines.place_of(said) if wrong and not kept else None
            if better is None:
                self.dropped += map(str, wrong)
            else:
                kept = [better]
            pieces += [sentence if kept else sentence.rstrip(), *citation_marks(kept)]
            start = match.end()
        return "".join([*pieces, text[start:]])

    def _holds(self, pointer: Pointer, said: Sequence[str]) -> bool:
        carried = (old for old in self._place.carried if old.path == pointer.path)
        if any(old.start <= pointer.start and pointer.end <= old.end for old in carried):
            return True
        if not self._place.resolves(pointer):
            return False
        text = self._lines.text_of(pointer)
        if text is None:
            return False
        if pointer.end - pointer.start >= MAX_CITED_LINES and self._lines.place_of(said) is not None:
            return False
        if not said:
            return True
        quoted = "\n".join(f'"{claim}"' if " " in claim else claim for claim in said)
        return len(unverified(quoted, [text])) < len(claims(quoted)) or any(
            contains_whole(text, claim) for claim in said
        )


class _Lines:
    """The lines at hand, by file."""

    def __init__(self, lines: Iterable[NumberedLine]) -> None:
        self._found: dict[str, list[_Hit]] = {}
        texts: dict[str, dict[int, str]] = {}
        for line in lines:
            if line.number:
                texts.setdefault(line.path, {})[line.number] = line.text
        self._numbers = {path: sorted(found) for path, found in texts.items()}
        self._texts = {path: [found[number] for number in self._numbers[path]] for path, found in texts.items()}
        self._joined = {path: "\n".join(found) for path, found in self._texts.items()}
        self._starts = {path: [0, *accumulate(len(text) + 1 for text in found)] for path, found in self._texts.items()}

    def text_of(self, pointer: Pointer) -> str | None:
        """Return the known lines that *pointer* names; None if none is known."""
        numbers = self._numbers.get(pointer.path, [])
        first, last = bisect_right(numbers, pointer.start - 1), bisect_right(numbers, pointer.end)
        return "\n".join(self._texts[pointer.path][first:last]) if first < last else None

    def place_of(self, said: Sequence[str]) -> Pointer | None:
        """Return the narrow place with most of these claims, the newest among equals; None if there is none."""
        hits = sorted(hit for claim in said for hit in self._hits(claim))
        best: tuple[int, int, Pointer] | None = None
        start = 0
        for end, hit in enumerate(hits):
            while hits[start].path != hit.path or hit.number - hits[start].number > NEAR_LINES:
                start += 1
            near = hits[start : end + 1]
            held = len({other.claim for other in near})
            span = hit.number - near[0].number
            if best is None or (held, -span) >= best[:2]:
                best = (held, -span, Pointer(hit.path, near[0].number, hit.number))
        return None if best is None else best[2]

    def _hits(self, claim: str) -> list[_Hit]:
        """Return the places of *claim*; none if there are more than `MAX_HITS`."""
        if claim not in self._found:
            hits = list(islice(self._all_hits(claim), MAX_HITS + 1))
            self._found[claim] = hits if len(hits) <= MAX_HITS else []
        return self._found[claim]

    def _all_hits(self, claim: str) -> Iterator[_Hit]:
        for path, text in self._joined.items():
            starts = self._starts[path]
            at = text.find(claim)
            while at >= 0:
                position = bisect_right(starts, at) - 1
                if " " in claim or contains_whole(self._texts[path][position], claim):
                    yield _Hit(path, self._numbers[path][position], claim)
                at = text.find(claim, starts[position + 1])
