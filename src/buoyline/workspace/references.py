"""The file of a workspace that a tool call reads, by the arguments of the call.

Pure. It opens nothing; its answer only decides whether a re-read result is stored again.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.workspace import layout

LEAST_CHUNK_BYTES: Final = 1 << 20
"""Of the chunks for `holds`; below that, there are too many of them."""

_PATH = r"[\w.~/-]"
_POINTER = r"(?P<lines>:[0-9]{1,15}(?:-[0-9]{1,15})?)?"
_KEPT = (layout.SESSIONS, layout.DATA)
_NAMES = (*_KEPT, "tool_result-", layout.TRANSCRIPT_FILE)


def reference_in(arguments: str, roots: Sequence[str], directory: str) -> str:
    """Return the first reference to stored content in the *arguments* of a call, JSON or any other text.

    A reference may be part of any text among the arguments, such as a shell command: a path below ``sessions/`` or
    ``data/`` of the workspace, absolute or relative, a reference to a payload, or the name of a file of the session as
    in stubs and summaries: ``tool_result-….txt``, ``transcript.md:120-135``. An absolute reference begins with one of
    *roots*, without a ``/`` at the end; the answer begins with the first.

    Returns:
        An absolute path, or ``workspace:///data/…``; empty if there is no reference.
    """
    for text in _texts(arguments):
        for found in _token(tuple(roots)).finditer(text):
            reference = _reference(found, roots, directory)
            if reference:
                return reference
    return ""


def may_name_a_file(arguments: str) -> bool:
    """Return whether `reference_in` may find anything: a fast look for what each reference contains."""
    return "\\u" in arguments or any(map(arguments.__contains__, _NAMES))


def holds(chunks: Iterable[bytes], text: str) -> bool:
    """Return whether the content of *chunks* contains *text*, byte for byte.

    It holds no more than a chunk and the length of *text* at a time. With chunks as long as *text*, the cost is linear.
    """
    needle, held = text.encode("utf-8", "surrogatepass"), b""
    for chunk in chunks:
        held += chunk
        if needle in held:
            return True
        held = held[max(len(held) - len(needle) + 1, 0) :]
    return not needle


def _texts(arguments: str) -> Iterator[str]:
    """Yield the texts in *arguments*, in order; not recursive, since arguments nest as they like."""
    try:
        waiting = [parse(arguments)]
    except MessageError:
        yield arguments
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif is_object(value):
            waiting.extend(reversed(list(value.values())))
        elif is_array(value):
            waiting.extend(reversed(value))


def _token(roots: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for whole paths. Each match begins outside of a path, so that a long one is scanned once."""
    spelled = "|".join(re.escape(root) for root in roots)
    return re.compile(
        rf"(?P<blob>{re.escape(layout.reference_to(layout.DATA))}/[0-9a-f]{{64}}\.[a-z0-9]{{1,8}})"
        rf"|(?<!{_PATH})(?:file://)?(?P<root>{spelled})(?P<below>/{_PATH}*)"
        rf"|(?<!{_PATH})(?P<path>{_PATH}+){_POINTER}"
    )


def _reference(found: "re.Match[str]", roots: Sequence[str], directory: str) -> str:
    if found["blob"]:
        return found["blob"]
    if found["root"]:
        return _kept(posixpath.normpath(f".{found['below']}"), roots[0])
    path = posixpath.normpath(found["path"])
    if path.startswith("/"):
        return ""
    if layout.digest_in(path) is not None:
        return f"{roots[0]}/{path}"
    name = path.rpartition("/")[2]
    if _is_of_session(path, directory) or _is_bare(path, has_lines=found["lines"] is not None):
        return f"{roots[0]}/{directory}/{name}"
    return ""


def _kept(path: str, root: str) -> str:
    return f"{root}/{path}" if path.partition("/")[0] in _KEPT else ""


def _is_of_session(path: str, directory: str) -> bool:
    """Return whether a relative path ends in a file of the session, wherever it is relative to."""
    above, _, name = path.rpartition("/")
    return f"/{above}".endswith(f"/{directory}") and (_is_result(name) or name in _SESSION_FILES)


def _is_bare(name: str, *, has_lines: bool) -> bool:
    return _is_result(name) or (has_lines and name == layout.TRANSCRIPT_FILE)


def _is_result(name: str) -> bool:
    return layout.is_result_name(name) or layout.is_view_name(name)


_SESSION_FILES = frozenset(
    {layout.CONTEXT_FILE, layout.TRANSCRIPT_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE, layout.JOURNAL_FILE}
)
