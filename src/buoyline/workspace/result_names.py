"""File names of tool results: no two ids share a file, even if the file system ignores case.

Pure. The folder's names and the journal decide, under the session's lock. Source: docs/format.md, "Names".
"""

from collections.abc import Iterable, Iterator, Sequence

from buoyline.messages import spell
from buoyline.workspace import layout
from buoyline.workspace.content import Measure
from buoyline.workspace.journal import JournalState, Record, text_digest


class ResultNames:
    """The names in a session's folder."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Begin with *names*."""
        self._held: dict[str, str] = {}
        self._tails: dict[str, str] = {}
        self._results = 0
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add the name of a file, unless it is known."""
        key = layout.folded(name)
        if key in self._held:
            return
        self._held[key] = name
        if layout.is_result_name(name):
            self._results += 1
            self._tails[name[name.rfind("~") :]] = name

    def is_held(self, name: str) -> bool:
        """Return whether there is a file called *name*, or the same up to case and normal form."""
        return layout.folded(name) in self._held

    def first(self, names: Sequence[str]) -> str:
        """Return the name of the first result of a call among its possible *names*: the best free one or its own."""
        for name in names:
            if self._held.get(layout.folded(name), name) == name:
                return name
        return names[-1]

    def numbered(self, call_id: str, tool: str, digest: str) -> str:
        """Return the name of a result whose id cannot be a name; its existing one, if there is one."""
        known = self._tails.get(layout.result_tail(call_id, digest))
        return known or layout.numbered_result_name(call_id, tool, self._results + 1, digest)


def names_for(
    known: JournalState, names: ResultNames, call_id: str, tool: str, *, measure: Measure, parts: Sequence[Record]
) -> Iterator[str]:
    """Yield the possible names of a result, best first.

    These are the names of the same id and content in the journal, then a new one, and last one with a hash of the
    content, in case a file of a killed writer has other content.
    """
    is_plain = len(parts) == 1 and parts[0]["kind"] == "text"
    digest = measure.sha256 if is_plain else text_digest(f"{measure.sha256} {spell(parts)}")
    newest = known.find_call(call_id)
    first = "" if newest is None else layout.first_result_name(newest["path"])
    if newest is not None:
        for name in dict.fromkeys((newest["path"], first, layout.variant_result_name(first, digest))):
            record = known.find_result(name)
            if record is not None and record["call_id"] == call_id and _is_of(record, measure, parts):
                yield name
    possible = layout.result_names(call_id)
    if not possible:
        yield names.numbered(call_id, tool, digest)
        return
    if newest is None:
        first = names.first(possible)
        yield first
    yield layout.variant_result_name(first, digest)


def _is_of(record: Record, measure: Measure, parts: Sequence[Record]) -> bool:
    return bool(record["sha256"] == measure.sha256 and record["parts"] == parts)
