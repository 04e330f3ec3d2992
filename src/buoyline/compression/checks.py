"""Check a summary without a model: its exact claims must occur in its sources, its citations must hold them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from buoyline.compression.pointers import POINTER, Pointer, citation_marks
from buoyline.compression.render import Place
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
from buoyline.compression.text import CUT, WORD, mentions, readable
from buoyline.previews import flagged_lines

MARK: Final = " (unverified)"
"""Follows a claim that was found nowhere. It is in words, since the next reader may be a person."""

_LEAST_DIGITS: Final = 2
_QUOTED = re.compile(r"[\"“]([^\"“”\n]{8,300})[\"”]|`([^`\n]{8,300})`")
_MARKED = re.compile(r"(?:[\"“][^\"“”\n]{1,300}[\"”]|`[^`\n]{1,300}`|\S+) \(unverified\)")

# In JSON a name may follow an escape: the ``n`` of ``\n`` is no letter of the name.
_BEGINS = re.compile(rf"(?<![{WORD}])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{{4}})")
_ENDS = re.compile(rf"(?![{WORD}])")


class _Claim(NamedTuple):
    text: str
    end: int


def claims(text: str) -> tuple[str, ...]:
    """Return the exact strings that *text* claims, in its order, each once.

    These are paths, URLs, identifiers, hashes, versions, numbers of at least two digits, and quoted error messages.
    Citations and strings at a cut are left out.
    """
    return tuple(dict.fromkeys(claim.text for claim in _claims(text.replace(MARK, ""))))


def unverified(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the claims of *text* that occur in none of the texts *known*.

    They are in the order of the text. A claim has to occur as a whole: ``8080`` does not verify ``80``. In an error
    message any blank or line end equals any other, and ``12345`` verifies ``12,345``.
    """
    found = claims(text)
    joined = f"\n{CUT}\n".join(known)
    on_one_line = readable(joined.replace("\\n", "\n").replace('\\"', '"')) if any(" " in one for one in found) else ""

    def is_known(claim: str) -> bool:
        if " " in claim:
            return readable(claim) in on_one_line
        return any(holds(joined, spelled) for spelled in {claim, claim.replace(",", "")})

    return tuple(claim for claim in found if not is_known(claim))


def holds(text: str, name: str) -> bool:
    """Return whether *name* occurs in *text* as a whole, not as part of a longer name."""
    at = text.find(name)
    while at >= 0:
        if _ENDS.match(text, at + len(name)) and _BEGINS.match(text, at):
            return True
        at = text.find(name, at + 1)
    return False


def marked(text: str, doubtful: Iterable[str]) -> str:
    """Add `MARK` behind every place in *text* that makes one of these claims, as `unverified` returns them."""
    plain, wrong = text.replace(MARK, ""), frozenset(doubtful)
    ends = sorted({claim.end for claim in _claims(plain) if claim.text in wrong}) if wrong else []
    return MARK.join(plain[start:end] for start, end in zip([0, *ends], [*ends, len(plain)], strict=True))


def without_marked(text: str) -> str:
    """Return *text* without the claims that are marked in it."""
    return _MARKED.sub("", text)


def _claims(text: str) -> list[_Claim]:
    text = POINTER.sub(lambda match: " " * len(match[0]), text)
    found = list[_Claim]()
    for kind, string, start in mentions(text):
        end = start + len(string)
        is_cut = CUT in (text[start - 1 : start], text[end : end + 1])
        if not is_cut and (kind != "number" or sum(map(str.isdigit, string)) >= _LEAST_DIGITS):
            found.append(_Claim(string, end))
    for match in _QUOTED.finditer(text):
        message = match[1] or match[2]
        if " " in message and CUT not in message and flagged_lines(message):
            found.append(_Claim(message, match.end()))
    return sorted(found, key=lambda claim: claim.end)


def checked(draft: Draft, request: SummaryRequest, place: Place) -> tuple[Draft, tuple[str, ...]]:
    """Return *draft* with the citations that hold, and those that were removed, as ``path:start-end``.

    A citation holds if its lines exist and contain one exact string of its sentence; a sentence without exact strings
    needs only lines that exist. Citations of the replaced summary are kept: they were checked when it was written.
    """
    lines, dropped = _lines_of(request.sources), list[str]()

    def kept(pointer: Pointer, said: Sequence[str]) -> bool:
        if any(
            one.path == pointer.path and one.start <= pointer.start and pointer.end <= one.end for one in place.carried
        ):
            return True
        numbers, texts = lines.get(pointer.path, ([], []))
        text = "\n".join(texts[bisect_left(numbers, pointer.start) : bisect_right(numbers, pointer.end)])
        if place.resolves(pointer) and text and (not said or any(holds(text, one) for one in said)):
            return True
        return bool(text) and any(" " in one and readable(one) in readable(text) for one in said)

    def with_citations(line: str) -> str:
        pieces, end, said = list[str](), 0, tuple[str, ...]()
        for match in POINTER.finditer(line):
            sentence = line[end : match.start()]
            said, named = claims(sentence) if sentence.strip() else said, Pointer.all_of(match)
            found = [pointer for pointer in named if kept(pointer, said)]
            dropped.extend(str(pointer) for pointer in named if pointer not in found)
            pieces += [sentence if found else sentence.rstrip(), *citation_marks(found)]
            end = match.end()
        return "".join([*pieces, line[end:]])

    fields = {name: "\n".join(map(with_citations, text.split("\n"))) for name, text in draft.fields.items()}
    return replace(draft, fields=fields), tuple(dict.fromkeys(dropped))


def _lines_of(sources: Sequence[SourceMessage]) -> Mapping[str, tuple[list[int], list[str]]]:
    """Return the lines at hand, by file: their numbers, and their texts."""
    found: dict[str, dict[int, str]] = {}
    for source in sources:
        if source.pointer is not None:
            found.setdefault(source.pointer.path, {}).update(enumerate(source.lines, source.pointer.start))
        for excerpt in source.excerpts:
            if excerpt is not None:
                found.setdefault(excerpt.path, {}).update(excerpt.lines)
    return {path: (sorted(lines), [lines[number] for number in sorted(lines)]) for path, lines in found.items()}
