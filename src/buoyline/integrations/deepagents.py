"""A deep agent whose requests fit, and whose own file tools find what has left them.

Example:
    from buoyline.integrations.deepagents import with_buoyline
    settings = with_buoyline("./workspace", size=128_000)
    agent = create_deep_agent("openai:gpt-5", tools, checkpointer=InMemorySaver(), **settings)
"""

from pathlib import Path, PurePosixPath
from typing import Any, Final

from deepagents.backends import CompositeBackend, FilesystemBackend, StateBackend, protocol
from deepagents.middleware.filesystem import FilesystemMiddleware

from buoyline.integrations.langchain import BuoylineMiddleware, session_of_run
from buoyline.workspace import LocalWorkspace, layout

__all__ = ["with_buoyline"]

_READ_ONLY: Final = "these files are the record of the conversation; they can be read, and not changed"
_TEXTS: Final = "{tool_result*,tool_call*,transcript.md}"
"""What a search looks at, unless it asks for others: the logs have the same in long lines."""


def with_buoyline(
    workspace: LocalWorkspace | str | Path, *, backend: protocol.BackendProtocol | None = None, **settings: Any
) -> dict[str, Any]:
    """Return the arguments ``backend`` and ``middleware`` for `create_deep_agent`.

    Args:
        workspace: Its path, which the agent sees as ``/buoyline``, or a workspace, which it sees as ``shown_as``.
        backend: Of the agent's other files.
        settings: ``max_open``, and those of `ContextWindow.open`, such as ``size``.
    """
    if not isinstance(workspace, LocalWorkspace):
        workspace = LocalWorkspace(workspace, shown_as="/buoyline")
    files = CompositeBackend(backend or StateBackend(), {f"{workspace.roots[0]}/": _SessionFiles(workspace)})
    # With its limit, deepagents would put a large result into a file of its own, and buoyline would get a preview.
    tools = FilesystemMiddleware(backend=files, tool_token_limit_before_evict=None)
    return {"backend": files, "middleware": [_Summarization(workspace, **settings), tools]}


class _Summarization(BuoylineMiddleware):
    """Takes the slot of deepagents' own, also in the general-purpose sub-agent; the agent has its tools already."""

    def __init__(self, workspace: LocalWorkspace, **settings: Any) -> None:
        # The prefix keeps the agent's own `grep` apart from ours, whose results are never offloaded.
        super().__init__(workspace, session=session_of_run, prefix="buoyline_", **settings)
        self.tools = []

    @property
    def name(self) -> str:
        return "SummarizationMiddleware"


class _SessionFiles(protocol.BackendProtocol):
    """The files of the thread that asks and of its sub-agents, to be read."""

    def __init__(self, workspace: LocalWorkspace) -> None:
        self._files = FilesystemBackend(workspace.workdir, virtual_mode=True)

    def ls(self, path: str) -> protocol.LsResult:
        return self._files.ls(_own(path))

    def read(self, file_path: str, *lines: int, **limits: int) -> protocol.ReadResult:
        return self._files.read(_own(file_path), *lines, **limits)

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, **most: Any) -> protocol.GrepResult:
        return self._files.grep(pattern, _own(path), glob or _TEXTS, **most)

    def glob(self, pattern: str, path: str | None = None) -> protocol.GlobResult:
        return self._files.glob(pattern, _own(path))

    def write(self, *_: object, **__: object) -> protocol.WriteResult:
        return protocol.WriteResult(error=_READ_ONLY)

    def edit(self, *_: object, **__: object) -> protocol.EditResult:
        return protocol.EditResult(error=_READ_ONLY)


def _own(path: str | None) -> str:
    """Return *path* if it is in a session of this thread, or names a blob; else the run's own session."""
    session = session_of_run()
    own, thread = (layout.session_directory(one) for one in (session, session.partition("--")[0]))
    asked = "/".join(PurePosixPath("/", path or "").parts[1:3])
    is_own = asked in (own, thread) or asked.startswith((f"{thread}--", "data/"))
    return str(path) if is_own else f"/{own}"
