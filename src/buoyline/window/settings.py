"""The settings of a window, checked before anything is done with them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from buoyline.compression import ContextConfig, Summarizer
from buoyline.compression.config import require_size
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.errors import ConfigError, NotFoundError
from buoyline.management import ContextManagement, Registry
from buoyline.management.registry import document_in_file, is_path, named_in
from buoyline.messages.jsonl import is_object
from buoyline.offloader import ToolRule
from buoyline.offloader.protocol import instead_of
from buoyline.tokens import TokenCounter, context_size
from buoyline.tokens.models import max_output as max_output_of
from buoyline.window.budget import TokenBudget
from buoyline.workspace import LocalWorkspace

_USUAL_SIZE = 128_000
_OUTPUT_SHARE = 0.1


class WindowOptions(TypedDict, total=False):
    """The advanced arguments of `ContextWindow` and `ContextWindow.resume`; None is the default of each.

    Attributes:
        max_output_tokens: Tokens to reserve for the model's answer; `trigger_ratio` is for context and answer together.
            Default: what *model* answers at most, but no more than a tenth of the window; 0 without a model.
        management: A context-management document in place of the limits in *config*: a name, a file, JSON values, or a
            `ContextManagement`; see docs/context-management.md.
        summarizers: Further summarizers, by the ``summarization_model_id`` of documents.
        counter: Counts the tokens of a text. Default: exactly, for ``o200k_base``.
        dialect: Form of all messages, e.g. ``"anthropic"``. Default: detected for each message. With `resume`, the form
            in which messages are handed out: those of another form are converted; on disk they stay as they are.
    """

    max_output_tokens: int | None
    management: "Management | None"
    summarizers: Mapping[str, Summarizer | SummaryFunction] | None
    counter: TokenCounter | Callable[[str], int] | None
    dialect: str | None


def require_known(options: WindowOptions) -> None:
    """Raise `TypeError` if there is another option, as a function does."""
    for name in options:
        if name not in WindowOptions.__annotations__:
            raise TypeError(f"ContextWindow got an unexpected keyword argument {name!r}")


def config_to_json(config: ContextConfig) -> dict[str, Any]:
    """Return *config* as JSON values; the rules keep their order, in which they are looked at."""
    return {**asdict(config), "summary_schema": dict(config.summary_schema)}


def settings_to_json(
    config: ContextConfig, budget: TokenBudget, dialect: str | None, management: ContextManagement | None
) -> dict[str, Any]:
    """Return what another process needs to go on with a window, as JSON values."""
    return {
        "size": budget.size,
        "max_output_tokens": budget.max_output_tokens,
        "config": config_to_json(config),
        "system": budget.system,
        "tools": budget.tools,
        "dialect": dialect,
        **({} if management is None else {"management": management.to_json()}),
    }


def config_from_json(kept: Mapping[str, Any]) -> ContextConfig:
    """Read a configuration from disk; keys of a newer buoyline are ignored, as everywhere."""
    settings = _known(ContextConfig, kept)
    rules = settings.get("tool_rules", {})
    settings["tool_rules"] = {tool: ToolRule(**_known(ToolRule, rule)) for tool, rule in rules.items()}
    return ContextConfig(**settings)


def _known(kind: type[ContextConfig | ToolRule], kept: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in kept.items() if name in names}


def require_methods(name: str, value: object, *methods: str) -> None:
    """Refuse an argument that cannot do what it is for.

    Raises:
        ConfigError: *value* is neither None nor has all of *methods*.
    """
    if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
        hint = f"; {instead_of(value)}" if name == "offloader" else ""
        raise ConfigError(name, f"{type(value).__name__} has not {' and '.join(methods)}{hint}")


def tools_of(tools: Iterable[Any] | None) -> list[Any]:
    """Return the definitions of *tools* as a list; empty for None.

    Raises:
        ConfigError: *tools* is one definition, a text, or nothing to iterate over.
    """
    if tools is None:
        return []
    kind = type(tools).__name__
    if isinstance(tools, str | bytes | Mapping) or not hasattr(tools, "__iter__"):
        raise ConfigError("tools", f"{kind} is no list of tool definitions; pass [tool, ...]")
    return list(tools)


def require_index(before: object) -> None:
    """Check that *before* is None or an index; one below 0 is that of no message, as in a session with few of them.

    Raises:
        ConfigError: It is neither.
    """
    if before is not None and (isinstance(before, bool) or not isinstance(before, int)):
        raise ConfigError("before", f"{before!r} is no session index; pass that of the first message to keep")


def size_of(size: object, model: str | None) -> int:
    """Return the size of a window in tokens: *size*, or that of *model*, or the usual one.

    Raises:
        ConfigError: *size* is no whole number above 0.
        NotFoundError: *size* is None and *model* is not known.
    """
    if size is None:
        return _USUAL_SIZE if model is None else context_size(model)
    return require_size(size)


def output_room(max_output_tokens: object, model: str | None, size: int, trigger_ratio: float) -> int:
    """Return how much of a window is kept free for the model's answer.

    If nothing was asked for, that is what *model* answers at most, but only a tenth of the window, since most answers
    take far less than a model can give; 0 if there is no model, or it is not known.

    Raises:
        ConfigError: *max_output_tokens* is no whole number from 0 to below the trigger.
    """
    trigger = trigger_ratio * size
    if max_output_tokens is None:
        if model is None:
            return 0
        try:
            most = max_output_of(model)
        except NotFoundError:  # if the size is given, the name may be unknown
            return 0
        return 0 if most is None else min(most, int(_OUTPUT_SHARE * size), int(trigger / 2))
    is_flag = isinstance(max_output_tokens, bool)
    if isinstance(max_output_tokens, int) and not is_flag and 0 <= max_output_tokens < trigger:
        return max_output_tokens
    problem = f"{max_output_tokens!r} is no whole number from 0 to below trigger_ratio x size ({int(trigger):,})"
    raise ConfigError("max_output_tokens", problem)


# The context-management document of a window.


Management: TypeAlias = ContextManagement | Mapping[str, Any] | Path | str
"""A document, the JSON values of one or of a body that names one, a file, or a name."""


def document_of(management: Management, offloader: object) -> ContextManagement:
    """Return the document that *management* means. Blocking.

    A text is a file if it ends as one or has a slash, which no name has; else a name, which is looked up in *offloader*
    first, if that is a `LocalWorkspace`, and then among those that come with the package.

    Raises:
        ConfigError: *management* is nothing of that kind.
        NotFoundError: There is no document of that name.
        DocumentError: It cannot be read or acted on.
        BuoylineError: See `Registry.get`.
    """
    if isinstance(management, ContextManagement):
        return management
    registry = Registry(offloader if isinstance(offloader, LocalWorkspace) else None)
    raw: object = management
    source = "document"
    if isinstance(management, Path) or (isinstance(management, str) and is_path(management)):
        raw, source = document_in_file(Path(management)), str(management)
    elif isinstance(management, str):
        return registry.get(management)
    elif not is_object(management):
        raise ConfigError("management", f"{type(management).__name__} is no document, and no name or file of one")
    name = named_in(raw)
    return ContextManagement.read(raw, source=source) if name is None else registry.get(name)
