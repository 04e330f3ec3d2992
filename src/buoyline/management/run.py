"""Run the managers of a hook, and report what each did."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from buoyline.management.context import (
    ActionResult,
    ContextEditor,
    ContextView,
    Evict,
    ManagerAction,
    Offload,
    Summarize,
)
from buoyline.management.model import ContextManagement, ManagerEntry
from buoyline.management.rules import Hook


@dataclass(frozen=True, slots=True)
class ManagerRun:
    """The outcome of one entry at its hook.

    Attributes:
        number: Of the entry at the hook, 0-based.
        is_active: Its activation rules were met.
        reason: The rules with the compared numbers; if they were met, also what the manager found.
        problems: Deviations from the document.
        messages: Their number before and after.
        tokens: Of the whole context before and after.
    """

    hook: Hook
    number: int
    type_name: str
    is_active: bool
    reason: str
    done: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_reduced: bool = False
    messages: tuple[int, int] = (0, 0)
    tokens: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class ManagementReport:
    """What the managers of a hook did: one entry for each manager that was asked, in order."""

    entries: list[ManagerRun] = field(default_factory=list[ManagerRun])

    @property
    def is_reduced(self) -> bool:
        """Whether any manager made the context smaller."""
        return any(ran.is_reduced for ran in self.entries)

    def in_words(self) -> Iterator[str]:
        """Yield a line for each entry."""
        for ran in self.entries:
            what = "; ".join((*ran.done, *ran.problems)) or ran.reason
            state = "" if ran.is_active else "not run: "
            yield f"{ran.hook}[{ran.number}] {ran.type_name}: {state}{what}"


async def run(management: ContextManagement, hook: Hook, editor: ContextEditor) -> ManagementReport:
    """Run the managers of *hook* in the order of the document, each on the context that the previous one left.

    Raises:
        ConfigError: A user's own manager broke the contract of `Reducer`.
        StorageError: The file system refused; earlier actions stay done, and nothing was lost.
        Exception: Any error of a user's own manager.
    """
    running = _Running(editor)
    for number, entry in enumerate(management.entries(hook)):
        await running.entry(hook, number, entry)
    return running.report


@dataclass(slots=True)
class _Running:
    editor: ContextEditor
    report: ManagementReport = field(default_factory=ManagementReport)
    _view: ContextView | None = None

    def view(self) -> ContextView:
        """Return the context after the previous action; it may be long, so it is read again only after an action."""
        if self._view is None:
            self._view = self.editor.view()
        return self._view

    async def entry(self, hook: Hook, number: int, entry: ManagerEntry) -> None:
        """Run one entry and record its outcome."""
        context = self.view()
        is_met, rules = entry.activation.verdict(context)
        if not is_met:
            idle = ManagerRun(hook, number, entry.manager.type_name, is_active=False, reason=rules)
            self.report.entries.append(idle)
            return
        decision = await entry.decide(context)
        done = [await self._carry_out(action) for action in decision.actions]
        after = self.view()
        self.report.entries.append(
            ManagerRun(
                hook,
                number,
                entry.manager.type_name,
                is_active=True,
                reason=f"{rules}: {decision.reason}",
                done=tuple(one.words for one in done),
                problems=tuple(problem for one in done for problem in one.problems),
                is_reduced=any(one.is_reduced for one in done),
                messages=(context.message_count, after.message_count),
                tokens=(context.tokens, after.tokens),
            )
        )

    async def _carry_out(self, action: ManagerAction) -> ActionResult:
        self._view = None
        match action:
            case Evict():
                return await self.editor.evict(action)
            case Summarize():
                return await self.editor.summarize(action)
            case Offload():
                return await self.editor.replace(action)
