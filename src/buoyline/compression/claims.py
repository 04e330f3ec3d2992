"""Check a summary without a model: what it claims exactly must stand exactly in what it is about."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from buoyline.compression.ledger import WORD, mentions
from buoyline.compression.signals import readable, says_error
from buoyline.compression.summary import POINTER

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


def stands_in(text: str, name: str) -> bool:
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


def backed(text: str) -> tuple[str, ...]:
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
        return stands_in(self._text, claim) or ("," in claim and stands_in(self._text, claim.replace(",", "")))
