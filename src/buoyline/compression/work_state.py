"""`WorkState`: where the work is, as calls and results show it. `compression.extractive.work` keeps it up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter

from buoyline.compression.pointers import Pointer

FileOperation: TypeAlias = Literal["created", "changed", "deleted", "moved", "read"]
Outcome: TypeAlias = Literal["passes", "fails", "ran"]

# The state is bounded, and the newest is kept: a summary says the state of one session, however long it is.
MAX_FILES: Final = 400
MAX_CHECKS: Final = 60
MAX_BETWEEN: Final = 20
"""Files that were changed between a failure and a pass."""
MAX_REPOSITORY_POINTERS: Final = 8
MAX_COMMITS: Final = 60
MAX_ITEMS: Final = 100
"""Of the plan."""
MAX_TEXT_CHARS: Final = 600
"""Of each text: a command, a failing line, an item."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file that the agent touched.

    Attributes:
        path: As the agent wrote it.
        operation: The strongest of what was done: a file that was read and then changed is changed.
        changes: How often it was changed; 0 if it was only read.
        last: Session index of the newest such call; the pointers are its lines.
        edit: The last change in one clause; empty if its form is not known.
        content: Where its newest content is; None if no result holds it.
        directory: Directory that a relative path was meant in, if the command entered one.
    """

    path: str
    operation: FileOperation
    changes: int
    last: int
    pointers: tuple[Pointer, ...] = ()
    edit: str = ""
    content: Pointer | None = None
    directory: str = ""


@dataclass(frozen=True, slots=True)
class CheckState:
    """The last outcome of a command that checks the work.

    Attributes:
        command: Its steps that check, joined by ``&&`` if one of them failed: nobody knows which one. Its key begins
            with the directory if the same command also checks another one.
        outcome: "ran" if its output says neither.
        line: The failing lines, or the line that counts what passed; may be empty.
        last: Session index of the last of *runs*; the pointers are its lines and those of its result.
        failed_before: The failing lines of the last failure, if it passed since.
        changed_between: Files that were changed between that failure and the pass.
        directory: Directory that the last run entered first; empty if it entered none.
        changed_after: Files that were changed behind it in the same message, and "the files of `git pull`" for such a
            command, in order.
    """

    command: str
    outcome: Outcome
    line: str
    last: int
    runs: int
    pointers: tuple[Pointer, ...] = ()
    failed_before: str = ""
    changed_between: tuple[str, ...] = ()
    directory: str = ""
    changed_after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """What version control was last seen to say.

    Attributes:
        branch: Empty if it was never named.
        commits: Hash and subject of each commit of this session, in order.
        pushed: Hash or branch of the last push.
        last_commit: Session index; -1 without one.
        last_push: The same.
        pointers: Lines of the results that named the branch and the newest commits.
    """

    branch: str = ""
    commits: tuple[tuple[str, str], ...] = ()
    pushed: str = ""
    last_commit: int = -1
    last_push: int = -1
    pointers: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanItem:
    """An entry of the agent's plan; the pointers are lines of the call or the message that named it.

    Attributes:
        text: As it was written, like the status.
        status: "open" or "done" if the list has none.
        is_done: The status means that nothing is left to do.
        last: Session index of the call that set it.
        key: Its id, if the tool takes one call for each entry; its number in a list of a message.
    """

    text: str
    status: str
    is_done: bool
    last: int
    pointers: tuple[Pointer, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class WorkState:
    """Files, checks, version control, and plan.

    Attributes:
        files: By path, in the order of their first touch.
        checks: By command, in the order of their last run.
        plan: Entries of the newest plan, done and open, in its order.
        has_used_git: A command asked or changed version control.
        has_tool_plan: The plan was set by calls: then lists in messages are no plans.
        directory: The directory that the last command entered, if its path is absolute.
        end: Index behind the newest message that it covers.
    """

    files: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    checks: Mapping[str, CheckState] = field(default_factory=dict[str, CheckState])
    repository: RepositoryState = RepositoryState()
    plan: tuple[PlanItem, ...] = ()
    has_used_git: bool = False
    has_tool_plan: bool = False
    directory: str = ""
    end: int = 0

    @property
    def changed_files(self) -> list[FileState]:
        """Files that were created, changed, deleted or moved, oldest change first."""
        return sorted((one for one in self.files.values() if one.operation != "read"), key=lambda one: one.last)

    @property
    def uncommitted(self) -> list[str]:
        """Paths changed since the last commit of the session, oldest change first; empty without a commit."""
        return self.changed_since(self.repository.last_commit) if self.repository.last_commit >= 0 else []

    def changed_since(self, index: int) -> list[str]:
        """Return the paths that were changed behind the message *index*, oldest change first."""
        return [one.path for one in self.changed_files if one.last > index]

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, without what has its default; `work_state_from` reads it."""
        found: dict[str, Any] = _ADAPTER.dump_python(self, mode="json", exclude_defaults=True)
        return found


_ADAPTER: Final = TypeAdapter(WorkState)


def work_state_from(found: Mapping[str, Any]) -> WorkState:
    """Read what `WorkState.to_json` returned; unknown keys are ignored.

    Raises:
        ValueError: A key is missing or has another type.
    """
    return _ADAPTER.validate_python(found)
