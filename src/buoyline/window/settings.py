"""The settings of a window, checked before anything is done with them, and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Final, Self, TypedDict

from buoyline.compression import ContextConfig
from buoyline.compression.config import config_of, require_size
from buoyline.errors import ConfigError, NotFoundError
from buoyline.management import ContextManagement
from buoyline.messages.registry import dialect_named
from buoyline.offloader import ToolRule
from buoyline.tokens.usage import context_size, max_output

_USUAL_SIZE: Final = 128_000
_OUTPUT_SHARE: Final = 0.1

_HINTS: Final[Mapping[str, str]] = {
    "max_tokens": "write size=… for the tokens of the window, or max_output_tokens=… for those of the answer",
    "offloader": "the workspace is the first argument: ContextWindow.open(workspace, session_id)",
    "prompt": "write system=…",
}
"""What people write first, and what they mean."""


class WindowSettings(TypedDict, total=False):
    """Arguments of `ContextWindow.open`; what is left out is as it was, or has its default.

    Attributes:
        size: Tokens of the window. Default: that of *model*, or 128,000.
        model: Its name.
        system: System prompt, sent beside the messages; only counted.
        tools: Definitions of the tools; only counted.
        config: Limits.
        max_output_tokens: Kept free for the answer. Default: what *model* answers at most, up to a tenth of the window;
            0 without a model.
        dialect: Form of all messages, e.g. ``"anthropic"``. Default: detected for each.
        management: A context-management document in place of the limits in *config*: a name, a file, JSON values, or a
            `ContextManagement`.
    """

    size: int | None
    model: str | None
    system: Any
    tools: Iterable[Any] | None
    config: ContextConfig | None
    max_output_tokens: int | None
    dialect: str | None
    management: Any


@dataclass(frozen=True, slots=True)
class Settings:
    """What another process needs to go on with a window; see `WindowSettings`."""

    size: int
    max_output_tokens: int
    config: ContextConfig
    system: Any = ""
    tools: tuple[Any, ...] = ()
    dialect: str | None = None
    management: ContextManagement | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the settings as the log keeps them; rules keep their order, in which they are looked at."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        management = None if self.management is None else self.management.to_json()
        return {**found, "tools": [*self.tools], "config": asdict(self.config), "management": management}

    @classmethod
    def opened(cls, kept: Mapping[str, Any] | None, given: WindowSettings) -> Self:
        """Return the settings that are given, else as they were *kept*, else the defaults.

        Raises:
            ConfigError: One of them cannot work.
            NotFoundError: The model is not known, and no size was given.
        """
        model = given.get("model")
        known = {} if kept is None else _read(kept, without=("size", "max_output_tokens") if model else ())
        named = {name: one for name, one in given.items() if one is not None and name != "model"}
        found: dict[str, Any] = {**known, **named}
        size = found.get("size")
        if size is None:
            size = _USUAL_SIZE if model is None else context_size(model)
        config = config_of(found.get("config"))
        if found.get("dialect") is not None:
            dialect_named(found["dialect"])
        if known.get("dialect") not in (None, found.get("dialect")):
            problem = f"the session holds messages of {known['dialect']!r}; take another id, or convert them"
            raise ConfigError("dialect", problem)
        most = _reserved(found.get("max_output_tokens"), model, require_size(size), config.largest_trigger_ratio)
        new = cls(size, most, config, dialect=found.get("dialect"), management=found.get("management"))
        return new.beside(found.get("system"), found.get("tools"))

    def beside(self, system: Any, tools: Iterable[Any] | None) -> Self:
        """Return the settings with another system prompt or other tools; None: as before."""
        given: object = tools
        if given is not None and (isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable)):
            raise ConfigError("tools", f"{type(tools).__name__} is no list of tool definitions; pass [tool, ...]")
        system = self.system if system is None else system
        return replace(self, system=system, tools=self.tools if tools is None else tuple(tools))


def _read(kept: Mapping[str, Any], without: Sequence[str]) -> dict[str, Any]:
    """Return settings of the log as they are given."""
    found, management = {name: value for name, value in kept.items() if name not in without}, kept["management"]
    config = dict(kept["config"])
    config["tool_rules"] = {tool: ToolRule(**rule) for tool, rule in config["tool_rules"].items()}
    document = None if management is None else ContextManagement.read(management)
    return {**found, "config": ContextConfig(**config), "management": document}


def _reserved(given: Any, model: str | None, size: int, trigger_ratio: float) -> int:
    """Return how much of a window is kept free: most answers take far less than a model can give."""
    trigger, most = trigger_ratio * size, 0
    if given is None:
        with suppress(NotFoundError):  # if the size is given, the name may be unknown
            most = 0 if model is None else max_output(model) or 0
        return min(most, int(_OUTPUT_SHARE * size), int(trigger / 2))
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < trigger:
        limit = f"no whole number from 0 to below trigger_ratio x size ({int(trigger):,})"
        raise ConfigError("max_output_tokens", f"{given!r} is {limit}")
    return given


def require_arguments(settings: Mapping[str, Any], summarizer: object) -> None:
    """Refuse first tries with what to write.

    Raises:
        TypeError: One of *settings* has no such name.
        ConfigError: *summarizer* is the name of a model.
    """
    known = WindowSettings.__annotations__
    if unknown := next((name for name in settings if name not in known), None):
        near = get_close_matches(unknown, known, n=1)
        hint = _HINTS.get(unknown) or (f"did you mean {near[0]}=…?" if near else f"it takes {', '.join(known)}")
        raise TypeError(f"ContextWindow.open got an unexpected argument {unknown!r}; {hint}")
    if isinstance(summarizer, str):
        hint = f"pass ModelSummarizer({summarizer!r}) of buoyline.compression, or an async function of a SummaryRequest"
        raise ConfigError("summarizer", f"{summarizer!r} is the name of a model; {hint}")
