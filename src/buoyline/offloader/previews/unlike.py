"""Lines that are unlike all others of their text, whatever they say.

Three looks, from the strictest text to the loosest. In a text of few forms, as a log or a listing, a line of a form of
its own is odd. Among lines of one form, what differs in one place is. In a text without forms, as a program or
prose, the lines that are the most of their own are (`buoyline.offloader.previews.novelty`).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from buoyline.offloader.previews.columns import Value, deviants
from buoyline.offloader.previews.finding import UNLIKE, Finding
from buoyline.offloader.previews.novelty import forms_of, novel

MAX_LINES = 40_000
"""So many lines are looked at one by one."""

_MAX_FORMS = 40
_MAX_FINDINGS = 12
_SHAPED_CHARS = 200
_MOST_TOKENS = 24

_LEAST_LINES = 8
# So much of a text must be of usual forms for the rest to be odd.
_REGULAR = 0.88

_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")


def unlike(lines: Sequence[str]) -> list[Finding]:
    """Find the lines that are unlike the others.

    Args:
        lines: In order, from line 1 on; at most `MAX_LINES`.

    Returns:
        At most a dozen of each look.
    """
    form_of_line = forms_of(lines)
    forms = defaultdict[str, list[int]](list)
    for number, form in enumerate(form_of_line, 1):
        if form and not form.isspace():
            forms[form].append(number)
    total = sum(map(len, forms.values()))
    if total < _LEAST_LINES:
        return []
    usual = [form for form, numbers in forms.items() if len(numbers) > max(2, total // 100)]
    odd = _odd_forms(forms, usual, total)
    return [*odd, *_odd_places(lines, forms, usual), *novel(lines, form_of_line)]


def _odd_forms(forms: dict[str, list[int]], usual: Sequence[str], total: int) -> list[Finding]:
    covered = sum(len(forms[form]) for form in usual)
    if covered < _REGULAR * total:
        return []
    rare = sorted((len(numbers), numbers[0]) for numbers in forms.values() if len(numbers) <= 2)  # noqa: PLR2004
    weight = 86.0 if len(rare) <= 4 else 74.0 if len(rare) <= _MAX_FINDINGS else 45.0  # noqa: PLR2004 - a few are odd
    return [Finding(number, weight - count, note=UNLIKE) for count, number in rare[:_MAX_FINDINGS]]


def _odd_places(lines: Sequence[str], forms: dict[str, list[int]], usual: Sequence[str]) -> Iterator[Finding]:
    """Find what differs in one place from the lines of the same form."""
    common = sorted(usual, key=lambda form: -len(forms[form]))[:_MAX_FORMS]
    found = [finding for form in common for finding in _odd_in_form(lines, forms[form])]
    found.sort(key=lambda finding: -finding.weight)
    for rank, finding in enumerate(found[:_MAX_FINDINGS]):
        yield replace(finding, weight=finding.weight - 2 * rank)


def _odd_in_form(lines: Sequence[str], numbers: Sequence[int]) -> Iterator[Finding]:
    if len(numbers) < 2 * _LEAST_LINES:
        return
    rows = [_TOKEN.findall(lines[number - 1][:_SHAPED_CHARS])[:_MOST_TOKENS] for number in numbers]
    width = min(map(len, rows))
    for place in range(width):
        for deviant in deviants([_value(row[place]) for row in rows])[:2]:
            yield Finding(
                numbers[deviant.place], deviant.weight - 14, note=f"{rows[deviant.place][place]}: {deviant.reason}"
            )


def _value(token: str) -> Value:
    return float(token) if token[0].isdecimal() and token.isascii() else token


def odd_kinds(kinds: Mapping[bytes, int]) -> list[bytes]:
    """Find the kinds of lines that occur once, where nearly all lines are of a few forms and these are not.

    Args:
        kinds: How many lines there are of each kind.

    Returns:
        At most a dozen; none for a text without forms.
    """
    counts = Counter[str]()
    names = list(kinds)
    forms = dict(zip(names, forms_of([name.decode("utf-8", "replace") for name in names]), strict=True))
    for kind, count in kinds.items():
        counts[forms[kind]] += count
    total = sum(kinds.values())
    usual = sum(count for count in counts.values() if count > max(2, total // 1_000))
    if usual < _REGULAR * total:
        return []
    odd = [kind for kind, form in forms.items() if counts[form] == 1]
    return odd[:_MAX_FINDINGS] if len(odd) <= _MAX_FINDINGS * 4 else []
