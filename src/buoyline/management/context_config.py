"""`ContextConfig` as a document, and back: one engine is below both."""

from dataclasses import asdict, fields
from typing import Any

from buoyline.compression import ContextConfig
from buoyline.errors import ConfigError
from buoyline.management.document import ContextManagement
from buoyline.management.managers import Compression, Offloading
from buoyline.messages import spell
from buoyline.offloader import ToolRule

_DEFAULTS = ContextConfig()
_OFFLOADING = ("tool_result_limit", "preview_tokens", "turn_results_limit")
_COMPRESSION = ("reserve_ratio", "summary_tokens", "compression_prompt", "summary_template")


def from_context_config(config: ContextConfig, *, name: str = "") -> ContextManagement:
    """Return a document that says what *config* does.

    ``OffloadManager`` at ``post_tool`` has the limits of tool results, ``CompressionManager`` at ``pre_llm`` the
    summary, and ``tokens_exceed_ratio`` is `trigger_ratio`.
    """
    offloading = {key: value for key in _OFFLOADING if (value := getattr(config, key)) is not None}
    if config.tool_rules:
        offloading["tool_rules"] = {tool: _rule(rule) for tool, rule in config.tool_rules.items()}
    compression: dict[str, Any] = {
        key: value for key in _COMPRESSION if (value := getattr(config, key)) != getattr(_DEFAULTS, key)
    }
    # Spelled, since the order of the fields is that of the summary.
    if spell(config.summary_schema) != spell(_DEFAULTS.summary_schema):
        compression["summary_schema"] = dict(config.summary_schema)
    compression["activation"] = {"tokens_exceed_ratio": config.trigger_ratio}
    hooks = {
        "post_tool": [{"type": Offloading.type_name, "config": offloading}],
        "pre_llm": [{"type": Compression.type_name, "config": compression}],
    }
    return ContextManagement.read({"hooks": hooks}, name=name)


def to_context_config(management: ContextManagement) -> ContextConfig:
    """Return the `ContextConfig` that does what *management* says.

    Raises:
        ConfigError: It says something that a `ContextConfig` cannot; the error names the entry.
    """
    offloading = _only(management, "post_tool", Offloading)
    compression = _only(management, "pre_llm", Compression)
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


def _rule(rule: ToolRule) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(ToolRule)}
    return {name: value for name, value in asdict(rule).items() if value != defaults[name]}
