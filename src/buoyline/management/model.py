"""`ContextManagement`: a document that says which managers run at which hook, and when; and documents by name.

Source: OpenSearch's page on context management, with its documents, fragments and request bodies.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from buoyline.errors import ConfigError, DocumentError, NotFoundError
from buoyline.management.managers import MANAGERS, Count, Manager, Situation
from buoyline.messages.jsonl import is_array, is_object
from buoyline.workspace.documents import document_names, read_document, write_document
from buoyline.workspace.workspace import Workspace

__all__ = ["ContextManagement", "Management", "document_of", "put"]

HOOKS: Final[Mapping[str, str]] = {"post_tool": "after each tool result", "pre_llm": "before each model call"}
"""Each hook and when it fires, in the order in which they fire. OpenSearch's code has them in capitals."""


class Activation(BaseModel):
    """When a manager runs: all given rules must be met, and no rule means always. The last rule is ours.

    A rule that cannot be read is a problem: OpenSearch drops it, and its manager then runs at every call.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule_type: Literal["always"] = "always"
    message_count_exceed: Count = 0
    tokens_exceed: Count = 0
    tokens_exceed_ratio: float = Field(default=0, gt=0, le=1)

    def unmet(self, context: Situation) -> str:
        """Return the first rule that is not met, with the compared numbers; empty if all are."""
        limits = (
            (self.message_count_exceed, context.message_count, "messages"),
            (self.tokens_exceed, context.tokens, "tokens"),
            (int(self.tokens_exceed_ratio * context.size), context.tokens, "tokens"),
        )
        unmet = ((most, found, what) for most, found, what in limits if most and found <= most)
        return next((f"{found:,} {what}, not more than {most:,}" for most, found, what in unmet), "")

    def in_words(self) -> str:
        """Return the rules in words that follow "runs"."""
        given = self.model_dump(exclude_unset=True)
        return " and ".join(f"if {name} {value:,}" for name, value in given.items() if name != "rule_type") or "always"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str
    config: dict[str, Any] = {}
    activation: Activation = Activation()

    @model_validator(mode="before")
    @classmethod
    def _lifted(cls, value: Any) -> Any:
        """Take the rules from within ``config``, where OpenSearch's page has them."""
        config = value.get("config") if is_object(value) else None
        if not is_object(config) or "activation" not in config:
            return value
        rules, rest = config["activation"], {key: one for key, one in config.items() if key != "activation"}
        return {**value, "config": rest, "activation": rules}


class _Document(BaseModel):
    name: str | None = None
    description: str | None = None
    hooks: dict[str, list[_Entry]]

    @field_validator("hooks", mode="before")
    @classmethod
    def _in_any_case(cls, hooks: Any) -> Any:
        if not is_object(hooks):
            return hooks
        named = {name.strip().lower(): name for name in hooks}
        if unknown := [*(hooks.keys() - named.values()), *(name for hook, name in named.items() if hook not in HOOKS)]:
            raise ValueError(f"{unknown[0]!r} is no hook, or is there twice; {nearest(unknown[0], HOOKS)}")
        return {hook: hooks[name] for hook, name in named.items()}


class ManagedEntry(NamedTuple):
    """One manager at one hook."""

    manager: Manager
    activation: Activation

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the form of documents, with the activation within ``config``."""
        config, rules = (one.model_dump(mode="json", exclude_unset=True) for one in (self.manager, self.activation))
        config |= {"activation": rules} if rules else {}
        return {"type": self.manager.type_name, **({"config": config} if config else {})}


@dataclass(frozen=True, slots=True)
class ContextManagement:
    """A checked document.

    Attributes:
        name: May be empty for a document that is not stored.
        hooks: The managers of each hook, in the order in which they run. No hooks: no manager ever runs.
    """

    name: str = ""
    description: str = ""
    hooks: Mapping[str, tuple[ManagedEntry, ...]] = field(default_factory=dict[str, tuple[ManagedEntry, ...]])

    @classmethod
    def read(cls, raw: object, *, name: str = "", source: str = "document") -> Self:
        """Read a document from JSON values.

        Args:
            raw: A whole document, one manager entry, or a list of entries, which then run at their usual hooks.
            name: Default: the document's own.
            source: Names the document in errors.

        Raises:
            DocumentError: The document cannot be used; each problem has its path and the nearest valid name.
        """
        try:
            found = _Document.model_validate(_wrapped(raw))
        except ValidationError as error:
            raise DocumentError(source, _problems(error, "")) from error
        problems, hooks = list[tuple[str, str]](), dict[str, tuple[ManagedEntry, ...]]()
        for hook in HOOKS:
            made = list[ManagedEntry]()
            for number, entry in enumerate(found.hooks.get(hook, ())):
                path, kind = f"hooks.{hook}[{number}]", entry.type.strip()
                try:
                    made.append(ManagedEntry(MANAGERS[kind].model_validate(entry.config), entry.activation))
                except KeyError:
                    problems.append((f"{path}.type", f"{kind!r} is no manager; {nearest(kind, MANAGERS)}"))
                except ValidationError as error:
                    problems += _problems(error, f"{path}.config", MANAGERS[kind].model_fields)
            hooks |= {hook: tuple(made)} if made else {}
        if problems:
            raise DocumentError(source, problems)
        return cls(name or found.name or "", found.description or "", hooks)

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values, in the documented form."""
        named = {key: text for key, text in (("name", self.name), ("description", self.description)) if text}
        return {**named, "hooks": {hook: [one.to_json() for one in entries] for hook, entries in self.hooks.items()}}

    def in_words(self) -> Iterator[str]:
        """Yield lines that say what the document does, in the order in which it happens."""
        yield f"{self.name}: {self.description or 'no description'}".removeprefix(": ")
        for hook, entries in self.hooks.items():
            yield f"{hook}, {HOOKS[hook]}:"
            for number, one in enumerate(entries, 1):
                yield f"  {number}. {one.manager.words.format(**dict(one.manager))}; runs {one.activation.in_words()}"


def _wrapped(raw: object) -> object:
    """Return a whole document around a part of one."""
    entries = [raw] if is_object(raw) and "type" in raw and "hooks" not in raw else raw
    if not is_array(entries):
        return raw
    hooks: dict[str, list[object]] = {}
    for entry in entries:
        manager = MANAGERS.get(str(entry.get("type"))) if is_object(entry) else None
        hooks.setdefault(manager.usual_hook if manager else "pre_llm", []).append(entry)
    return {"hooks": hooks}


def _problems(error: ValidationError, path: str, known: Iterable[str] = ()) -> list[tuple[str, str]]:
    known, found = [*known] or [*_Entry.model_fields, *Activation.model_fields], list[tuple[str, str]]()
    for one in error.errors():
        reason = one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            reason = f"{one['loc'][-1]!r} is not known; {nearest(str(one['loc'][-1]), known)}"
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in one["loc"])
        found.append(("".join([path, *steps]).removeprefix("."), reason))
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the part of an error message that suggests the nearest known name, or all of them.

    >>> nearest("pre_lm", HOOKS)
    "did you mean 'pre_llm'?"
    """
    # Every type ends in the same word, which would make all of them similar.
    folded = {one.lower().removesuffix("manager"): one for one in known}
    found = get_close_matches(name.strip().lower().removesuffix("manager"), list(folded), n=1)
    return f"did you mean {folded[found[0]]!r}?" if found else f"choose one of {', '.join(folded.values())}"


Management: TypeAlias = ContextManagement | Mapping[str, Any] | Path | str
"""A document, the JSON values of one or of a body that names one, a file, or a name."""

NAME_KEY: Final = "context_management_name"
"""In the body of a request that registers or executes an agent of OpenSearch: names its document."""

BUILT_IN: Final = ("long-conversations", "tool-heavy", "tool-heavy-with-summarization")
"""Documents of the package: the use cases of OpenSearch's page."""


def document_of(management: Management, workspace: Workspace | None = None) -> ContextManagement:
    """Return the document that *management* means.

    A text is a file if it ends in ``.json`` or has a slash, else a name. A document of the workspace goes before one of
    the package.

    Raises:
        ConfigError: *management* is nothing of that kind.
        NotFoundError: There is no document of that name.
        DocumentError: It cannot be read or acted on.
    """
    source, raw = "document", management
    if isinstance(management, ContextManagement):
        return management
    if isinstance(management, str) and ("/" in management or management.lower().endswith(".json")):
        management = Path(management)
    if isinstance(management, Path):
        source, raw = str(management), _in_file(management)
    elif isinstance(management, str):
        return _by_name(management, workspace)
    elif not is_object(management):
        raise ConfigError("management", f"{type(management).__name__} is no document, and no name or file of one")
    bodies = [raw, raw.get("parameters")] if is_object(raw) else []
    found = (body.get(NAME_KEY) for body in bodies if is_object(body))
    name = next((one for one in found if one is not None), None)
    return ContextManagement.read(raw, source=source) if name is None else _by_name(str(name), workspace)


def put(document: ContextManagement | Mapping[str, Any], workspace: Workspace, name: str) -> None:
    """Store a document, after all checks; an earlier one of the name is replaced as a whole.

    Raises:
        InvalidNameError: *name* cannot be one.
        DocumentError: It cannot be used; nothing was written.
    """
    if not isinstance(document, ContextManagement):
        document = ContextManagement.read(document, name=name, source=name)
    text = json.dumps({**document.to_json(), "name": name}, indent=2) + "\n"
    write_document(workspace.disk, name, text.encode())


def _by_name(name: str, workspace: Workspace | None) -> ContextManagement:
    stored = [] if workspace is None else document_names(workspace.disk)
    if workspace is not None and name in stored:
        content = read_document(workspace.disk, name)
    elif name in BUILT_IN:
        content = (files("buoyline.management") / "documents" / f"{name}.json").read_bytes()
    else:
        raise NotFoundError("context management document", name, nearest(name, sorted({*BUILT_IN, *stored})))
    return ContextManagement.read(_parsed(content, name), name=name, source=name)


def _in_file(path: Path) -> Any:
    try:
        return _parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise DocumentError(str(path), [("", f"cannot be read: {error.strerror}")]) from error


def _parsed(content: bytes, source: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DocumentError(source, [("", f"not JSON: {error}")]) from error
