"""The kinds of values that documents have, and what a model of them has in common."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_truth(value: Any) -> Any:
    """Refuse true and false where a number is meant: Python would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")  # noqa: TRY004 - pydantic makes problems of a ValueError
    return value


Count = Annotated[int, BeforeValidator(_no_truth), Field(ge=1)]
"""A whole number above 0. A text that spells one is taken for it, as OpenSearch does."""

CountOrNone = Annotated[int, BeforeValidator(_no_truth), Field(ge=0)]
"""A whole number from 0 on."""

Share = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, le=1, allow_inf_nan=False)]
"""A share of the window: above 0, at most 1."""

Seconds = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, allow_inf_nan=False)]
"""A time above 0."""

SummaryRatio = Annotated[float, BeforeValidator(_no_truth), Field(ge=0.1, le=0.8, allow_inf_nan=False)]
"""From 0.1 to 0.8, as both pages document it that have it."""


class Fields(BaseModel):
    """An object in a document: a key that it does not know is an error, and nothing in it changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def spelled(self) -> dict[str, Any]:
        """Return the keys that were given, as JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)
