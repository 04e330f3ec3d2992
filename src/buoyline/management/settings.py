"""Documents in words, and advice about entries that are valid but probably not meant."""

from collections.abc import Iterator

from buoyline.management.managers import OutputTruncation, SlidingWindow, Summarization
from buoyline.management.model import ContextManagement, ManagerEntry
from buoyline.management.rules import HOOKS

_ROOM_FOR_PATH_CHARS = 200


def explained(management: ContextManagement) -> Iterator[str]:
    """Yield lines that say what *management* does, in the order in which it happens."""
    name = f"{management.name}: " if management.name else ""
    yield f"{name}{management.description or 'no description'}"
    if not management.hooks:
        yield "No manager ever runs."
    for hook, entries in management.hooks.items():
        yield f"{hook}, {HOOKS[hook]}:"
        yield from (f"  {number}. {entry.in_words()}" for number, entry in enumerate(entries, 1))


def advice(management: ContextManagement) -> Iterator[tuple[str, str]]:
    """Yield the path and the reason of each entry that is valid but hardly does what its author wants."""
    for hook, entries in management.hooks.items():
        left: int | None = None
        for number, entry in enumerate(entries):
            path = f"hooks.{hook}[{number}]"
            yield from ((path, reason) for reason in _doubts(entry))
            manager = entry.manager
            if left is not None and isinstance(manager, Summarization) and left <= manager.preserve_recent_messages:
                preserved = f"it preserves {manager.preserve_recent_messages}; let it run first"
                yield path, f"has nothing to summarise: {left} messages are left before it, and {preserved}"
            if isinstance(manager, SlidingWindow) and not entry.activation.spelled():
                left = manager.max_messages if left is None else min(left, manager.max_messages)


def _doubts(entry: ManagerEntry) -> Iterator[str]:
    manager, rules = entry.manager, entry.activation
    model = manager.summarization_model_id if isinstance(manager, Summarization) else None
    if model and model.startswith("<"):
        yield f"summarization_model_id is still the placeholder {model!r}; name a model, or leave it out"
    others = [name for name in rules.spelled() if name != "rule_type"]
    if rules.rule_type and others:
        yield f"rule_type 'always' changes nothing: {' and '.join(others)} must be met all the same"
    if isinstance(manager, OutputTruncation) and manager.max_output_length < _ROOM_FOR_PATH_CHARS:
        cut = f"cuts to fewer than {_ROOM_FOR_PATH_CHARS} characters"
        yield f"{cut}: what stays names the file of the whole without its directory, or not at all"
    count = rules.message_count_exceed
    if isinstance(manager, SlidingWindow) and count and count < manager.max_messages:
        yield f"runs above {count} messages, but does nothing before there are more than {manager.max_messages}"
