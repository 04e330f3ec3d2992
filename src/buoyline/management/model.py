"""`ContextManagement`: a document that says which managers run at which hook, and when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, InstanceOf, field_validator, model_serializer, model_validator

from buoyline.errors import ConfigError
from buoyline.management.context import ContextView, Decision
from buoyline.management.custom import CustomManager, custom_manager, registered_managers
from buoyline.management.managers import MANAGERS, ManagerSettings
from buoyline.management.rules import HOOKS, Activation, Hook, Problems, hook_named, joined
from buoyline.messages.jsonl import is_array, is_object

# One manager in a document: its settings, and when it runs.


ALWAYS = Activation()
"""Holds for an entry without rules."""


@dataclass(frozen=True, slots=True)
class ManagerEntry:
    """One manager at one hook. Each entry has its own manager, even if two have the same type."""

    manager: ManagerSettings | CustomManager
    activation: Activation = ALWAYS

    async def decide(self, context: ContextView) -> Decision:
        """Return what the manager wants done with *context*."""
        if isinstance(self.manager, CustomManager):
            return await self.manager.decide(context)
        return self.manager.decide(context)

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the form of documents, with the activation within ``config``."""
        config = self.manager.spelled()
        if rules := self.activation.spelled():
            config["activation"] = rules
        return {"type": self.manager.type_name, **({"config": config} if config else {})}

    def in_words(self) -> str:
        """Return what it does and when."""
        return f"{self.manager.in_words()}; runs {self.activation.in_words()}"


# Reading a document: every form becomes one, and every problem is reported.
#
# Source: OpenSearch's page on context management, with its documents, fragments and request bodies.


_ENTRY: Final = ("type", "config", "activation")


@dataclass(slots=True)
class DocumentReader:
    """Reads one document and collects its problems."""

    problems: Problems

    def document(self, raw: object, name: str = "") -> dict[str, Any]:
        """Return the fields of a `ContextManagement` for *raw*: a document, a manager entry, or a list of entries.

        *name* overrides the document's own, since in OpenSearch it is in the URL. Other keys of a document are ignored,
        such as the times in an answer of OpenSearch.
        """
        found = self._wrapped(raw)
        fields: dict[str, Any] = {key: self._text(key, found.get(key, "")) for key in ("name", "description")}
        fields["hooks"] = self._hooks(found)
        return {**fields, **({"name": name} if name else {})}

    def activation(self, raw: object, path: str = "activation") -> Activation | None:
        """Return the rules in *raw*; None if they cannot be read, so that they are never met."""
        if not is_object(raw):
            self.problems.add(path, f"must be an object of rules, not {_kind(raw)}")
            return None
        rules = {key: value for key, value in raw.items() if value is not None}
        for key in raw.keys() - rules.keys():
            self.problems.add(joined(path, key), "has no value; leave the rule out, or give it one")
            return None
        return self.problems.validated(Activation, path, "activation rule", rules)

    def _wrapped(self, raw: object) -> Mapping[str, Any]:
        """Return a whole document around a part of one."""
        if is_array(raw):
            return {"hooks": self._by_usual_hook(raw)}
        if not is_object(raw):
            self.problems.add("", f"a document is an object, not {_kind(raw)}")
            return {"hooks": {}}
        if "type" in raw and "hooks" not in raw:
            return {"hooks": self._by_usual_hook([raw])}
        return raw

    def _by_usual_hook(self, entries: Sequence[object]) -> dict[str, list[object]]:
        hooks: dict[str, list[object]] = {}
        for entry in entries:
            kind = entry.get("type") if is_object(entry) else None
            manager = MANAGERS.get(kind) if isinstance(kind, str) else None
            hooks.setdefault(manager.usual_hook if manager else "pre_llm", []).append(entry)
        return hooks

    def _hooks(self, found: Mapping[str, Any]) -> dict[Hook, tuple[ManagerEntry, ...]]:
        if "hooks" not in found:
            self.problems.add("hooks", "is missing; {} stands for no management at all")
            return {}
        if not is_object(found["hooks"]):
            self.problems.add("hooks", f"must be an object of hooks, not {_kind(found['hooks'])}")
            return {}
        hooks: dict[Hook, tuple[ManagerEntry, ...]] = {}
        for spelled, entries in found["hooks"].items():
            path = joined("hooks", spelled)
            hook = hook_named(spelled)
            if hook is None:
                self.problems.unknown(path, "hook", spelled, tuple(HOOKS))
            elif hook in hooks:
                self.problems.add(path, f"the hook {hook!r} stands here twice, in different spellings")
            else:
                hooks[hook] = tuple(self._entries(path, entries))
        return hooks

    def _entries(self, path: str, entries: object) -> Iterator[ManagerEntry]:
        if not is_array(entries):
            self.problems.add(path, f"must be a list of managers, not {_kind(entries)}")
            return
        for number, raw in enumerate(entries):
            entry = self._entry(joined(path, number), raw)
            if entry is not None:
                yield entry

    def _entry(self, path: str, raw: object) -> ManagerEntry | None:
        if not is_object(raw) or not isinstance(raw.get("type"), str) or not raw["type"].strip():
            self.problems.add(path, "must be an object with a 'type', the name of a manager")
            return None
        for key in raw:
            if key not in _ENTRY:
                self.problems.unknown(joined(path, key), "key of a manager's entry", key, _ENTRY)
        config = raw.get("config")
        if config is not None and not is_object(config):
            self.problems.add(joined(path, "config"), f"must be an object, not {_kind(config)}")
            return None
        settings = {key: value for key, value in (config or {}).items() if key != "activation"}
        activation = self._activation_of(path, raw, config or {})
        manager = self._manager(path, raw["type"].strip(), settings)
        return None if manager is None or activation is None else ManagerEntry(manager, activation)

    def _activation_of(self, path: str, raw: Mapping[str, Any], config: Mapping[str, Any]) -> Activation | None:
        """Return the rules within ``config`` or beside it; as in OpenSearch, those beside it take precedence."""
        beside, within = raw.get("activation"), config.get("activation")
        if beside is None and within is None:
            is_null = "activation" in raw or "activation" in config
            if is_null:
                self.problems.add(joined(path, "activation"), "has no value; leave it out for 'always'")
            return None if is_null else ALWAYS
        if beside is not None and within is not None and beside != within:
            self.problems.add(joined(path, "activation"), "differs from config.activation; keep one of them")
        if beside is not None:
            return self.activation(beside, joined(path, "activation"))
        return self.activation(within, joined(path, "config", "activation"))

    def _manager(self, path: str, kind: str, settings: dict[str, Any]) -> Any:
        if kind in MANAGERS:
            return self.problems.validated(MANAGERS[kind], joined(path, "config"), f"key of {kind}", settings)
        try:
            custom = custom_manager(kind, settings)
        except ConfigError as error:
            self.problems.add(joined(path, "type"), str(error))
            return None
        if custom is None:
            self.problems.unknown(joined(path, "type"), "manager", kind, [*MANAGERS, *registered_managers()])
        return custom

    def _text(self, key: str, value: object) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self.problems.add(key, f"must be a text, not {_kind(value)}")
        return ""


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if is_object(value):
        return "an object"
    if is_array(value):
        return "a list"
    return f"{value!r}"


class ContextManagement(BaseModel):
    """A checked document in OpenSearch's form.

    ``ContextManagement.read(value)`` takes every documented form, and so does ``model_validate``. Equal
    documents compare equal, even if they were spelled differently.

    Attributes:
        name: May be empty for a document that is not stored.
        hooks: The managers of each hook, in the order in which they run. No hooks: no manager ever runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    description: str = ""
    hooks: dict[Hook, tuple[InstanceOf[ManagerEntry], ...]] = {}

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
        problems = Problems(source)
        fields = DocumentReader(problems).document(raw, name)
        problems.settle()
        return cls(**fields)

    @model_validator(mode="before")
    @classmethod
    def _walk(cls, value: Any) -> Any:
        """Accept in pydantic's own constructors what `read` accepts."""
        hooks: object = value.get("hooks", {}) if is_object(value) else None
        # `read` passes entries in tuples; documents hold lists.
        if isinstance(value, cls) or (is_object(hooks) and all(isinstance(found, tuple) for found in hooks.values())):
            return value
        problems = Problems("document")
        fields = DocumentReader(problems).document(value)
        problems.settle()
        return fields

    @field_validator("hooks")
    @classmethod
    def _settle_hooks(cls, hooks: dict[Hook, tuple[ManagerEntry, ...]]) -> dict[Hook, tuple[ManagerEntry, ...]]:
        """Order hooks as they fire, and drop empty ones."""
        return {hook: hooks[hook] for hook in HOOKS if hooks.get(hook)}

    @model_serializer
    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values, in the documented form."""
        named = {"name": self.name, "description": self.description}
        kept = {key: text for key, text in named.items() if text}
        hooks = {hook: [entry.to_json() for entry in entries] for hook, entries in self.hooks.items()}
        return {**kept, "hooks": hooks}

    def entries(self, hook: Hook) -> tuple[ManagerEntry, ...]:
        """Return the managers of *hook*, in order."""
        return self.hooks.get(hook, ())

    def named(self, name: str) -> Self:
        """Return the same document under *name*."""
        return self.model_copy(update={"name": name})
