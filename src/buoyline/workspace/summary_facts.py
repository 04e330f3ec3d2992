"""The facts of a summary in a file of their own, ``facts-<n>.jsonl``. Pure: bytes in, JSON out.

They are some hundred kilobytes that only the next summary needs, and people read ``summaries.jsonl``. The line of the
summary names the file with its hash, so the journal's hash of the line covers both. Source: docs/format.md.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from buoyline.errors import MessageError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.workspace import layout

ITEMS: Final = "items"
WORK: Final = "work"

REFERENCE: Final = "facts"
"""Key of a line: the file with its facts."""

KEPT: Final = 2
"""The facts of so many summaries are kept: a crash may leave the last but one in the window."""


class FactsFile(NamedTuple):
    """What the line of a summary says of the file with its facts."""

    path: str
    size_bytes: int
    sha256: str

    def holds(self, content: bytes) -> bool:
        """Return whether *content* is what was written."""
        return len(content) == self.size_bytes and hashlib.sha256(content).hexdigest() == self.sha256


def separated(summary: Mapping[str, Any], number: int) -> tuple[dict[str, Any], bytes | None]:
    """Return *summary* as it is kept in its line, and the content of the file with its facts.

    Returns:
        The second is None if it has no facts, or facts of a form that is not ours; the line then has all of it.
    """
    items, work = summary.get(ITEMS, ()), summary.get(WORK, {})
    line = {**summary, "n": number}
    if not (items or work) or not (is_array(items) and is_object(work)):
        return line, None
    head = {"n": number, **({WORK: work} if WORK in summary else {})}
    content = "".join(f"{spell(part)}\n" for part in (head, *items)).encode("utf-8")
    for key in (ITEMS, WORK):
        line.pop(key, None)
    path = layout.summary_facts_name(number)
    line[REFERENCE] = {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return line, content


def reference_in(line: object) -> FactsFile | None:
    """Return the file that the *line* of a summary names; None if it names none of that summary."""
    match line:
        case {"n": int(number), "facts": {"path": str(path), "bytes": int(size_bytes), "sha256": str(sha256)}}:
            is_its_own = layout.summary_number(path) == number
            return FactsFile(path, size_bytes, sha256) if is_its_own else None
        case _:
            return None


def joined(line: Mapping[str, Any], content: bytes | None) -> dict[str, Any]:
    """Return the *line* of a summary with its facts in the place of their reference.

    Args:
        line: It names the file.
        content: Of that file; None if it does not exist. A summary without its facts is whole otherwise.
    """
    reference, summary = reference_in(line), {key: value for key, value in line.items() if key != REFERENCE}
    if reference is None or content is None or not reference.holds(content):
        return summary
    try:
        head, *items = map(parse, content.removesuffix(b"\n").split(b"\n"))
    except MessageError:
        return summary
    work = {WORK: head[WORK]} if is_object(head) and WORK in head else {}
    return {**summary, ITEMS: items, **work}
