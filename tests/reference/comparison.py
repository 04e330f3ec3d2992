"""Says where two versions differ, so that a person sees it at once."""

import difflib
import hashlib
import json
import re
from collections.abc import Sequence

from reference.player import Plain

MAX_LINES = 60

NOT_COMPARED = frozenset({"text", "calls"})
"""Of an answer: the words of an error, and how often the file system was asked."""

INTENDED: Sequence[tuple[str, str, str]] = (
    ("answer.leaving_tokens: ", "answer.archived_tokens: ", "`Plan` names its messages by what becomes of them"),
)
"""Differences that are wanted: what the baseline says, what the checkout says in its place, and why."""


ROWS_OF_CALLS = re.compile(r"answer\.text \| (?:@ .*|--|\[Rarest words, .*)\n")
"""Rows of `grep` and `search` that are not compared: the checkout names the call of each hit, parts hits by that row,
and names the rarest words of a query. In rows of files a line has its number before its text."""


ADDED = re.compile(
    r"events\[\d+\]\.(?:facts|unsaid): 0|(?:events\[\d+\]|answer)\.summary\.draft\.work: null"
    r"|answer\.(?:.*\.)?unread: \{\}"
)
"""Fields that the baseline does not have: the facts of the last summary, none here, the state of the work, and which
files could not be read."""


def difference(old: Sequence[Plain], new: Sequence[Plain], *, parts: Sequence[str] | None = None) -> str:
    """Return where answers of two versions to one script differ first, and how; empty if they do not.

    Args:
        old: Of the baseline; what is `INTENDED` is replaced first.
        new: Of the checkout.
        parts: Keys of an answer to compare; None: all.
    """
    assert len(old) == len(new)
    flat = [
        (_lines(one, parts, is_old=True), _lines(other, parts, is_old=False))
        for one, other in zip(old, new, strict=True)
    ]
    differing = [at for at, (before, after) in enumerate(flat) if before != after]
    if not differing:
        return ""
    at = differing[0]
    if all(line.startswith("files.") for line in _changed(*flat[at])):
        # Only the hash of a file differs; what is in it is seen where all files are shown.
        at = next((later for later in differing if old[later]["do"] == "files"), at)
    lines = list(difflib.unified_diff(*flat[at], "baseline", "checkout", lineterm="", n=1))
    more = f"\n({len(lines) - MAX_LINES} more lines)" if len(lines) > MAX_LINES else ""
    counted = (
        f"{len(differing)} of {len(old)} operations differ, the first is {differing[0]} ({old[differing[0]]['do']})"
    )
    return f"{counted}; operation {at} ({old[at]['do']}):\n" + "\n".join(lines[:MAX_LINES]) + more


def _changed(before: Sequence[str], after: Sequence[str]) -> list[str]:
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return [line[1:] for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]


def _lines(answer: Plain, parts: Sequence[str] | None, *, is_old: bool) -> list[str]:
    wanted = {key: answer.get(key) for key in ("do", *parts)} if parts is not None else answer
    lines = list(_flat("", {key: value for key, value in wanted.items() if key not in NOT_COMPARED}))
    lines = [line for line in lines if not (ROWS_OF_CALLS.fullmatch(line) or ADDED.fullmatch(line.rstrip("\n")))]
    if is_old:
        for before, after, _ in INTENDED:
            lines = [line.replace(before, after) for line in lines]
    return lines


def _flat(path: str, value: Plain) -> list[str]:
    """Return a line for each value, and each line of a text, with the way to it."""
    if isinstance(value, dict) and value:
        return [line for key, inner in value.items() for line in _flat(f"{path}.{key}" if path else key, inner)]
    if isinstance(value, list) and value and not all(isinstance(inner, str | int | float) for inner in value):
        return [line for at, inner in enumerate(value) for line in _flat(f"{path}[{at}]", inner)]
    if isinstance(value, str) and path.endswith(".jsonl"):
        return [
            line for number, record in enumerate(value.splitlines()) for line in _record(f"{path}[{number}]", record)
        ]
    if isinstance(value, str) and "\n" in value:
        return [f"{path} | {line}" for line in value.splitlines(keepends=True)]
    return [f"{path}: {json.dumps(value, ensure_ascii=False)}"]


def _record(path: str, spelled: str) -> list[str]:
    """Return a line of JSON as its values and, since these do not say how it is spelled, its hash."""
    digest = hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    try:
        return [f"{path} is spelled as {digest}", *_flat(path, json.loads(spelled))]
    except ValueError:
        return [f"{path} | {spelled}"]
