"""Documents in words."""

from collections.abc import Iterator

from buoyline.management.model import ContextManagement
from buoyline.management.rules import HOOKS


def explained(management: ContextManagement) -> Iterator[str]:
    """Yield lines that say what *management* does, in the order in which it happens."""
    name = f"{management.name}: " if management.name else ""
    yield f"{name}{management.description or 'no description'}"
    if not management.hooks:
        yield "No manager ever runs."
    for hook, entries in management.hooks.items():
        yield f"{hook}, {HOOKS[hook]}:"
        yield from (f"  {number}. {entry.in_words()}" for number, entry in enumerate(entries, 1))
