"""One file under several spellings: absolute, relative, and relative to a directory that a command entered.

Directories only help to compare. The spelling that is kept was written by somebody: the absolute one if there is one.
"""

from collections.abc import Mapping
from functools import lru_cache
from posixpath import join, normpath

from buoyline.compression.work_state import FileState


def known_name(files: Mapping[str, FileState], path: str, directory: str = "", *, home: str = "") -> str | None:
    """Return the key of *files* that names the same file as *path*; None if there is none.

    Args:
        files: By the spelling that was kept.
        path: As the agent wrote it.
        directory: Directory that the same command entered; empty if it entered none.
        home: Directory of the commands before, which may not be that of *path*; empty if it is not known.
    """
    if path in files and files[path].directory == directory:
        return path
    wanted = normpath(join(directory, path))
    names = {name: _full_name(one.directory, name) for name, one in _alike(files, wanted).items()}
    for spelled in (wanted, normpath(join(home, wanted))):
        if (same := next((name for name, full in names.items() if full == spelled), None)) is not None:
            return same
    if home and "/" not in wanted:  # every directory may have one of that name
        return None
    inner = [name for name, full in names.items() if _is_tail(full, wanted) or _is_tail(wanted, full)]
    return inner[0] if len(inner) == 1 else None


@lru_cache(maxsize=4_096)
def _full_name(directory: str, name: str) -> str:
    """Return the whole path of a file; many files of one name are compared with each other again and again."""
    return normpath(join(directory, name))


def _alike(files: Mapping[str, FileState], path: str) -> dict[str, FileState]:
    """Return the files whose last name is that of *path*."""
    last = path.rpartition("/")[2]
    return {name: one for name, one in files.items() if name == last or name.endswith(f"/{last}")}


def _is_tail(path: str, tail: str) -> bool:
    """Return whether *tail* is relative and ends *path*; climbing paths end nothing."""
    return path.endswith(f"/{tail}") and not tail.startswith(("/", ".."))


def entered(words: str, directory: str) -> str | None:
    """Return the directory behind the step *words* of a command begun in *directory*; None if it is no ``cd``."""
    found = words.split()
    if found[:1] not in (["cd"], ["pushd"]):
        return None
    to = found[1].strip("'\"") if len(found) > 1 else ""
    if not to or to.startswith(("-", "$", "~", "`")):
        return ""
    return normpath(join(directory, to))
