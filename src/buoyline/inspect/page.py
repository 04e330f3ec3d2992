"""A session as one static HTML page: each request as a bar, the messages, the compactions, and what they cite.

The page asks no network for anything. All that a session says is escaped, and no script runs but the page's own.
"""

import base64
import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import accumulate
from string import Template
from typing import Any, Final

from buoyline.compression import Pointer
from buoyline.compression.text import pointers_in
from buoyline.inspect.session import cited_sentences, shown_numbers
from buoyline.lookups.answer import count_lines, merged, numbered, shown, whole_lines
from buoyline.messages.registry import stored_view
from buoyline.offloader.transcript import render
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.workspace import layout
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, LoggedMessage

_FOLDED_LINES: Final = 12
"""A message of more lines is folded."""

_FIRST_LINES: Final = 80
"""So many lines of a file are in the page, beside those that are cited: people mail it."""

_AROUND_LINES: Final = 3
_MARKED_LINES: Final = 1_000
"""Of one citation: a summary that was tampered with may cite a billion."""


def page_of(session: Session) -> str:
    """Return the page of a loaded session. Blocks.

    Raises:
        CorruptError: A message cannot be read.
    """
    page = _Page(session)
    template = files("buoyline.inspect").joinpath("page.html").read_text("utf-8")
    script = template.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(template).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        title=_text(session.session_id),
        asked=_text(next((view.text for view in page.views if view.role == "user"), "")[:300]),
        facts=_text(" · ".join(page.facts())),
        most=f"{page.most:,}",
        bars="".join(page.bars()),
        timeline="".join(page.timeline()),
    )


_DAMAGED: Final = LoggedMessage({"role": "system", "content": "[This line is damaged: see `buoyline verify`.]"})


class _Page:
    """The parts of a page.

    Attributes:
        views: The messages, as the context has them.
        most: The tokens of the highest bar possible.
    """

    def __init__(self, session: Session) -> None:
        counter, settings = default_counter(), session.state.settings or {}
        readable = [line.number for line in session.lines()]
        read = dict(zip(readable, session.read(readable), strict=True))
        self._session = session
        self._lines = [read.get(number, _DAMAGED) for number in range(session.state.end)]
        self.views = [stored_view(line.value, line.dialect) for line in self._lines]
        self._sums = [0, *accumulate(count_message(view, counter) for view in self.views)]
        self._fixed = counter.count(str(settings.get("system") or ""))
        self._summaries = {one["n"]: one for one in session.summaries()}
        found = (line for line in session.records() if line.value.get("op") == "context")
        self._records = [ContextRecord.from_json(line.value, line.facts) for line in found]
        self._cited = defaultdict[str, set[int]](set)
        for cited in (found for one in self._summaries.values() for found in pointers_in(str(one.get("text", "")))):
            self._cited[cited.path].update(range(cited.start, min(cited.end, cited.start + _MARKED_LINES) + 1))
        self._tools = {call.call_id: call.name for view in self.views for call in view.calls}
        self._calls = [number for number, view in enumerate(self.views) if view.role == "assistant"]
        requests = (self._tokens(number, self._record_at(number)) for number in self._calls)
        self._requests = [*requests]
        largest = max([*self._requests, 1])
        self.most = max(largest, min(settings.get("size") or largest, largest * 5 // 4))
        self._in_context = {*shown_numbers(session.state.context, session.state.end)}

    def facts(self) -> Iterator[str]:
        """Yield the numbers of the session."""
        compactions, results = sum(bool(one.left) for one in self._records), sum(len(one.stored) for one in self._lines)
        counts = {"message": len(self.views), "model call": len(self._calls)}
        counts |= {"compaction": compactions, "offloaded result": results}
        yield from (f"{count:,} {word}{'' if count == 1 else 's'}" for word, count in counts.items())
        times = [line.time[:16].replace("T", " ") for line in self._lines if line.time]
        yield from filter(None, [" to ".join(dict.fromkeys([*times[:1], *times[-1:]]))])

    def bars(self) -> Iterator[str]:
        """Yield a bar for each model call, as high as its request."""
        before = None
        for call, (number, tokens) in enumerate(zip(self._calls, self._requests, strict=True), 1):
            record = self._record_at(number)
            kind, before = "" if record is before else " class=compacted", record
            title = f"call {call}: {tokens:,} tokens{' after a compaction' if kind else ''}"
            height = f"height:{100 * tokens / self.most:.1f}%"
            yield f'<a href="#m{number}"{kind} title="{title}"><i style="{height}"></i></a>'

    def timeline(self) -> Iterator[str]:
        """Yield the messages, and each compaction where it happened."""
        transcript, at, count = self._transcript(), 0, 0
        before: ContextRecord | None = None
        for record in self._records:
            if record.left:
                yield from (self._message(number, transcript) for number in range(at, record.end))
                at, count = record.end, count + 1
                yield self._compaction(count, before, record)
            before = record
        yield from (self._message(number, transcript) for number in range(at, len(self.views)))

    # Tokens.

    def _record_at(self, number: int) -> ContextRecord | None:
        """Return the newest record of the context before message *number*."""
        at = bisect_right(self._records, number, key=lambda record: record.end)
        return self._records[at - 1] if at else None

    def _tokens(self, number: int, record: ContextRecord | None) -> int:
        """Return the tokens of the context before message *number* was added, as *record* says."""
        total, sums = self._fixed, self._sums
        if record is None:
            return total + sums[number]
        archived = record.until
        for first, end in record.ranges:
            start = min(first + archived, end)
            archived -= start - first
            total += sums[end] - sums[start]
        total += sum(sums[kept + 1] - sums[kept] for kept in (*record.systems, *record.pins))
        total += int(self._summaries.get(record.summary, {}).get("tokens", 0))
        return total + sums[max(number, record.end)] - sums[record.end]

    # Messages.

    def _transcript(self) -> Mapping[int, str]:
        places = merged((first, end - 1) for first, end in self._session.state.places.values())
        return dict(numbered(whole_lines(self._chunks(layout.TRANSCRIPT)), places))

    def _chunks(self, name: str) -> Iterator[bytes]:
        path = f"{self._session.name}/{name}"
        return self._session.disk.chunks(path) if self._session.disk.status(path) is not None else iter(())

    def _message(self, number: int, transcript: Mapping[int, str]) -> str:
        line, view, place = self._lines[number], self.views[number], self._session.state.places.get(number)
        if place is None:
            (rendered,) = render([view], number, [line.time], lambda _: None)
            lines = [(0, text.removeprefix("### ")) for text in rendered[1:-1]]
        else:
            lines = [(at, transcript.get(at, "").removeprefix("### ")) for at in range(place[0] + 1, place[1] - 1)]
        names = [call.name for call in view.calls]
        names += [result.name or self._tools.get(result.call_id, "") for result in view.results]
        tokens = self._sums[number + 1] - self._sums[number]
        about = [view.role, *dict.fromkeys(filter(None, names)), f"{tokens:,} tokens", line.time[11:19]]
        about += [*(["pinned"] if line.pinned else []), *(["archived"] if place else [])]
        about += ["in the context"] if number in self._in_context else []
        stored = "".join(self._file(found.name) for held in line.stored.values() for found in held)
        body = self._block(layout.TRANSCRIPT, lines, is_folded=len(lines) > _FOLDED_LINES)
        heading = f"<h2><a href=#m{number}>{number}</a> {_text(' · '.join(filter(None, about)))}</h2>"
        return f"<article id=m{number} class={view.role}>{heading}{body}{stored}</article>"

    def _file(self, name: str) -> str:
        """Return a file beside the logs, folded: its beginning, and what is cited."""
        if not layout.is_stored_name(name):
            return ""
        count = count_lines(whole_lines(self._chunks(name)))
        cited = ((max(line - _AROUND_LINES, 1), line + _AROUND_LINES) for line in self._cited[name])
        lines = [*numbered(whole_lines(self._chunks(name)), merged([(1, _FIRST_LINES), *cited]))]
        return self._block(name, lines, is_folded=True, about=f"{name}, {count:,} lines")

    def _block(self, name: str, lines: Sequence[tuple[int, str]], *, is_folded: bool, about: str = "") -> str:
        """Return lines of a file, numbered unless they are those of a message; cited ones are marked."""
        rows, before = list[str](), lines[0][0] - 1 if lines else 0
        cited = self._cited[name]
        for at, text in lines:
            rows += ["<i>…</i>"] if about and at != before + 1 else []
            mark = f" id={_anchor(name, at)} class=cited" if at in cited else ""
            rows.append(f"<span{mark}{f' data-n={at}' if about else ''}>{_text(shown(text))}</span>")
            before = at
        block = "\n".join(rows).join(("<pre>", "</pre>"))
        first = next((text for _, text in lines if text.strip() and not text.startswith(("call ", "result "))), "")
        title = about or f"{len(lines)} lines: {first[:100]}"
        return f"<details><summary>{_text(title)}</summary>{block}</details>" if is_folded else block

    # Compactions.

    def _compaction(self, number: int, before: ContextRecord | None, record: ContextRecord) -> str:
        summary: Mapping[str, Any] = self._summaries.get(record.summary, {})
        written: Mapping[str, Any] = summary.get("fields") or {}
        fields = {name: str(text) for name, text in written.items()}
        parts, field = [f"<p>{_text(record.notice)}</p>"] if record.notice else [], ""
        for name, said, cited in cited_sentences(fields):
            parts += [f"<h4>{_text(name.replace('_', ' '))}</h4>"] if name != field else []
            parts.append(f"<p>{_text(said)} {' '.join(map(_link, cited))}</p>")
            field = name
        gone = sum(end - first for first, end in record.left)
        tokens = self._tokens(record.end, before), self._tokens(record.end, record)
        return (
            f"<section id=c{number}><h2>Compaction {number}: {gone:,} messages archived, "
            f"{tokens[0]:,} → {tokens[1]:,} tokens</h2>{''.join(parts)}</section>"
        )


def _link(cited: Pointer) -> str:
    kind = "cite" if cited.path == layout.TRANSCRIPT else "cite cite-file"
    return f'<a class="{kind}" href="#{_anchor(cited.path, cited.start)}">{_text(str(cited))}</a>'


def _anchor(name: str, line: int) -> str:
    """Return the id of a line: no name of a file can end the attribute that it is in."""
    return f"l-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}-{line}"


def _text(text: str) -> str:
    return escape(shown(text) if "\n" not in text else text)
