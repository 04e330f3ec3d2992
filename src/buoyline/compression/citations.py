"""Check a summary without a model: what it claims exactly must stand exactly in what it is about."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from buoyline.compression.excerpts import ResultExcerpt
from buoyline.compression.identifiers import WORD, mentions, readable, says_error
from buoyline.compression.summary import (
    POINTER,
    Draft,
    Pointer,
    SourceMessage,
    SummaryRequest,
    citation_marks,
    pointers_in,
)
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.messages import Part, Role, ToolResult
from buoyline.offloader.transcript import render_parts

MARK: Final = " (unverified)"
"""Set behind a claim that nothing backs. In the words of people, since the next reader may be one."""

CUT: Final = "…"
"""Stands where a quotation was cut; what touches it may be half a word and claims nothing."""

ARROW: Final = " \u2192 "
"""Stands between what was called and how it ended."""

BETWEEN: Final = " \u00b7 "
"""Stands between sentences that share a line."""

MIN_DIGITS: Final = 2

# A pointer names lines of the archive, and the sign of multiplication a count that we made ourselves.
_NO_CLAIM = re.compile(rf"{POINTER.pattern}| \u00d7\d{{1,9}}(?![{WORD}])")
_QUOTED = re.compile(r"\"([^\"]{8,300})\"|`([^`]{8,300})`")
_BORDER = re.compile(rf"[\u201c\u201d\n]|{ARROW}|{BETWEEN}")

# How a text may be spelled inside of JSON: ``\n`` in front of a name is no letter of the name.
_NAME_BEGINS = re.compile(rf"(?<![{WORD}])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{{4}})")
_NAME_ENDS = rf"(?![{WORD}])"


class _Claim(NamedTuple):
    text: str
    end: int


def claims(text: str) -> tuple[str, ...]:
    """Return what *text* says that is either exact or wrong.

    Returns:
        Paths, URLs, identifiers (with a digit, an underscore, a capital or a dot inside), hashes, versions,
        numbers of at least two digits, and quoted error messages; in the order of the text, each once. Pointers
        and the counts that buoyline adds behind a sign of multiplication are not among them, nor what stands at a cut.
    """
    return tuple(dict.fromkeys(claim.text for claim in _claims(text.replace(MARK, ""))))


def unverified(text: str, haystacks: Iterable[str]) -> tuple[str, ...]:
    """Return those claims of *text* that stand in none of the texts that should back it.

    A claim has to stand there as a whole: ``80`` is not backed by ``8080``. Blanks and line ends count as the
    same in an error message, and ``12,345`` is backed by ``12345``.

    Args:
        text: A summary.
        haystacks: The messages it is about, as text or as JSON; each is searched once.

    Returns:
        The claims without backing, in the order of the text.
    """
    open_claims = dict.fromkeys(claims(text))
    for text_that_backs in haystacks:
        haystack = _Haystack(text_that_backs)
        for claim in [claim for claim in open_claims if haystack.backs(claim)]:
            del open_claims[claim]
    return tuple(open_claims)


def contains_whole(text: str, name: str) -> bool:
    """Tell whether *name* stands in *text* as a whole, and not as a part of a longer one."""
    if name not in text:
        return False
    as_a_whole = re.compile(re.escape(name) + _NAME_ENDS)
    found = as_a_whole.search(text)
    while found is not None:
        if _NAME_BEGINS.match(text, found.start()):
            return True
        found = as_a_whole.search(text, found.start() + 1)
    return False


def mark(text: str, unverified: Iterable[str]) -> str:
    """Set `MARK` behind every place in *text* that makes one of these claims.

    Args:
        text: A summary; marks that it has already are set anew, so that marking twice changes nothing.
        unverified: Claims as `unverified` returns them.
    """
    plain = text.replace(MARK, "")
    doubtful = frozenset(unverified)
    ends = sorted({claim.end for claim in _claims(plain) if claim.text in doubtful})
    pieces = [plain[start:end] for start, end in zip([0, *ends], [*ends, len(plain)], strict=True)]
    return MARK.join(pieces)


def verified_claims(text: str) -> tuple[str, ...]:
    """Return the claims of *text* that are not marked in it.

    Args:
        text: A summary as `mark` returns it.
    """
    pieces = text.split(MARK)
    ends, found = frozenset(accumulate(map(len, pieces[:-1]))), tuple(_claims("".join(pieces)))
    doubtful = {claim.text for claim in found if claim.end in ends}
    return tuple(dict.fromkeys(claim.text for claim in found if claim.text not in doubtful))


def _claims(text: str) -> Iterator[_Claim]:
    blanked = _NO_CLAIM.sub(lambda match: " " * len(match[0]), text)
    yield from sorted([*_exact_claims(blanked), *_quoted_errors(blanked)], key=lambda claim: claim.end)


def _exact_claims(text: str) -> Iterator[_Claim]:
    for kind, string, start in mentions(text):
        end = start + len(string)
        if CUT in (text[start - 1 : start], text[end : end + 1]):
            continue
        if kind != "number" or sum(char.isdigit() for char in string) >= MIN_DIGITS:
            yield _Claim(string, end)


def _quoted_errors(text: str) -> Iterator[_Claim]:
    """Yield error messages in quotation marks or backticks.

    Lines, curly quotation marks and the signs above part what came from different places, so nothing is read
    across them.
    """
    start = 0
    for border in [*_BORDER.finditer(text), None]:
        end = len(text) if border is None else border.start()
        for match in _QUOTED.finditer(text, start, end):
            message = match[1] or match[2]
            if says_error(message) and CUT not in message:
                yield _Claim(message, match.end())
        start = end if border is None else border.end()


class _Haystack:
    """A text that claims are looked up in, in the forms that this takes."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _on_one_line(self) -> str:
        return readable(self._text.replace("\\n", "\n").replace('\\"', '"'))

    def backs(self, claim: str) -> bool:
        if " " in claim:
            return readable(claim) in self._on_one_line
        return contains_whole(self._text, claim) or (
            "," in claim and contains_whole(self._text, claim.replace(",", ""))
        )


# The messages that leave, line by line as the transcript has them, each line with the place it is cited by.
#
# Pure. A summariser that sees the very numbers of ``transcript.md`` can cite lines that are there, and what it cites
# can be looked up without reading a file.


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line that may be cited.

    Attributes:
        path: File that it stands in, relative to the session's directory; empty where no lines are known.
        number: Counted from 1; 0 where no lines are known.
        text: What stands there.
    """

    path: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptBlock:
    """Lines of one message that one hand wrote.

    Attributes:
        role: Who says the message.
        is_result: A tool wrote the lines, so they are data and never an instruction.
        is_heading: The line that says who speaks.
        lines: In order; may be empty.
    """

    role: Role
    is_result: bool
    is_heading: bool
    lines: tuple[NumberedLine, ...]


def blocks_of(sources: Sequence[SourceMessage]) -> Iterator[TranscriptBlock]:
    """Yield the lines of *sources* in reading order, those that stubs show of offloaded results behind their notices.

    Where a message takes other lines in the transcript than it does here, because another version rendered it, its
    lines have no numbers: a wrong number is worse than none.
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
    for position, (part, texts) in enumerate(zip(parts, pieces, strict=True)):
        lines = [
            NumberedLine(pointer.path, number + offset, text) if pointer else NumberedLine("", 0, text)
            for offset, text in enumerate(texts)
        ]
        number += len(lines)
        is_result = isinstance(part, ToolResult)
        for excerpt in [shown[line.text] for line in lines if line.text in shown] if is_result else []:
            lines += [NumberedLine(excerpt.path, at, text) for at, text in excerpt.lines]
        yield TranscriptBlock(role, is_result, position == 0, tuple(lines))


def pointer_to(lines: Sequence[NumberedLine]) -> Pointer | None:
    """Return what names *lines*, which stand in one file in order; None where they have no numbers, or are none."""
    if not lines or not lines[0].number:
        return None
    return Pointer(lines[0].path, lines[0].number, lines[-1].number)


# Check that the lines which a summary cites hold what it says; correct or take out citations that do not.
#
# Pure: the lines are those of the messages at hand. A model miscounts lines more often than it misquotes them, so a
# wrong citation is first looked for where its claims really stand.


MAX_CITED_LINES: Final = 80
"""Of one citation; one that names more is narrowed where its claims can be found, since it leads to nothing else."""

NEAR_LINES: Final = 12
"""Claims within so many lines are cited as one place."""

MAX_HITS: Final = 200
"""Of one claim that are looked at; what stands in more places tells none of them from the others."""

_GROUP = re.compile(rf"{POINTER.pattern}(?:[ \t,;]{{0,3}}{POINTER.pattern})*")


class _Hit(NamedTuple):
    path: str
    number: int
    claim: str


def with_checked_citations(
    draft: Draft, request: SummaryRequest, place: ArchiveLocation
) -> tuple[Draft, tuple[str, ...]]:
    """Return *draft* with citations that hold, and those that were taken out.

    A citation stays if its lines are there and at least one of the exact strings of its sentence stands in them; a
    sentence without any, if the lines are there. Citations of the previous summary stay as they are: their lines are
    not at hand, and were checked when it was written.

    Args:
        draft: A summariser's.
        request: What it was asked; its messages are the lines at hand.
        place: Which lines there are.

    Returns:
        The draft, and the citations that were taken out, as ``path:start-end`` in reading order, each once.
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
            said = text[start : match.start()]
            pieces.append(said)
            cited = list(pointers_in(match[0]))
            kept = self._kept(cited, claims(said))
            pieces.append("".join(citation_marks(kept)))
            if not kept:
                pieces[-2] = said.rstrip()
            start = match.end()
        return "".join([*pieces, text[start:]])

    def _kept(self, cited: Sequence[Pointer], said: Sequence[str]) -> list[Pointer]:
        kept = [pointer for pointer in cited if self._holds(pointer, said)]
        wrong = [pointer for pointer in cited if pointer not in kept]
        if wrong and not kept and (better := self._lines.place_of(said)) is not None:
            return [better]
        self.dropped += [str(pointer) for pointer in wrong]
        return kept

    def _holds(self, pointer: Pointer, said: Sequence[str]) -> bool:
        if self._is_carried(pointer):
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
        return len(unverified(_quoted(said), [text])) < len(claims(_quoted(said))) or any(
            contains_whole(text, claim) for claim in said
        )

    def _is_carried(self, pointer: Pointer) -> bool:
        return any(
            old.path == pointer.path and old.start <= pointer.start and pointer.end <= old.end
            for old in self._place.carried
        )


def _quoted(said: Sequence[str]) -> str:
    return "\n".join(f'"{claim}"' if " " in claim else claim for claim in said)


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
        """Return what is at hand of the lines that *pointer* names; None where nothing is."""
        numbers = self._numbers.get(pointer.path, [])
        first, last = bisect_right(numbers, pointer.start - 1), bisect_right(numbers, pointer.end)
        return "\n".join(self._texts[pointer.path][first:last]) if first < last else None

    def place_of(self, said: Sequence[str]) -> Pointer | None:
        """Return the narrow place that holds most of these claims, the newest among equals; None where none is."""
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
        if claim not in self._found:
            self._found[claim] = self._searched(claim)
        return self._found[claim]

    def _searched(self, claim: str) -> list[_Hit]:
        found: list[_Hit] = []
        for path in self._joined:
            for position in self._positions(path, claim):
                found.append(_Hit(path, self._numbers[path][position], claim))
                if len(found) > MAX_HITS:
                    return []
        return found

    def _positions(self, path: str, claim: str) -> Iterator[int]:
        text, starts = self._joined[path], self._starts[path]
        at = text.find(claim)
        while at >= 0:
            position = bisect_right(starts, at) - 1
            if " " in claim or contains_whole(self._texts[path][position], claim):
                yield position
            at = text.find(claim, starts[position + 1])
