"""Documents in words, and what in them is allowed but probably not meant. Pure."""

from collections.abc import Iterator

from buoyline.management.document import ContextManagement
from buoyline.management.entry import Entry
from buoyline.management.hooks import HOOKS, Hook
from buoyline.management.managers import Compression, OutputTruncation, SlidingWindow, Summarization

_ROOM_FOR_PATH_CHARS = 200


def explained(management: ContextManagement) -> Iterator[str]:
    """Yield lines that say what *management* does, in the order in which it happens."""
    name = f"{management.name}: " if management.name else ""
    yield f"{name}{management.description or 'no description'}"
    if management.is_null:
        yield "No manager ever runs: the context is left as it is."
    for hook, entries in management.hooks.items():
        yield f"{hook}, {HOOKS[hook]}:"
        yield from (f"  {number}. {entry.in_words()}" for number, entry in enumerate(entries, 1))


def advice(management: ContextManagement) -> Iterator[tuple[str, str]]:
    """Yield the path and the reason of what is allowed but hardly does what its author wants."""
    is_summarising = any(_summarises(entry) for entries in management.hooks.values() for entry in entries)
    if management.entries("pre_compress") and not is_summarising:
        yield "hooks.pre_compress", "never fires: no manager of this document summarises"
    for hook, entries in management.hooks.items():
        left: int | None = None
        for number, entry in enumerate(entries):
            path = f"hooks.{hook}[{number}]"
            yield from ((path, reason) for reason in _doubts(hook, entry))
            manager = entry.manager
            if left is not None and isinstance(manager, Summarization) and left <= manager.preserve_recent_messages:
                preserved = f"it preserves {manager.preserve_recent_messages}; let it run first"
                yield path, f"has nothing to summarise: {left} messages are left before it, and {preserved}"
            if isinstance(manager, SlidingWindow) and not entry.activation.spelled():
                left = manager.max_messages if left is None else min(left, manager.max_messages)


def _doubts(hook: Hook, entry: Entry) -> Iterator[str]:
    manager, rules = entry.manager, entry.activation
    model = manager.summarization_model_id if isinstance(manager, Summarization) else None
    if model and model.startswith("<"):
        yield f"summarization_model_id is still the placeholder {model!r}; name a model, or leave it out"
    if hook == "on_overflow" and rules.on_overflow is False:
        yield "never runs: the hook fires on an overflow, and the rule on_overflow is false"
    if hook != "on_overflow" and rules.on_overflow and hook != "pre_llm":
        yield "never runs: the rule on_overflow is looked at in pre_llm and on_overflow alone"
    yield from _doubts_about_limits(entry)
    if isinstance(manager, Compression) and hook == "pre_llm" and not rules.spelled():
        yield "runs before each call, however small the context is; give it tokens_exceed_ratio"


def _doubts_about_limits(entry: Entry) -> Iterator[str]:
    """Yield what the numbers of an entry, taken together, do not do."""
    manager, rules = entry.manager, entry.activation
    others = [name for name in rules.spelled() if name != "rule_type"]
    if rules.rule_type and others:
        yield f"rule_type 'always' changes nothing: {' and '.join(others)} must be met all the same"
    if isinstance(manager, OutputTruncation) and manager.max_output_length < _ROOM_FOR_PATH_CHARS:
        yield (
            f"cuts to fewer than {_ROOM_FOR_PATH_CHARS} characters: what stays names the file of the whole without its "
            "directory, or not at all"
        )
    count = rules.message_count_exceed
    if isinstance(manager, SlidingWindow) and not manager.at_least and count and count < manager.max_messages:
        yield f"runs above {count} messages, but does nothing before there are more than {manager.max_messages}"


def _summarises(entry: Entry) -> bool:
    return isinstance(entry.manager, (Compression, Summarization))
