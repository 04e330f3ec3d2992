"""A user's own manager: one method that removes messages and says whether it did.

Source: Strands documents such a method for its own managers, with an error argument for overflows.
"""

import importlib
import importlib.metadata
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol, cast

from buoyline.errors import ConfigError
from buoyline.management.context import ContextMessage, ContextView, Decision, Evict
from buoyline.management.rules import LegalCuts

ENTRY_POINTS: Final = "buoyline.managers"
"""Group of entry points under which packages offer managers by the name that documents use."""


class Reducer(Protocol):
    """A manager of the user."""

    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool | Awaitable[bool]:
        """Remove messages from *messages*, and return whether any was removed.

        Removed messages are archived first. A system message, a pin, the user's newest message, and one half of a call
        with its result are kept anyway. Adding messages is refused.

        Args:
            messages: The native messages of the context, in order: a list to be changed.
            error: The provider's error after an overflow. If False is returned, it is raised; without an error, False
                does no harm.
        """
        ...


@dataclass(frozen=True, slots=True)
class CustomManager:
    """A user's manager in an entry, with its name in the document and the arguments of its constructor."""

    type_name: str
    settings: Mapping[str, Any]
    reducer: Reducer

    async def decide(self, context: ContextView, error: BaseException | None = None) -> Decision:
        """Let it reduce a copy of the list of messages, and return the action closest to what it removed.

        All messages up to the newest removed one are archived, and the kept ones among them are reinserted.

        Raises:
            ConfigError: It added a message, changed the order, or returned something else than True or False.
            Exception: Any error of its own.
        """
        shown = list(context.all_messages())
        natives = [held.native for held in shown]
        answer = self.reducer.reduce(natives, error=error)
        verdict: object = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(verdict, bool):
            raise ConfigError(self.type_name, f"reduce must answer True or False, not {type(verdict).__name__}")
        places = self._kept(shown, natives)
        if not verdict or len(places) == len(shown):
            return Decision(reason="it left the messages as they are")
        kept = {at - len(context.prefix) for at in places}  # negative: in the prefix
        wanted = max((at + 1 for at in range(len(context.messages)) if at not in kept), default=0)
        # A cut between a call and its result moves back: it is better to keep a message than to archive one too many.
        legal = LegalCuts(context)
        cut = max((cut for cut in legal.cuts if cut <= wanted), default=0)
        again = legal.closed_with((at for at in kept if 0 <= at < cut), cut)
        removed_count = cut - len(again)
        if cut == 0 or removed_count == 0:
            return Decision(reason="what it took away belongs to messages that stay")
        reason = f"{removed_count:,} messages leave"
        return Decision((Evict(cut, again, legal.prefix, reason),), reason)

    def spelled(self) -> dict[str, Any]:
        """Return its settings as JSON values."""
        return dict(self.settings)

    def in_words(self) -> str:
        """Return what it does, from its docstring."""
        documented = inspect.getdoc(type(self.reducer)) or ""
        first = documented.partition("\n")[0].rstrip(".")
        return f"runs {self.type_name}" + (f" ({first})" if first else "")

    def _kept(self, shown: Sequence[ContextMessage], natives: Sequence[Any]) -> list[int]:
        """Return the positions of the messages that are left in *natives*: the same objects, in order."""
        kept: list[int] = []
        rest = iter(enumerate(shown))
        for native in natives:
            at = next((at for at, held in rest if held.native is native), None)
            if at is None:
                problem = "reduce may only take messages out of the list; it put in another one, or changed the order"
                raise ConfigError(self.type_name, problem)
            kept.append(at)
        return kept


def offered_reducers() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Return the entry points of installed packages by name. It reads the metadata of all packages, about 30 ms."""
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def find_reducer(
    type_name: str,
    settings: Mapping[str, Any],
    allowed: Sequence[str],
    offered: Mapping[str, importlib.metadata.EntryPoint],
) -> CustomManager | None:
    """Build the user's manager that a document names *type_name*; None if this is no entry point and no dotted name.

    A dotted name is one such as ``my_package.managers.Last10``; a colon before the class is accepted. It may be
    imported if it is one of *allowed*, or matches a pattern there. An entry point, from `offered_reducers`, needs no
    permission: whoever installed its package gave it.

    Raises:
        ConfigError: It may not be imported, cannot be imported, rejects *settings*, or has no method ``reduce``.
    """
    if type_name in offered:
        return _made(type_name, offered[type_name].load, settings)
    module, _, name = type_name.replace(":", ".").rpartition(".")
    if not module:
        return None
    dotted = f"{module}.{name}"
    if not any(fnmatchcase(dotted, pattern.replace(":", ".")) for pattern in allowed):
        raise ConfigError(type_name, "is not allowed to be imported; allow it with allowed=[...] or --allow NAME")
    return _made(type_name, lambda: getattr(importlib.import_module(module), name), settings)


def _made(type_name: str, load: Callable[[], object], settings: Mapping[str, Any]) -> CustomManager:
    """Build the manager of the class that *load* returns; its module and its constructor are not ours."""
    try:
        factory = load()
    except ImportError as error:
        hint = "install it, or name its folder in PYTHONPATH"  # a command has its own folder on the path, not this one
        raise ConfigError(type_name, f"cannot be imported: {error}; {hint}") from error
    except (AttributeError, SyntaxError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise ConfigError(type_name, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise ConfigError(type_name, f"is no class but {type(factory).__name__}")
    try:
        reducer = factory(**settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(type_name, f"does not take these settings: {error}") from error
    if not callable(getattr(reducer, "reduce", None)):
        raise ConfigError(type_name, "has no method reduce(messages, *, error=None) -> bool")
    return CustomManager(type_name, dict(settings), cast("Reducer", reducer))
