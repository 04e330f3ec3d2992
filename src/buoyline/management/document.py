"""`ContextManagement`: a document that says which managers run at which hook, and when."""

from collections.abc import Sequence
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, field_validator, model_serializer, model_validator

from buoyline.management.entry import Entry
from buoyline.management.hooks import HOOKS, Hook
from buoyline.management.problems import Problems
from buoyline.management.walking import Walker
from buoyline.messages import is_object

_NO_ENTRIES: Final[tuple[Entry, ...]] = ()
_METADATA: Final = ("created_time", "last_modified", "created_by")


class ContextManagement(BaseModel):
    """A document in OpenSearch's form, checked, and ready to run.

    ``ContextManagement.read(value)`` takes any form that the documentation has; ``model_validate`` takes the same,
    strictly. Equal documents are equal, however they were spelled.

    Attributes:
        name: May be empty for a document that is nowhere kept.
        description: For people.
        hooks: The managers of each hook, in the order in which they run. None at all is the null manager.
        created_time: As OpenSearch gives it with a document; kept, and used by nobody.
        last_modified: See *created_time*.
        created_by: See *created_time*.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    description: str = ""
    hooks: dict[Hook, tuple[InstanceOf[Entry], ...]] = Field(default_factory=dict[Hook, tuple[Entry, ...]])
    created_time: int | None = None
    last_modified: int | None = None
    created_by: str | None = None

    @classmethod
    def read(
        cls,
        raw: object,
        *,
        name: str = "",
        strict: bool = True,
        allowed: Sequence[str] = (),
        source: str = "document",
    ) -> Self:
        """Read a document from JSON values.

        Args:
            raw: A whole document, one manager entry, or a list of entries, which then run at their usual hooks.
            name: Its name; left out: as it calls itself.
            strict: An unknown hook, manager, rule or key, and a value out of its range, is an error. Otherwise it is
                a `DocumentWarning`: an unknown key is left out; an entry with a rule, a type or a value that
                cannot be acted on never runs; a ratio out of its range is clamped to it.
            allowed: Dotted names, or patterns of them, of managers that may be imported.
            source: What to call it in errors.

        Raises:
            DocumentError: It cannot be acted on; every problem is named with its path and the nearest valid name.
        """
        problems = Problems(source, strict)
        fields = Walker(problems, allowed).document(raw, name)
        problems.settle()
        return cls(**fields)

    @model_validator(mode="before")
    @classmethod
    def _walk(cls, value: Any) -> Any:
        """Let pydantic's own ways in take what `read` takes."""
        hooks: object = value.get("hooks", {}) if is_object(value) else None
        # What `read` passes on holds entries already, in tuples; documents hold lists.
        if isinstance(value, cls) or (is_object(hooks) and all(isinstance(found, tuple) for found in hooks.values())):
            return value
        problems = Problems("document")
        fields = Walker(problems).document(value)
        problems.settle()
        return fields

    @field_validator("hooks")
    @classmethod
    def _settle_hooks(cls, hooks: dict[Hook, tuple[Entry, ...]]) -> dict[Hook, tuple[Entry, ...]]:
        """Keep hooks in the order in which they fire, and drop empty ones."""
        return {hook: hooks[hook] for hook in HOOKS if hooks.get(hook)}

    @model_serializer
    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values, in the documented form."""
        given = {key: getattr(self, key) for key in ("name", "description", *_METADATA)}
        kept = {key: value for key, value in given.items() if value not in (None, "")}
        hooks = {hook: [entry.to_json() for entry in entries] for hook, entries in self.hooks.items()}
        return {**kept, "hooks": hooks}

    def entries(self, hook: Hook) -> tuple[Entry, ...]:
        """Return the managers of *hook*, in order."""
        return self.hooks.get(hook, _NO_ENTRIES)

    @property
    def is_null(self) -> bool:
        """Tell whether no manager ever runs."""
        return not any(self.hooks.values())

    def named(self, name: str) -> Self:
        """Return the same document under *name*."""
        return self.model_copy(update={"name": name})
