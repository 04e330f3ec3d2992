"""References to offloaded content, and the content in its own types.

References come from models, so every form that a stub, a citation or an answer shows is accepted. They lead only to
offloaded content: not to the agent's own files, the journal, or a session that is not allowed.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias

from buoyline.errors import CorruptError, InvalidNameError, NotFoundError, StorageError
from buoyline.lookups.answer import Answer, Line, shown_path
from buoyline.lookups.paths import (
    MAX_NEAR,
    PLACE,
    FileLines,
    directory_of,
    names_in,
    near,
    resolve_file,
    shortened,
)
from buoyline.lookups.read import begins_as_text
from buoyline.lookups.sources import records_of
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.model import join_texts
from buoyline.workspace import MemoryWorkspace, ReadableWorkspace, layout
from buoyline.workspace.blobs import payload_behind

_KIND = "offloaded content"
_EVICTED = "it was in memory, and evicted since nobody used it for too many turns; run the tool again"
_MESSAGE_FILES = frozenset({layout.TRANSCRIPT_FILE, layout.CONTEXT_FILE})
_OTHER_FILES = frozenset(
    {layout.SESSION_FILE, layout.JOURNAL_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE, layout.TORN}
)


@dataclass(frozen=True, slots=True)
class Target:
    """Offloaded content, and the lines of it that are asked for: *first* to *last*, the first one from *column* on.

    Attributes:
        name: The file whose lines are counted, relative to the workdir: the view of a result if it has one, as in stubs
            and citations.
        whole: The file with the content itself; differs from `name` if there is a view.
        parts: The journal's record of a result's blocks, in the tool's order; may be empty.
        is_narrowed: Whether the caller has named lines.
        cited: First and last line of each place, if the reference names several; else empty.
    """

    name: str
    whole: str
    parts: tuple[Mapping[str, Any], ...] = ()
    first: int = 1
    last: int = sys.maxsize
    column: int = 1
    is_narrowed: bool = False
    cited: tuple[tuple[int, int], ...] = ()

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The lines from `first` to `last` that are asked for, in order and without overlap."""
        return FileLines(self.name, self.first, self.last, self.cited).within(self.first, self.last)


def resolve_reference(workspace: ReadableWorkspace, reference: str, session: str | None = None) -> Target:
    """Find the content that *reference* means, and that *session* may retrieve; None for all.

    *reference* is the path of a tool result or its view, of a transcript or archive, or of a file under ``data/``:
    absolute, relative to the workdir, or with *session* relative to the session; its plain name; a
    ``workspace:///data/`` reference; the id of a call or its unique beginning. ``:120-135`` or ``:120-135,141`` after
    it narrows it to these lines; ``:120:1001`` begins at a column, in exactly the file named. The brackets of a
    citation may be there. Files under ``data/`` belong to no session: an agent that knows the hash has seen the
    reference.

    Raises:
        InvalidNameError: *reference* leads out of the workspace or is not text.
        NotFoundError: There is no such content, or it is another session's; the error suggests names. Or several files
            are meant; the error lists them.
        StorageError: It is not a regular file.
    """
    if not isinstance(reference, str):
        raise InvalidNameError(reference, f"a reference must be text, not {type(reference).__name__}")
    named = reference.strip()
    try:
        return _by_path(workspace, named, session)
    except NotFoundError as error:
        if error.kind not in {"file", _KIND}:  # no such session, or several files
            raise
        is_evicted = isinstance(workspace, MemoryWorkspace) and workspace.is_evicted(
            named.removeprefix(f"{workspace.roots[0]}/")
        )
        hint = _EVICTED if is_evicted else _near(workspace, named, session)
        raise NotFoundError(_KIND, shortened(named), hint) from error


def _by_path(workspace: ReadableWorkspace, reference: str, session: str | None) -> Target:
    place = PLACE.fullmatch(reference)
    if place is not None:
        try:
            name = resolve_file(workspace, place[1], session).name
        except NotFoundError:
            pass
        else:
            _require_offloaded(workspace, name, session)
            return Target(name, name, first=max(int(place[2]), 1), column=max(int(place[3]), 1), is_narrowed=True)
    resolved = resolve_file(workspace, reference, session)
    _require_offloaded(workspace, resolved.name, session)
    found = _with_view(workspace, resolved.name)
    if (resolved.first, resolved.last) == (1, sys.maxsize):
        return found
    return replace(found, first=resolved.first, last=resolved.last, is_narrowed=True, cited=resolved.ranges)


def _with_view(workspace: ReadableWorkspace, name: str) -> Target:
    """Return the content of the file *name*, with the view and the recorded parts if it is a result or a view."""
    directory, _, file = name.rpartition("/")
    if layout.is_view_name(file):
        file = layout.result_behind(file)
        if workspace.files.size(f"{directory}/{file}") is None:  # the view can be read without its result
            return Target(name, name)
    elif not layout.is_result_name(file):
        return Target(name, name)
    whole, view = f"{directory}/{file}", f"{directory}/{layout.view_name(file)}"
    shown = whole if workspace.files.size(view) is None else view
    parts = records_of(workspace, directory).get(file, {}).get("parts", ())
    return Target(shown, whole, tuple(part for part in parts if is_object(part)))


def _require_offloaded(workspace: ReadableWorkspace, name: str, session: str | None) -> None:
    """Raise NotFoundError for a file that was not offloaded, or not by *session*."""
    directory, _, file = name.rpartition("/")
    if layout.digest_in(name) is not None:
        return
    is_ours = layout.is_result_name(file) or layout.is_view_name(file) or file in _MESSAGE_FILES
    above, _, _ = directory.rpartition("/")
    if (
        not is_ours
        or above != layout.SESSIONS
        or (session is not None and directory_of(workspace, session) != directory)
    ):
        raise NotFoundError(_KIND, name)


def _near(workspace: ReadableWorkspace, reference: str, session: str | None) -> str:
    """Say which names are near *reference*, or else which content there is."""
    known = list(dict.fromkeys(name for name in names_in(workspace, session) if name not in _OTHER_FILES))
    if names := near(reference, known):
        return f"near are {', '.join(map(shown_path, names))}"
    if not known:
        return "nothing was offloaded yet" if session is None else "nothing was offloaded in this session yet"
    more = f" and {len(known) - MAX_NEAR:,} more" if len(known) > MAX_NEAR else ""
    return f"there are {', '.join(map(shown_path, known[:MAX_NEAR]))}{more}"


_SHOWN_CHARS = 100
_NO_BRACKETS = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True)
class TextContent:
    """Text that a tool returned, or an answer about it."""

    text: str


@dataclass(frozen=True, slots=True)
class JsonContent:
    """A JSON value that a tool returned, in the tool's spelling."""

    text: str

    @property
    def value(self) -> Any:
        """The parsed value. Each access parses the text; 10 MB take 0.1 s.

        Raises:
            MessageError: The text is not JSON.
        """
        return parse(self.text)


@dataclass(frozen=True, slots=True)
class MediaContent:
    """An image, document, audio clip or other blob.

    Attributes:
        kind: ``"image"``, ``"document"``, ``"audio"`` or the block's own type.
        media_type: IANA media type; ``"application/octet-stream"`` if unknown.
        size_bytes: The size of the whole blob.
        path: Absolute path of its file.
        name: File name or title; empty if unknown.
        content: The bytes; None if they are too many or cannot be read.
        problem: Why `content` is None; else empty.
    """

    kind: str
    media_type: str
    size_bytes: int
    path: str
    name: str = ""
    content: bytes | None = field(default=None, repr=False)
    problem: str = ""

    @property
    def format(self) -> str:
        """The media type's second half, e.g. ``"png"``, as in Strands' blocks."""
        return self.media_type.rpartition("/")[2]

    @property
    def text(self) -> str:
        """The documented placeholder, with the path of the file as the reference.

        A tool chooses the name and other facts, so they are kept on one line of bounded length without brackets.
        """
        facts = [self.kind, self.format, *([self.name] if self.name else []), f"{self.size_bytes} bytes"]
        kind, *others = (shown_path(fact[:_SHOWN_CHARS]).translate(_NO_BRACKETS) for fact in facts)
        problem = f" | {self.problem}" if self.problem else ""
        return f"[{kind}: {', '.join(others)} | ref: {self.path}{problem}]"


Content: TypeAlias = TextContent | JsonContent | MediaContent


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The answer of `retrieve`.

    Attributes:
        parts: The content in its own types and in the tool's order. If it was cut or searched: one text that says so,
            then the media.
        text: All of it as one text, with placeholders for media, for a tool that can only answer text.
        lines: The lines that are shown, in order; none if the content is whole.
        total: The number of lines, or of lines that match; 0 if the content is whole.
        next: Arguments that make the same call go on where this answer ends; empty at the end.
    """

    parts: tuple[Content, ...]
    text: str
    lines: tuple[Line, ...] = ()
    total: int = 0
    next: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, *parts: Content) -> Self:
        """Make an answer of whole parts; the text of each begins on a new line."""
        return cls(parts, join_texts([part.text for part in parts]))

    @classmethod
    def shown(cls, answer: Answer, *media: MediaContent) -> Self:
        """Make an answer of lines of the content and the *media* beside them."""
        return cls((TextContent(answer.text), *media), answer.text, answer.lines, answer.total, answer.next)

    @property
    def media(self) -> tuple[MediaContent, ...]:
        """The parts that are blobs."""
        return tuple(part for part in self.parts if isinstance(part, MediaContent))


MAX_MEDIA_BYTES: Final = 20_000_000
"""The most bytes of media in one answer, unless the caller lifts the bound: no provider takes more."""

_SNIFFED_BYTES = 1 << 16
_UNKNOWN_TYPE = "application/octet-stream"
_JSON_TYPE = "application/json"
_MEDIA_KINDS = frozenset({"audio", "image", "video"})


def is_text(workspace: ReadableWorkspace, name: str) -> bool:
    """Return whether file *name* has lines. All files have but blobs with the extension of another type.

    A blob of unknown type, such as HTML or SVG, has lines if it begins as UTF-8 without NUL.
    """
    if layout.digest_in(name) is None:
        return True
    media_type = layout.media_type_of(name)
    if media_type != _UNKNOWN_TYPE:
        return media_type.startswith("text/") or media_type == _JSON_TYPE
    return begins_as_text(workspace.files.read(name, 0, _SNIFFED_BYTES))


def media_of(workspace: ReadableWorkspace, target: Target, *, is_bounded: bool) -> tuple[MediaContent, ...]:
    """Return the media of *target* in the tool's order, with up to 20 MB of bytes in all if *is_bounded*.

    Raises:
        CorruptError: *target* is a single file of ``data/`` and not what was stored. Among other parts, a damaged blob
            only names its problem.
        StorageError: *target* is a single file of ``data/`` and cannot be read.
    """
    left_bytes = MAX_MEDIA_BYTES if is_bounded else sys.maxsize
    if layout.digest_in(target.whole) is not None:
        media_type = layout.media_type_of(target.whole)
        kind = media_type.partition("/")[0]
        kind = kind if kind in _MEDIA_KINDS else "document"
        blob = {"kind": kind, "media_type": media_type, "path": target.whole}
        return (_stored_media(workspace, blob, left_bytes),)
    found: list[MediaContent] = []
    for part in target.parts:
        if "path" not in part:
            continue
        try:
            found.append(_stored_media(workspace, part, left_bytes))
        except (CorruptError, StorageError) as error:
            reason = error.reason if isinstance(error, CorruptError) else str(error.strerror)
            found.append(_described(workspace, part, int(part.get("bytes", 0)), None, reason))
        left_bytes -= len(found[-1].content or b"")
    return tuple(found)


def _stored_media(workspace: ReadableWorkspace, part: Mapping[str, Any], max_bytes: int) -> MediaContent:
    size_bytes = workspace.files.size(part["path"]) or 0
    if size_bytes > max_bytes:
        return _described(workspace, part, size_bytes, None, "too large for an answer")
    content = payload_behind(workspace.files, layout.reference_to(part["path"]))
    return _described(workspace, part, len(content), content, "")


def _described(
    workspace: ReadableWorkspace, part: Mapping[str, Any], size_bytes: int, content: bytes | None, problem: str
) -> MediaContent:
    return MediaContent(
        kind=part["kind"],
        media_type=part.get("media_type") or layout.media_type_of(part["path"]),
        size_bytes=size_bytes,
        path=workspace.files.reference(part["path"]),
        name=part.get("name", ""),
        content=content,
        problem=problem,
    )


def contents_of(workspace: ReadableWorkspace, target: Target, media: tuple[MediaContent, ...]) -> tuple[Content, ...]:
    """Return the whole content of *target*, which is text, with its *media*, in the tool's order.

    Text is as the tool returned it, lone surrogates included. Invalid UTF-8, which no text of a tool becomes, is shown
    as U+FFFD.
    """
    content = workspace.files.read(target.whole)
    if not target.parts:
        text = _decoded(content)
        is_json = target.whole.endswith(".json") and layout.digest_in(target.whole) is not None
        return (JsonContent(text) if is_json else TextContent(text),)
    contents: list[Content] = []
    waiting = iter(media)
    for part in target.parts:
        if "path" in part:
            contents.append(next(waiting))
        else:
            text = _decoded(content[part["offset"] : part["offset"] + part["bytes"]])
            contents.append(JsonContent(text) if part["kind"] == "json" else TextContent(text))
    return tuple(contents)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace")
