"""Problems found while a document is read: all of them, each with its path."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from buoyline.errors import DocumentError
from buoyline.management.hooks import nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)


class DocumentWarning(UserWarning):
    """Something in a document is not acted on, or not as it is written. Only a lenient reader leaves it at that."""


@dataclass(slots=True)
class Problems:
    """What is wrong with a document.

    Attributes:
        source: Where it came from, for people.
        strict: Problems are errors. Otherwise what cannot be acted on is left out, and warned of; it never runs more
            often than it says.
        found: Paths with reasons.
    """

    source: str
    strict: bool = True
    found: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, path: str, reason: str) -> None:
        """Take note of a problem."""
        self.found.append((path, reason))

    def unknown(self, path: str, what: str, name: str, known: Sequence[str]) -> None:
        """Take note of a name that is not known, with the nearest one that is."""
        self.add(path, f"{name!r} is no {what}; {nearest(name, list(known))}")

    def settle(self) -> None:
        """Raise what was found, or warn of it.

        Raises:
            DocumentError: Something was found, and the reader is strict.
        """
        if self.found and self.strict:
            raise DocumentError(self.source, self.found)
        for path, reason in self.found:
            warnings.warn(f"{self.source}: {path}: {reason}", DocumentWarning, stacklevel=4)

    def validated(self, kind: type[M], path: str, what: str, value: Mapping[str, Any]) -> M | None:
        """Return *value* as a *kind*; None where it cannot be one, and then what is wrong with it is noted."""
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            for detail in error.errors():
                self._note(kind, path, what, detail)
            return None

    def _note(self, kind: type[BaseModel], path: str, what: str, detail: "ErrorDetails") -> None:
        place = joined(path, *detail["loc"])
        if detail["type"] == "extra_forbidden":
            self.unknown(place, what, str(detail["loc"][-1]), [*kind.model_fields])
            return
        given: object = detail["input"]
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        is_short = isinstance(given, (str, int, float)) or given is None
        self.add(place, f"{given!r} is not allowed: it must be {message}" if is_short else message)


def joined(path: str, *parts: str | int) -> str:
    """Return the path of what lies within *path*.

    >>> joined("hooks.pre_llm", 0, "type")
    'hooks.pre_llm[0].type'
    """
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}" if path else part
    return path
