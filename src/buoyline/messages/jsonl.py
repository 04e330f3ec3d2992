"""Spelling a message as one line of JSON, and reading it back; and times."""

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeGuard, cast

from buoyline.errors import MessageError

# Readers that split lines as Python or a browser does would see two lines in one record; a lone surrogate
# has no UTF-8 form at all. Everything else stays readable, so that grep finds Chinese as well as English.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DELETE = "\x7f"
_TEXT = frozenset({str})


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether *value* is a JSON object: a mapping with text keys."""
    # Called a dozen times for each message: a dict takes 0.06 us, the check of the abstract class alone 0.14.
    if not isinstance(value, (dict, Mapping)):
        return False
    keys = cast("Mapping[object, object]", value)
    return _TEXT.issuperset(map(type, keys)) or all(isinstance(key, str) for key in keys)


def is_array(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether *value* is a JSON array: a list or a tuple, but not text."""
    return isinstance(value, (list, tuple))


def model_fields(value: object) -> dict[str, Any] | None:
    """Return the fields of a pydantic model as JSON values, or None for anything else.

    Unset fields are left out, as the providers' packages leave them out when they send; but all fields of a class
    that fills in ids, times or its own type, as AgentScope's do, are written. A field that a compatible provider
    fills with another type causes no warning. pydantic is only looked up, not imported (it takes 60 ms): if nobody
    has imported it, no value is a model.

    Raises:
        MessageError: A field has no JSON form.
    """
    if "pydantic" not in sys.modules:
        return None
    from pydantic import BaseModel  # noqa: PLC0415 - see above

    if not isinstance(value, BaseModel):
        return None
    fields = type(value).model_fields
    kind = fields.get("type")
    fills_itself = any(field.default_factory for field in fields.values()) or isinstance(kind and kind.default, str)
    try:
        return value.model_dump(mode="json", exclude_unset=not fills_itself, warnings=False)
    except ValueError as error:
        raise MessageError(f"cannot be written as JSON: {error}") from error


def with_changed(value: Any, change: Callable[[object], object]) -> Any:
    """Return *value* with each value in it as *change* returns it; *value* itself if all stay as they are.

    Raises:
        MessageError: It is nested more deeply than Python's stack, or holds itself.
    """
    try:
        return _with_changed(value, change)
    except RecursionError as error:
        raise MessageError("cannot be written as JSON: nested more deeply than Python's stack") from error


def _with_changed(value: Any, change: Callable[[object], object]) -> Any:
    changed = change(value)
    if changed is not value:
        return changed
    if is_object(value):
        made = {key: _with_changed(inner, change) for key, inner in value.items()}
        return made if any(made[key] is not inner for key, inner in value.items()) else value
    if is_array(value):
        items = [_with_changed(inner, change) for inner in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def spell(value: object) -> str:
    r"""Spell *value* as one line of JSON, without the line's end.

    Text stays readable, except that control characters, U+0085, U+2028, U+2029 and lone surrogates are written as
    ``\uXXXX``. Key order is kept. Pydantic models inside *value* are written as `model_fields` gives them.
    `parse` reads the line back equal. (Two surrogates that form a pair come back as one character: JSON cannot tell
    these apart.)

    Raises:
        MessageError: *value* holds something without a JSON form, such as NaN or a ``datetime``.
    """
    try:
        line = _ENCODER.encode(value)
    except MessageError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"cannot be written as JSON: {error}") from error
    # The encoder has escaped all other control characters. `isascii` takes constant time.
    if line.isascii() and _DELETE not in line:
        return line
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def parse(line: str | bytes) -> Any:
    """Return the value of one line of JSON; bytes are UTF-8.

    Raises:
        MessageError: *line* is not JSON, such as ``NaN``.
    """
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not JSON: {error}") from error


def _refuse_constant(constant: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``, which Python's `json` accepts."""
    message = f"{constant} is not JSON"
    raise ValueError(message)


def _plain(value: object) -> object:
    found = model_fields(value)
    if found is None:
        message = f"{type(value).__name__} has no JSON form"
        raise TypeError(message)
    return found


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


_KEYS: Final = ("timestamp", "created_at")
_MAX_CHARS: Final = 40
_FIRST_YEAR: Final = 1971
"""Earlier times are ignored: a converted message has 1970-01-01T00:00:00 in place of an unknown time."""

_SECONDS: Final = range(946_684_800, 4_102_444_800)
"""From 2000 to 2099. A time in milliseconds is a thousand times as large, so the two cannot be confused."""


def now() -> str:
    """Return the current time as records and headings spell it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of(value: Mapping[str, Any]) -> str:
    """Return the time of a message by its own JSON *value*; empty if it has none.

    AgentScope's messages have ``created_at``. Other dialects have no such field, but many agents add a ``timestamp``.
    """
    return next(filter(None, (time_from(value.get(key)) for key in _KEYS)), "")


def time_from(value: object) -> str:
    """Return a time in one form: ISO 8601 with milliseconds, in UTC if *value* has a time zone.

    *value* is ISO 8601 with a time of day, or seconds or milliseconds since the epoch; any other value gives ``""``. A
    time without a time zone is not converted: its zone is unknown.
    """
    try:
        if isinstance(value, str):
            # A date alone is no time, and fromisoformat would make midnight of it.
            found = datetime.fromisoformat(value) if ":" in value and len(value) <= _MAX_CHARS else None
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            seconds = value if int(value) in _SECONDS else value / 1000
            found = datetime.fromtimestamp(seconds, UTC) if int(seconds) in _SECONDS else None
        else:
            found = None
        if found is not None and found.tzinfo is not None:
            found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    if found is None or found.year < _FIRST_YEAR:
        return ""
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
