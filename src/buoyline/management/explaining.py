"""Documents in words, and what in them is allowed but probably not meant. Pure."""

from collections.abc import Iterator

from buoyline.management.document import ContextManagement
from buoyline.management.entry import Entry
from buoyline.management.hooks import HOOKS, Hook
from buoyline.management.managers import Compression, SlidingWindow, Summarization


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
        for number, entry in enumerate(entries):
            path = f"hooks.{hook}[{number}]"
            yield from ((path, reason) for reason in _doubts(hook, entry))
            yield from ((path, reason) for reason in _doubts_after(entries[:number], entry))


def _doubts(hook: Hook, entry: Entry) -> Iterator[str]:
    manager, rules = entry.manager, entry.activation
    model = manager.summarization_model_id if isinstance(manager, Summarization) else None
    if model and model.startswith("<"):
        yield f"summarization_model_id is still the placeholder {model!r}; name a model, or leave it out"
    if hook == "on_overflow" and rules.on_overflow is False:
        yield "never runs: the hook fires on an overflow, and the rule on_overflow is false"
    if hook != "on_overflow" and rules.on_overflow and hook != "pre_llm":
        yield "never runs: the rule on_overflow is looked at in pre_llm and on_overflow alone"
    if isinstance(manager, Compression) and hook == "pre_llm" and not rules.spelled():
        yield "runs before each call, however small the context is; give it tokens_exceed_ratio"


def _doubts_after(before: tuple[Entry, ...], entry: Entry) -> Iterator[str]:
    """Yield what the managers that run before leave this one nothing to do."""
    if not isinstance(entry.manager, Summarization):
        return
    for other in before:
        slides = other.manager if isinstance(other.manager, SlidingWindow) and not other.activation.spelled() else None
        if slides is not None and slides.max_messages <= entry.manager.preserve_recent_messages:
            yield (
                f"has nothing to summarise: {slides.max_messages} messages are left before it, and it preserves "
                f"{entry.manager.preserve_recent_messages}; let it run first"
            )


def _summarises(entry: Entry) -> bool:
    return isinstance(entry.manager, (Compression, Summarization))
