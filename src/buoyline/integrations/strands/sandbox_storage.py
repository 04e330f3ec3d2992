"""`SandboxStorage`: offloaded content as files in a sandbox of Strands', where the agent's shell finds them.

Source: Strands' page on the storage of its context offloader, for the sidecars and the form of references.
"""

import posixpath
import re
import time
import uuid
from typing import TYPE_CHECKING, Final

from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment

from buoyline.errors import MessageError
from buoyline.messages import is_object, parse, spell
from buoyline.workspace import layout

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox

_SIDECAR: Final = ".metadata.json"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_KEY_CHARS: Final = 60


def is_sandboxed(sandbox: "Sandbox | None") -> bool:
    """Tell whether files of *sandbox* are others than those of the host: the default of an agent is the host itself."""
    return sandbox is not None and not isinstance(sandbox, NotASandboxLocalEnvironment)


class SandboxStorage:
    """Keeps each block in a file of its own below one directory of a sandbox.

    Beside each file a sidecar holds its content type: with one sidecar for all, two agents would write over each
    other's types. Whoever has a reference, in whatever process, retrieves the block.
    """

    def __init__(self, artifact_dir: str, sandbox: "Sandbox") -> None:
        """Store in *artifact_dir* of *sandbox*; nothing is written before something is stored."""
        self._directory, self._sandbox = artifact_dir.rstrip("/"), sandbox

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content* and return the path of its file in the sandbox.

        Raises:
            OSError: The sandbox refused.
        """
        slug = _UNSAFE.sub("_", key).strip("_")[:_KEY_CHARS] or "block"
        extension = posixpath.splitext(layout.blob_name(b"", content_type))[1]
        path = f"{self._directory}/{int(time.time() * 1000)}_{uuid.uuid4().hex[:8]}_{slug}{extension}"
        await self._sandbox.write_file(f"{path}{_SIDECAR}", spell({"content_type": content_type}).encode())
        await self._sandbox.write_file(path, content)
        return path

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content behind *reference*, a path, a file name, or one without extension, and its type.

        Raises:
            KeyError: There is no such file in the directory.
        """
        directory, _, name = reference.rpartition("/")
        is_below = not directory or posixpath.normpath(directory) == posixpath.normpath(self._directory)
        if not name or name.startswith(".") or name.endswith(_SIDECAR) or not is_below:
            raise KeyError(f"Reference not found: {reference}")
        try:
            path = f"{self._directory}/{name if '.' in name else await self._named(name)}"
            return await self._sandbox.read_file(path), await self._type_of(path)
        except OSError as error:
            raise KeyError(f"Reference not found: {reference}") from error

    async def _named(self, stem: str) -> str:
        """Return the one file whose name without its extension is *stem*; else *stem* itself."""
        names = [file.name for file in await self._sandbox.list_files(self._directory)]
        found = [name for name in names if posixpath.splitext(name)[0] == stem]
        return found[0] if len(found) == 1 else stem

    async def _type_of(self, path: str) -> str:
        """Return the content type of a file; that of its extension if its sidecar is gone or damaged."""
        try:
            noted = parse(await self._sandbox.read_file(f"{path}{_SIDECAR}"))
        except (MessageError, OSError):
            noted = None
        kind = noted.get("content_type") if is_object(noted) else None
        return kind if isinstance(kind, str) else layout.media_type_of(path)
