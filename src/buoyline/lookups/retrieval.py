"""Retrieve offloaded content by reference, in the form of Strands' tool ``retrieve_offloaded_content``.

Source: the page on the context offloader, for the parameters, the modes and the form of an answer.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from buoyline.errors import ConfigError
from buoyline.lookups.answer import Answer, Counter, Spelling
from buoyline.lookups.contents import MAX_MEDIA_BYTES, contents_of, is_text, media_of
from buoyline.lookups.lines import count_lines
from buoyline.lookups.passages import Form, Query, Scope, search, span
from buoyline.lookups.patterns import finder
from buoyline.lookups.places import Files, Workspace, files_of
from buoyline.lookups.references import Target, target_of
from buoyline.lookups.retrieved import MediaContent, Retrieved, TextContent
from buoyline.lookups.scanning import Deadline
from buoyline.tokens import as_text_counter, default_counter
from buoyline.workspace import layout

DEFAULT_MAX_TOKENS: Final = 2_500
DEFAULT_CONTEXT_LINES: Final = 5
DEFAULT_TIMEOUT_S: Final = 30.0

# The longest token of o200k_base has 128 bytes; a file with more bytes than that a token need not be counted.
_MAX_BYTES_PER_TOKEN = 128
_MAX_NAMED_MEDIA = 5
_CHUNK_BYTES = 1 << 20
_PLACE = re.compile(r"(.+):([0-9]{1,15}):([0-9]{1,15})", re.DOTALL)
_EMPTY = "Content is empty (0 lines)."
_LITERAL = "the pattern is no RE2 syntax, which has no look-around or back-references: its text itself was searched for"
_SPLIT = "no line of the view matches; these lines are of {name}, the result as the tool gave it"


def as_call(position: Mapping[str, Any]) -> str:
    """Say how to go on to a model, in the JSON that its next call will hold."""
    return "repeat the call with " + ", ".join(f'"{name}": {json.dumps(value)}' for name, value in position.items())


def retrieve(
    workspace: Workspace,
    reference: str,
    pattern: str | None = None,
    line_range: Mapping[str, Any] | None = None,
    context_lines: int | None = None,
    *,
    whole: bool = False,
    session: str | None = None,
    timeout_s: float | None = DEFAULT_TIMEOUT_S,
    max_tokens: int | None = DEFAULT_MAX_TOKENS,
    counter: Counter | None = None,
    spelling: Spelling = as_call,
) -> Retrieved:
    """Retrieve offloaded content: whole in its native types, or lines of it, or what matches a pattern.

    Lines are counted as in stubs and pointers: in the view of a result where it has one. Where no line of the view
    matches, the result is searched as the tool gave it, since a match may stand on two lines of the view. Blocking.

    Args:
        workspace: Where the content is, on disk or in memory; in memory, retrieving it counts as a use of it.
        reference: In any form that `buoyline.lookups.references.target_of` knows.
        pattern: A regular expression in RE2 syntax; what is none is taken as the text itself, and the answer says so.
            The empty pattern shows all lines.
        line_range: ``{"start": first, "end": last}``, 1-based and inclusive; an end behind the last line stands for it.
        context_lines: Lines before and after each hit, 5 where it is None; a negative number is 0. Without *pattern*
            and *line_range*: how many lines to show from the beginning, at least one.
        whole: Give all that is asked for, whatever *max_tokens* says: content up to 20 MB.
        session: The only session whose content may be had; None for all.
        timeout_s: After how many seconds to answer with the matches found until then; None for no bound.
        max_tokens: For the whole text of the answer. None lifts the bound, also that of 20 MB on a payload.
        counter: Counts them; the default counter where it is None.
        spelling: Says in the answer how to go on.

    Returns:
        Without the three options the content itself, text as it was to the last byte. Where it has more than
        *max_tokens* tokens: its first lines and how to go on. In this it departs from the documented tool, whose full
        retrieval puts any size back into the context; *whole* does that here.

    Raises:
        ConfigError: *line_range* is not within the content, an option cannot be, lines of binary content are asked
            for, *max_tokens* is too few to show anything, *whole* asks for over 20 MB, or *workspace* is neither of the
            two.
        CorruptError: The payload that *reference* names is not what was stored.
        InvalidNameError: *reference* leads out of the workspace, or is no text.
        NotFoundError: There is no such content or session, or a call has several results.
        StorageError: A file cannot be read.
    """
    files = files_of(workspace)
    target = target_of(files, reference, session)
    if whole and (files.tree.size(target.whole) or 0) > MAX_MEDIA_BYTES:
        raise ConfigError("whole", f"the content has over {MAX_MEDIA_BYTES:,} bytes; give a pattern or a line_range")
    form = Form(None if whole else max_tokens, counter, spelling)
    context = None if context_lines is None else max(_whole_number("context_lines", context_lines), 0)
    if pattern is None and line_range is None and context is None and not target.is_narrowed:
        return _whole(files, target, form, is_bounded=max_tokens is not None)
    _require_text(files, target)
    total = count_lines(files.tree.chunks(target.name))
    if not total:
        return Retrieved.of(TextContent(_EMPTY))
    if line_range is None and pattern is None and context is not None:
        line_range = {"start": target.first, "end": target.first + max(context, 1) - 1}
    scope = _scope(target, total, line_range)
    if not pattern:
        return Retrieved.shown(span(files.tree, scope, form))
    query, notes = _query(pattern, DEFAULT_CONTEXT_LINES if context is None else context, timeout_s)
    return Retrieved.shown(_found(files, target, scope, query, dataclasses.replace(form, notes=notes)))


def retrieve_lines(
    content: bytes,
    reference: str,
    pattern: str | None = None,
    line_range: Mapping[str, Any] | None = None,
    context_lines: int | None = None,
    *,
    max_tokens: int | None = DEFAULT_MAX_TOKENS,
    counter: Counter | None = None,
    spelling: Spelling = as_call,
) -> Answer:
    """Show lines of content that is in no workspace, in the form of `retrieve`; the first ones without an option.

    Args:
        content: Text in UTF-8.
        reference: What it is called; ``:120:1001`` behind it begins at a column of a line, as answers say it.
        pattern: See `retrieve`.
        line_range: See `retrieve`.
        context_lines: See `retrieve`.
        max_tokens: See `retrieve`.
        counter: See `retrieve`.
        spelling: See `retrieve`.

    Raises:
        ConfigError: See `retrieve`.
    """
    name, first, column = place_in(reference)
    source, form = _Held(content), Form(max_tokens, counter, spelling)
    total = count_lines(source.chunks(name))
    if not total:
        return Answer(_EMPTY, name)
    context = None if context_lines is None else max(_whole_number("context_lines", context_lines), 0)
    if line_range is None and pattern is None and context is not None:
        line_range = {"start": first, "end": first + max(context, 1) - 1}
    scope = _scope(
        Target(name, name, first=first, column=column, is_narrowed=first > 1 or column > 1), total, line_range
    )
    if not pattern:
        return span(source, scope, form)
    query, notes = _query(pattern, DEFAULT_CONTEXT_LINES if context is None else context, DEFAULT_TIMEOUT_S)
    return search(source, scope, query, dataclasses.replace(form, notes=notes))


def place_in(reference: str) -> tuple[str, int, int]:
    """Return the name that *reference* begins with, and the line and the column behind it; 1 and 1 without them."""
    place = _PLACE.fullmatch(reference)
    return (reference, 1, 1) if place is None else (place[1], max(int(place[2]), 1), max(int(place[3]), 1))


@dataclasses.dataclass(frozen=True, slots=True)
class _Held:
    """Content in memory, as lines are read from it."""

    content: bytes

    def chunks(self, name: str) -> Iterator[bytes]:  # noqa: ARG002 - there is one only
        for start in range(0, len(self.content), _CHUNK_BYTES):
            yield self.content[start : start + _CHUNK_BYTES]


def _scope(target: Target, total: int, line_range: Mapping[str, Any] | None) -> Scope:
    """Return the lines that are asked for.

    Raises:
        ConfigError: There are none such.
    """
    start, end = (1, total) if line_range is None else _bounds(line_range, total)
    first, last = max(start, target.first), min(end, target.last, total)
    if first > last:
        problem = f"lines {start} to {end} are not within those that the reference names; the content has 1 to {total}"
        raise ConfigError("line_range", problem)
    column = target.column if first == target.first else 1
    return Scope(target.name, first, last, total, column, is_narrowed=line_range is not None or target.is_narrowed)


def _bounds(line_range: Any, total: int) -> tuple[int, int]:
    if not isinstance(line_range, Mapping) or "start" not in line_range or "end" not in line_range:
        raise ConfigError("line_range", f'must be {{"start": first, "end": last}}; valid are 1 to {total}')
    start, end = (_whole_number(f"line_range.{name}", line_range[name]) for name in ("start", "end"))
    if not 1 <= start <= end:
        raise ConfigError(
            "line_range", f"start {start} must be at least 1 and not behind end {end}; 1 to {total} is valid"
        )
    if start > total:
        raise ConfigError("line_range", f"start {start} is behind the last line; 1 to {total} is valid")
    return start, end


def _whole_number(name: str, value: Any) -> int:
    """Return *value* as a number; models also spell it as text, or with a fraction of zero."""
    try:
        if isinstance(value, (int, float, str)) and not isinstance(value, bool) and int(value) == float(value):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise ConfigError(name, f"must be a whole number, not {str(value)[:80]!r}")


def _query(pattern: str, context_lines: int, timeout_s: float | None) -> tuple[Query, tuple[str, ...]]:
    """Return what to search for, and what is to be said of it."""
    if not isinstance(pattern, str):
        raise ConfigError("pattern", f"must be text, not {type(pattern).__name__}")
    try:
        return Query(pattern, finder(pattern), context_lines, Deadline(timeout_s)), ()
    except ConfigError:
        return Query(pattern, finder(pattern, literal=True), context_lines, Deadline(timeout_s)), (_LITERAL,)


def _found(workspace: Files, target: Target, scope: Scope, query: Query, form: Form) -> Answer:
    """Search the view of a result, and where nothing in it matches, the result itself."""
    answer = search(workspace.tree, scope, query, form)
    if answer.lines or scope.is_narrowed or target.whole == target.name:
        return answer
    total = count_lines(workspace.tree.chunks(target.whole))
    form = dataclasses.replace(form, notes=(*form.notes, _SPLIT.format(name=target.whole)))
    found = search(workspace.tree, Scope(target.whole, 1, total, total), query, form)
    return found if found.lines else answer


def _whole(workspace: Files, target: Target, form: Form, *, is_bounded: bool) -> Retrieved:
    """Return all of the content if it fits, else its first lines and the media, up to 20 MB if *is_bounded*."""
    media = media_of(workspace, target, is_bounded=is_bounded)
    if not is_text(workspace, target.whole):
        return Retrieved.of(*media)
    whole = _fitting(workspace, target, media, form)
    if whole is not None:
        return whole
    named = [part.text for part in media[:_MAX_NAMED_MEDIA]]
    if len(media) > len(named):
        named.append(f"[{len(media) - len(named)} more, not text either]")
    total = count_lines(workspace.tree.chunks(target.name))
    if not total:
        return Retrieved(media, "\n".join(named))
    form = dataclasses.replace(form, notes=tuple(note[1:-1] for note in named))
    return Retrieved.shown(span(workspace.tree, _scope(target, total, None), form), *media)


def _fitting(workspace: Files, target: Target, media: tuple[MediaContent, ...], form: Form) -> Retrieved | None:
    """Return all of the content; None where it is too large. What is far too large is not read for that."""
    if form.max_tokens is None:
        return Retrieved.of(*contents_of(workspace, target, media))
    if (workspace.tree.size(target.whole) or 0) > form.max_tokens * _MAX_BYTES_PER_TOKEN:
        return None
    whole = Retrieved.of(*contents_of(workspace, target, media))
    counter = as_text_counter(default_counter() if form.counter is None else form.counter)
    return None if counter.exceeds(whole.text, form.max_tokens) else whole


def _require_text(workspace: Files, target: Target) -> None:
    """Refuse to look for lines where there are none.

    Raises:
        ConfigError: The content is a payload, or a result of payloads alone.
    """
    media = [part.get("path", "") for part in target.parts if "path" in part]
    if not is_text(workspace, target.whole):
        media = [target.whole]
    elif not media or workspace.tree.size(target.whole):
        return
    problem = f"cannot search binary content ({', '.join(map(layout.media_type_of, media[:_MAX_NAMED_MEDIA]))})"
    raise ConfigError("reference", f"{problem}; leave out pattern, line_range and context_lines to get it whole")
