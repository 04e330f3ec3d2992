"""`WorkState`: where the work is, as calls and results show it. `compression.extractive.work` keeps it up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter

from buoyline.compression.pointers import Pointer

FileOperation: TypeAlias = Literal["created", "changed", "deleted", "moved", "read"]
Outcome: TypeAlias = Literal["passes", "fails", "ran"]


@dataclass(frozen=True, slots=True)
class FileState:
    """A file that the agent touched.

    Attributes:
        path: As the agent wrote it.
        operation: The strongest of what was done: a file that was read and then changed is changed.
        changes: How often it was changed; 0 if it was only read.
        last: Session index of the newest such call.
        pointers: Lines of that call.
        edit: The last change in one clause; empty if its form is not known.
        content: Where its newest content is; None if no result holds it.
    """

    path: str
    operation: FileOperation
    changes: int
    last: int
    pointers: tuple[Pointer, ...] = ()
    edit: str = ""
    content: Pointer | None = None


@dataclass(frozen=True, slots=True)
class CheckState:
    """The last outcome of a command that checks the work.

    Attributes:
        command: Its steps that check, joined by ``&&`` if one of them failed: nobody knows which one.
        outcome: "ran" if its output says neither.
        line: The failing lines, or the line that counts what passed; may be empty.
        last: Session index of the last run.
        runs: How many there were.
        pointers: Lines of the last run and its result.
        failed_before: The failing lines of the last failure, if it passed since.
        changed_between: Files that were changed between that failure and the pass.
    """

    command: str
    outcome: Outcome
    line: str
    last: int
    runs: int
    pointers: tuple[Pointer, ...] = ()
    failed_before: str = ""
    changed_between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """What version control was last seen to say.

    Attributes:
        branch: Empty if it was never named.
        commits: Hash and subject of each commit of this session, in order.
        pushed: Hash or branch of the last push.
        last_commit: Session index of the last commit; -1 without one.
        last_push: The same of the last push.
        pointers: Lines of the result that says so.
    """

    branch: str = ""
    commits: tuple[tuple[str, str], ...] = ()
    pushed: str = ""
    last_commit: int = -1
    last_push: int = -1
    pointers: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanItem:
    """An entry of the agent's plan.

    Attributes:
        text: As the agent wrote it.
        status: The same.
        is_done: Whether that status means that nothing is left to do.
        last: Session index of the call that set it.
        pointers: Lines of the call that named the entry.
        key: Its id, if the tool takes one call for each entry.
    """

    text: str
    status: str
    is_done: bool
    last: int
    pointers: tuple[Pointer, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class WorkState:
    """Files, checks, version control and plan.

    Attributes:
        files: By path, in the order of their first touch.
        checks: By command, in the order of their last run.
        repository: Version control.
        plan: Entries of the newest plan, done and open, in its order.
        has_used_git: Whether a command asked or changed version control.
        end: Index behind the newest message that it covers.
    """

    files: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    checks: Mapping[str, CheckState] = field(default_factory=dict[str, CheckState])
    repository: RepositoryState = RepositoryState()
    plan: tuple[PlanItem, ...] = ()
    has_used_git: bool = False
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
