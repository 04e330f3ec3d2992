"""A user's own manager: one method that removes messages and says whether it did."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from buoyline.errors import ConfigError
from buoyline.management.context import ContextMessage, ContextView, Decision, Evict
from buoyline.management.rules import LegalCuts


class Reducer(Protocol):
    """A manager of the user."""

    def reduce(self, messages: list[Any]) -> bool | Awaitable[bool]:
        """Remove messages from *messages*, and return whether any was removed.

        Removed messages are archived first. A system message, a pin, the user's newest message, and one half of a call
        with its result are kept anyway. Adding messages is refused.

        Args:
            messages: The native messages of the context, in order: a list to be changed.
        """
        ...


@dataclass(frozen=True, slots=True)
class CustomManager:
    """A user's manager in an entry, with its name in the document and the arguments of its constructor."""

    type_name: str
    settings: Mapping[str, Any]
    reducer: Reducer

    async def decide(self, context: ContextView) -> Decision:
        """Let it reduce a copy of the list of messages, and return the action closest to what it removed.

        All messages up to the newest removed one are archived, and the kept ones among them are reinserted.

        Raises:
            ConfigError: It added a message, changed the order, or returned something else than True or False.
            Exception: Any error of its own.
        """
        shown = list(context.all_messages())
        natives = [held.native for held in shown]
        answer = self.reducer.reduce(natives)
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


_registered: Final[dict[str, Callable[..., Reducer]]] = {}


def register_manager(name: str, factory: Callable[..., Reducer]) -> None:
    """Let documents name a manager of the user, in this process.

    Args:
        name: The ``type`` of its entries.
        factory: Its class; each entry calls it with the other keys of its ``config``.
    """
    _registered[name] = factory


def custom_manager(type_name: str, settings: Mapping[str, Any]) -> CustomManager | None:
    """Build the manager that is registered as *type_name*; None if there is none.

    Raises:
        ConfigError: It rejects *settings*, or has no method ``reduce``.
    """
    factory = _registered.get(type_name)
    if factory is None:
        return None
    try:
        reducer = factory(**settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(type_name, f"does not take these settings: {error}") from error
    if not callable(getattr(reducer, "reduce", None)):
        raise ConfigError(type_name, "has no method reduce(messages) -> bool")
    return CustomManager(type_name, dict(settings), reducer)


def registered_managers() -> list[str]:
    """Return the names of all registered managers."""
    return list(_registered)
