"""The settings of Strands' conversation managers as documents, and back. Nothing of Strands is imported.

Source: Strands' page on conversation management, for the names, the defaults, and when each manager works.
"""

from collections.abc import Mapping
from typing import Any, Final

from buoyline.errors import ConfigError
from buoyline.management.document import ContextManagement
from buoyline.management.entry import Entry
from buoyline.management.hooks import Hook, nearest
from buoyline.management.managers import OutputTruncation, Pinning, SlidingWindow, Summarization
from buoyline.messages import is_object

NULL: Final = "NullConversationManager"
SLIDING: Final = "SlidingWindowConversationManager"
SUMMARIZING: Final = "SummarizingConversationManager"

_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    NULL: {"proactive_compression": None},
    SLIDING: {
        "window_size": 40,
        "should_truncate_results": True,
        "per_turn": False,
        "pin_first": None,
        "proactive_compression": None,
    },
    SUMMARIZING: {
        "summary_ratio": 0.3,
        "preserve_recent_messages": 10,
        "summarization_system_prompt": None,
        "pin_first": None,
        "proactive_compression": None,
    },
}
_DEFAULT_THRESHOLD: Final = 0.7
_TRUNCATED_CHARS: Final = 400
"""Strands leaves the first and the last 200 characters of a result that is in the way on an overflow."""

_LEAST_TRIMMED: Final = 2
"""So many messages Strands drops at least, however few there are."""


def from_strands_settings(manager: str, settings: Mapping[str, Any]) -> ContextManagement:
    """Return a document that does what a conversation manager of Strands does with *settings*.

    What it does after the loop stands at ``post_memory``, before the next turn; ``per_turn`` is ``every_model_calls``
    at ``pre_llm``; ``proactive_compression`` is ``tokens_exceed_ratio`` there; an overflow has its own hook.

    Args:
        manager: Name of the class.
        settings: Its keyword arguments; left out: the documented defaults.

    Raises:
        ConfigError: There is no such manager or setting, or one that a document cannot have, such as an agent.
        DocumentError: A value cannot work.
    """
    if manager not in _DEFAULTS:
        raise ConfigError("manager", f"{manager!r} is none of Strands' managers; {nearest(manager, tuple(_DEFAULTS))}")
    for key in settings:
        if key not in _DEFAULTS[manager]:
            raise ConfigError(key, _refusal(manager, key))
    found = {**_DEFAULTS[manager], **settings}
    if manager == NULL:
        return ContextManagement.read({"hooks": {}})
    pins = [{"type": Pinning.type_name, "config": {"first": found["pin_first"]}}] if found["pin_first"] else []
    hooks = _sliding(found) if manager == SLIDING else _summarizing(found)
    return ContextManagement.read({"hooks": {hook: [*pins, *entries] for hook, entries in hooks.items() if entries}})


def to_strands_settings(management: ContextManagement) -> tuple[str, dict[str, Any]]:
    """Return the name of Strands' manager that does what *management* says, with its keyword arguments.

    Raises:
        ConfigError: None of them does just that.
    """
    found: list[tuple[Hook, Entry]] = [(hook, entry) for hook, entries in management.hooks.items() for entry in entries]
    manager, settings = _read(found)
    try:
        is_same = from_strands_settings(manager, settings).hooks == management.hooks
    except ConfigError:
        is_same = False
    if not is_same:
        raise ConfigError("management", f"says more than {manager} can do; keep it as a document")
    return manager, settings


def compression_threshold(proactive: object) -> float | None:
    """Return the share of the window above which Strands compresses before a call; None where it does not.

    Strands passes over what it does not know, and compares whatever stands as the threshold with 0.

    Args:
        proactive: ``proactive_compression``, as it was passed to a conversation manager.

    Raises:
        ConfigError: It is neither None, nor true or false, nor a threshold above 0 and at most 1.
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


def _read(found: list[tuple[Hook, Entry]]) -> tuple[str, dict[str, Any]]:
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


def _refusal(manager: str, key: str) -> str:
    if key == "summarization_agent":
        return "an agent cannot stand in a document; name a model with summarization_model_id, and pass summarizers="
    return f"{manager} has no such setting; {nearest(key, tuple(_DEFAULTS[manager]))}"
