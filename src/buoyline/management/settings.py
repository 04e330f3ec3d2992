"""Documents from settings of `ContextConfig` and of Strands, and back; documents in words, and advice about them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from buoyline.compression import ContextConfig
from buoyline.compression.config import AUTO
from buoyline.errors import ConfigError
from buoyline.management.managers import (
    Offloading,
    OutputTruncation,
    Pinning,
    RatioCompression,
    SlidingWindow,
    Summarization,
)
from buoyline.management.model import ContextManagement, ManagerEntry
from buoyline.management.rules import HOOKS, Hook, nearest
from buoyline.messages import spell
from buoyline.messages.jsonl import is_object
from buoyline.offloader import ToolRule

_CONFIG_DEFAULTS = ContextConfig()
_OFFLOADING = ("tool_result_limit", "preview_tokens", "turn_results_limit")
_COMPRESSION = ("reserve_ratio", "summary_tokens", "compression_prompt", "summary_template")


def from_context_config(config: ContextConfig, *, name: str = "") -> ContextManagement:
    """Return a document that does what *config* does.

    ``OffloadManager`` at ``post_tool`` has the limits of tool results, ``CompressionManager`` at ``pre_llm`` the
    settings of the summary, and ``tokens_exceed_ratio`` is `trigger_ratio`.

    Raises:
        ConfigError: `trigger_ratio` is ``"auto"``.
    """
    if config.trigger_ratio == AUTO:
        raise ConfigError("trigger_ratio", "a document has a number; give one")
    offloading = {key: value for key in _OFFLOADING if (value := getattr(config, key)) is not None}
    if config.tool_rules:
        defaults = {field.name: field.default for field in fields(ToolRule)}
        offloading["tool_rules"] = {
            tool: {name: value for name, value in asdict(rule).items() if value != defaults[name]}
            for tool, rule in config.tool_rules.items()
        }
    compression: dict[str, Any] = {
        key: value for key in _COMPRESSION if (value := getattr(config, key)) != getattr(_CONFIG_DEFAULTS, key)
    }
    # Compared as text, since the order of the fields is that of the summary.
    if spell(config.summary_schema) != spell(_CONFIG_DEFAULTS.summary_schema):
        compression["summary_schema"] = dict(config.summary_schema)
    compression["activation"] = {"tokens_exceed_ratio": config.trigger_ratio}
    hooks = {
        "post_tool": [{"type": Offloading.type_name, "config": offloading}],
        "pre_llm": [{"type": RatioCompression.type_name, "config": compression}],
    }
    return ContextManagement.read({"hooks": hooks}, name=name)


def to_context_config(management: ContextManagement) -> ContextConfig:
    """Return the `ContextConfig` that does what *management* does.

    Raises:
        ConfigError: A `ContextConfig` cannot do it; the error names the entry.
    """
    offloading = _only(management, "post_tool", Offloading)
    compression = _only(management, "pre_llm", RatioCompression)
    others = [hook for hook in management.hooks if hook not in ("post_tool", "pre_llm")]
    if others:
        raise ConfigError(f"hooks.{others[0]}", "a ContextConfig has nothing for this hook")
    if management.entries("post_tool")[0].activation.spelled():
        raise ConfigError("hooks.post_tool[0].activation", "a ContextConfig always offloads what is too large")
    rules = management.entries("pre_llm")[0].activation.spelled()
    if set(rules) != {"tokens_exceed_ratio"}:
        raise ConfigError("hooks.pre_llm[0].activation", "must be tokens_exceed_ratio alone for a ContextConfig")
    found = offloading.config()
    given = {name: getattr(found, name) for name in (*_OFFLOADING, "tool_rules")}
    config: ContextConfig = compression.config(trigger_ratio=rules["tokens_exceed_ratio"], **given)
    return config


def _only(management: ContextManagement, hook: Any, kind: type[Any]) -> Any:
    entries = management.entries(hook)
    if len(entries) != 1 or not isinstance(entries[0].manager, kind):
        raise ConfigError(f"hooks.{hook}", f"must be one {kind.type_name} and nothing else for a ContextConfig")
    return entries[0].manager


# The settings of Strands' conversation managers as documents, and back. Nothing of Strands is imported.
#
# Source: Strands' page on conversation management, for the names, the defaults, and when each manager works.


NULL: Final = "NullConversationManager"
SLIDING: Final = "SlidingWindowConversationManager"
SUMMARIZING: Final = "SummarizingConversationManager"

_COMMON: Final[Mapping[str, Any]] = {"pin_first": None, "proactive_compression": None}
_STRANDS_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    NULL: {"proactive_compression": None},
    SLIDING: {"window_size": 40, "should_truncate_results": True, "per_turn": False, **_COMMON},
    SUMMARIZING: {
        "summary_ratio": 0.3,
        "preserve_recent_messages": 10,
        "summarization_system_prompt": None,
        **_COMMON,
    },
}
_DEFAULT_THRESHOLD: Final = 0.7
_TRUNCATED_CHARS: Final = 400
"""On an overflow Strands keeps the first and the last 200 characters of a large result."""

_LEAST_TRIMMED: Final = 2
"""Strands drops at least so many messages, however few there are."""


def from_strands_settings(manager: str, settings: Mapping[str, Any]) -> ContextManagement:
    """Return a document that does what a conversation manager of Strands does with *settings*.

    Its work after the loop is at ``post_memory``, before the next turn; ``per_turn`` is ``every_model_calls`` at
    ``pre_llm``; ``proactive_compression`` is ``tokens_exceed_ratio`` there; an overflow has its own hook. *manager* is
    the name of the class; *settings* are its keyword arguments, with the documented defaults.

    Raises:
        ConfigError: The manager or a setting does not exist, or a document cannot have it, such as an agent.
        DocumentError: A value cannot work.
    """
    if manager not in _STRANDS_DEFAULTS:
        hint = nearest(manager, tuple(_STRANDS_DEFAULTS))
        raise ConfigError("manager", f"{manager!r} is none of Strands' managers; {hint}")
    for key in settings:
        if key == "summarization_agent":
            hint = "a document cannot hold an agent; name a model with summarization_model_id, and pass summarizers="
            raise ConfigError(key, hint)
        if key not in _STRANDS_DEFAULTS[manager]:
            hint = nearest(key, tuple(_STRANDS_DEFAULTS[manager]))
            raise ConfigError(key, f"{manager} has no such setting; {hint}")
    found = {**_STRANDS_DEFAULTS[manager], **settings}
    if manager == NULL:
        return ContextManagement.read({"hooks": {}})
    pins = [{"type": Pinning.type_name, "config": {"first": found["pin_first"]}}] if found["pin_first"] else []
    hooks = _sliding(found) if manager == SLIDING else _summarizing(found)
    return ContextManagement.read({"hooks": {hook: [*pins, *entries] for hook, entries in hooks.items() if entries}})


def to_strands_settings(management: ContextManagement) -> tuple[str, dict[str, Any]]:
    """Return the name and the keyword arguments of Strands' manager that does what *management* does.

    Raises:
        ConfigError: No manager of Strands does exactly that.
    """
    manager, settings = _read([(hook, entry) for hook, entries in management.hooks.items() for entry in entries])
    try:
        is_same = from_strands_settings(manager, settings).hooks == management.hooks
    except ConfigError:
        is_same = False
    if not is_same:
        raise ConfigError("management", f"says more than {manager} can do; keep it as a document")
    return manager, settings


def compression_threshold(proactive: object) -> float | None:
    """Return the share of the window above which Strands compresses before a call; None if it does not.

    Strands ignores unknown keys, and compares any threshold with 0. *proactive* is ``proactive_compression``, as passed
    to a conversation manager.

    Raises:
        ConfigError: It is not None, true, false, or a threshold above 0 and at most 1.
    """
    if proactive is None or proactive is False:
        return None
    if proactive is True:
        return _DEFAULT_THRESHOLD
    if not is_object(proactive) or not set(proactive) <= {"compression_threshold"}:
        shown = f"not {str(proactive)[:80]!r}"
        raise ConfigError("proactive_compression", f'must be True, or {{"compression_threshold": 0.7}}, {shown}')
    threshold = proactive.get("compression_threshold", _DEFAULT_THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
        problem = f"must be between 0 (exclusive) and 1 (inclusive), not {str(threshold)[:80]!r}"
        raise ConfigError("proactive_compression", f"compression_threshold {problem}")
    return threshold


def _sliding(found: Mapping[str, Any]) -> dict[Hook, list[dict[str, Any]]]:
    size = {"max_messages": found["window_size"]}
    shortened = {"type": OutputTruncation.type_name, "config": {"max_output_length": _TRUNCATED_CHARS}}
    overflow = [shortened] if found["should_truncate_results"] else []
    before: list[dict[str, Any]] = []
    if found["per_turn"]:
        before.append(_slide({**size, "activation": {"every_model_calls": int(found["per_turn"])}}))
    if threshold := compression_threshold(found["proactive_compression"]):
        rule = {"tokens_exceed_ratio": threshold}
        before.append(_slide({**size, "at_least": _LEAST_TRIMMED, "activation": rule}))
    return {
        "post_memory": [_slide(size)],
        "pre_llm": before,
        "on_overflow": [*overflow, _slide({**size, "at_least": _LEAST_TRIMMED})],
    }


def _summarizing(found: Mapping[str, Any]) -> dict[Hook, list[dict[str, Any]]]:
    config = {"summary_ratio": found["summary_ratio"], "preserve_recent_messages": found["preserve_recent_messages"]}
    if found["summarization_system_prompt"] is not None:
        config["summarization_system_prompt"] = found["summarization_system_prompt"]
    threshold = compression_threshold(found["proactive_compression"])
    rule = {"activation": {"tokens_exceed_ratio": threshold}}
    entry = {"type": Summarization.type_name, "config": config}
    before = [{"type": Summarization.type_name, "config": {**config, **rule}}] if threshold else []
    return {"pre_llm": before, "on_overflow": [entry]}


def _slide(config: dict[str, Any]) -> dict[str, Any]:
    return {"type": SlidingWindow.type_name, "config": config}


def _read(found: list[tuple[Hook, ManagerEntry]]) -> tuple[str, dict[str, Any]]:
    """Return the settings that *found* seems to come from."""
    if not found:
        return NULL, {}
    settings: dict[str, Any] = {}
    for hook, entry in found:
        manager, rules = entry.manager, entry.activation
        if isinstance(manager, Pinning):
            settings["pin_first"] = manager.first
        if rules.tokens_exceed_ratio is not None:
            settings["proactive_compression"] = {"compression_threshold": rules.tokens_exceed_ratio}
        if rules.every_model_calls is not None:
            every = rules.every_model_calls
            settings["per_turn"] = every if every > 1 else True
        if isinstance(manager, SlidingWindow):
            settings["window_size"] = manager.max_messages
        if isinstance(manager, Summarization) and hook == "on_overflow":
            settings |= {key: value for key, value in manager.spelled().items() if value is not None}
    if any(isinstance(entry.manager, Summarization) for _, entry in found):
        return SUMMARIZING, settings
    truncates = any(isinstance(entry.manager, OutputTruncation) for _, entry in found)
    return SLIDING, {**settings, "should_truncate_results": truncates}


# Documents in words, and entries that are valid but probably not meant.


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
    """Yield the path and the reason of each entry that is valid but hardly does what its author wants."""
    managers = (entry.manager for entries in management.hooks.values() for entry in entries)
    is_summarising = any(isinstance(manager, RatioCompression | Summarization) for manager in managers)
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


def _doubts(hook: Hook, entry: ManagerEntry) -> Iterator[str]:
    manager, rules = entry.manager, entry.activation
    model = manager.summarization_model_id if isinstance(manager, Summarization) else None
    if model and model.startswith("<"):
        yield f"summarization_model_id is still the placeholder {model!r}; name a model, or leave it out"
    if hook == "on_overflow" and rules.on_overflow is False:
        yield "never runs: the hook fires on an overflow, and the rule on_overflow is false"
    if hook != "on_overflow" and rules.on_overflow and hook != "pre_llm":
        yield "never runs: the rule on_overflow is looked at in pre_llm and on_overflow alone"
    yield from _doubts_about_limits(entry)
    if isinstance(manager, RatioCompression) and hook == "pre_llm" and not rules.spelled():
        yield "runs before each call, however small the context is; give it tokens_exceed_ratio"


def _doubts_about_limits(entry: ManagerEntry) -> Iterator[str]:
    """Yield combinations of numbers in an entry that have no effect."""
    manager, rules = entry.manager, entry.activation
    others = [name for name in rules.spelled() if name != "rule_type"]
    if rules.rule_type and others:
        yield f"rule_type 'always' changes nothing: {' and '.join(others)} must be met all the same"
    if isinstance(manager, OutputTruncation) and manager.max_output_length < _ROOM_FOR_PATH_CHARS:
        cut = f"cuts to fewer than {_ROOM_FOR_PATH_CHARS} characters"
        yield f"{cut}: what stays names the file of the whole without its directory, or not at all"
    count = rules.message_count_exceed
    if isinstance(manager, SlidingWindow) and not manager.at_least and count and count < manager.max_messages:
        yield f"runs above {count} messages, but does nothing before there are more than {manager.max_messages}"
