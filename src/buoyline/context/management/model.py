"""`ContextManagement`: a document that says which managers run at which hook, and when.

Source: OpenSearch's page on context management, with its documents, fragments and request bodies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from buoyline.context.management.managers import MANAGERS, Count, Manager, Share, Situation
from buoyline.errors import DocumentError
from buoyline.messages.jsonl import is_array, is_object

HOOKS: Final[Mapping[str, str]] = MappingProxyType(
    {"post_tool": "after each tool result", "pre_llm": "before each model call"}
)
"""Each hook and when it fires, in the order in which they fire. OpenSearch's code has them in capitals."""

_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message_count_exceed": "when there are more than {:,} messages",
        "tokens_exceed": "when the context takes more than {:,} tokens",
        "tokens_exceed_ratio": "when it takes more than {:.0%} of the window",
    }
)


class Activation(BaseModel):
    """When a manager runs: all given rules must be met, and no rule means always. The last rule is ours.

    A rule that cannot be read is a problem: OpenSearch drops it, and its manager then runs at every call.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule_type: Literal["always"] | None = None
    message_count_exceed: Count | None = None
    tokens_exceed: Count | None = None
    tokens_exceed_ratio: Share | None = None

    def unmet(self, context: Situation) -> str:
        """Return the first rule that is not met, with the compared numbers; empty if all are."""
        ratio = self.tokens_exceed_ratio
        limits = (
            (self.message_count_exceed, context.message_count, "messages"),
            (self.tokens_exceed, context.tokens, "tokens"),
            (None if ratio is None else int(ratio * context.size), context.tokens, "tokens"),
        )
        unmet = (
            f"{found:,} {what}, not more than {limit:,}"
            for limit, found, what in limits
            if limit is not None and found <= limit
        )
        return next(unmet, "")

    def in_words(self) -> str:
        """Return the rules in words that follow "runs"."""
        parts = [words.format(limit) for name, words in _WORDS.items() if (limit := getattr(self, name)) is not None]
        return " and ".join(parts) or "always"


@dataclass(frozen=True, slots=True)
class ManagedEntry:
    """One manager at one hook."""

    manager: Manager
    activation: Activation

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the form of documents, with the activation within ``config``."""
        config = self.manager.model_dump(mode="json", exclude_unset=True)
        if rules := self.activation.model_dump(mode="json", exclude_unset=True):
            config["activation"] = rules
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
        reader = _Reader()
        found = reader.wrapped(raw)
        texts = {key: reader.text(key, found.get(key)) for key in ("name", "description")}
        document = cls(name or texts["name"], texts["description"], reader.hooks(found))
        if reader.problems:
            raise DocumentError(source, reader.problems)
        return document

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values, in the documented form."""
        named = {key: text for key, text in (("name", self.name), ("description", self.description)) if text}
        return {**named, "hooks": {hook: [one.to_json() for one in entries] for hook, entries in self.hooks.items()}}

    def in_words(self) -> Iterator[str]:
        """Yield lines that say what the document does, in the order in which it happens."""
        yield f"{self.name}: {self.description or 'no description'}".removeprefix(": ")
        if not self.hooks:
            yield "No manager ever runs."
        for hook, entries in self.hooks.items():
            yield f"{hook}, {HOOKS[hook]}:"
            for number, one in enumerate(entries, 1):
                yield f"  {number}. {one.manager.in_words()}; runs {one.activation.in_words()}"


M = TypeVar("M", bound=BaseModel)


class _Reader:
    """Reads one document, and collects its problems: paths with reasons."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def wrapped(self, raw: object) -> Mapping[str, Any]:
        """Return a whole document around a part of one."""
        if is_object(raw) and "type" in raw and "hooks" not in raw:
            raw = [raw]
        if is_array(raw):
            hooks: dict[str, list[object]] = {}
            for entry in raw:
                kind = entry.get("type") if is_object(entry) else None
                manager = MANAGERS.get(kind) if isinstance(kind, str) else None
                hooks.setdefault(manager.usual_hook if manager else "pre_llm", []).append(entry)
            return {"hooks": hooks}
        if not is_object(raw):
            self._add("", f"a document is an object, not {_kind(raw)}")
            return {"hooks": {}}
        if "hooks" not in raw:
            self._add("hooks", "is missing; {} stands for no management at all")
        return raw

    def text(self, key: str, value: object) -> str:
        """Return a text of the document."""
        if value is None or isinstance(value, str):
            return value or ""
        self._add(key, f"must be a text, not {_kind(value)}")
        return ""

    def hooks(self, found: Mapping[str, Any]) -> dict[str, tuple[ManagedEntry, ...]]:
        """Return the entries of each hook that has some, in the order in which the hooks fire."""
        given = found.get("hooks", {})
        if not is_object(given):
            self._add("hooks", f"must be an object of hooks, not {_kind(given)}")
            return {}
        read: dict[str, tuple[ManagedEntry, ...]] = {}
        for spelled, entries in given.items():
            path, hook = f"hooks.{spelled}", spelled.strip().lower()
            if hook not in HOOKS:
                self._add(path, f"{spelled!r} is no hook; {nearest(spelled, HOOKS)}")
            elif hook in read:
                self._add(path, f"the hook {hook!r} is there twice, in different spellings")
            elif not is_array(entries):
                self._add(path, f"must be a list of managers, not {_kind(entries)}")
            else:
                made = (self._entry(f"{path}[{number}]", entry) for number, entry in enumerate(entries))
                read[hook] = tuple(entry for entry in made if entry is not None)
        return {hook: read[hook] for hook in HOOKS if read.get(hook)}

    def _entry(self, path: str, raw: object) -> ManagedEntry | None:
        kind = raw.get("type") if is_object(raw) else None
        if not is_object(raw) or not isinstance(kind, str) or not kind.strip():
            self._add(path, "must be an object with a 'type', the name of a manager")
            return None
        for key in raw.keys() - {"type", "config", "activation"}:
            known = ("type", "config", "activation")
            self._add(f"{path}.{key}", f"{key!r} is no key of a manager's entry; {nearest(key, known)}")
        config = {} if raw.get("config") is None else raw["config"]
        if not is_object(config):
            self._add(f"{path}.config", f"must be an object, not {_kind(config)}")
            return None
        activation = self._activation(path, raw, config)
        kind = kind.strip()
        if kind not in MANAGERS:
            self._add(f"{path}.type", f"{kind!r} is no manager; {nearest(kind, MANAGERS)}")
            return None
        settings = {key: value for key, value in config.items() if key != "activation"}
        manager = self._validated(MANAGERS[kind], f"{path}.config", f"key of {kind}", settings)
        return None if manager is None or activation is None else ManagedEntry(manager, activation)

    def _activation(self, path: str, raw: Mapping[str, Any], config: Mapping[str, Any]) -> Activation | None:
        """Return the rules within ``config``, where OpenSearch's page has them, or beside it."""
        found = [(f"{path}.activation", raw)] if "activation" in raw else []
        found += [(f"{path}.config.activation", config)] if "activation" in config else []
        if not found:
            return Activation()
        place, rules = found[0][0], found[0][1]["activation"]
        if rules is None:
            self._add(place, "has no value; leave it out for 'always'")
        elif any(other["activation"] != rules for _, other in found):
            self._add(place, "differs from config.activation; keep one of them")
        elif not is_object(rules):
            self._add(place, f"must be an object of rules, not {_kind(rules)}")
        elif empty := [key for key, value in rules.items() if value is None]:
            self._add(f"{place}.{empty[0]}", "has no value; leave the rule out, or give it one")
        else:
            return self._validated(Activation, place, "activation rule", rules)
        return None

    def _validated(self, kind: type[M], path: str, what: str, value: Mapping[str, Any]) -> M | None:
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            for detail in error.errors():
                place, given = ".".join([path, *map(str, detail["loc"])]), detail["input"]
                if detail["type"] == "extra_forbidden":
                    name = str(detail["loc"][-1])
                    self._add(place, f"{name!r} is no {what}; {nearest(name, kind.model_fields)}")
                    continue
                reason = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
                self._add(place, f"{_kind(given)} is not allowed: it must be {reason}")
            return None

    def _add(self, path: str, reason: str) -> None:
        self.problems.append((path, reason))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the part of an error message that suggests the nearest known name, or all of them.

    >>> nearest("pre_lm", HOOKS)
    "did you mean 'pre_llm'?"
    """
    # Every type ends in the same word, which would make all of them similar.
    folded = {one.lower().removesuffix("manager"): one for one in known}
    found = get_close_matches(name.strip().lower().removesuffix("manager"), list(folded), n=1)
    return f"did you mean {folded[found[0]]!r}?" if found else f"choose one of {', '.join(folded.values())}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if is_object(value):
        return "an object"
    return "a list" if isinstance(value, Sequence) and not isinstance(value, str) else f"{value!r}"
