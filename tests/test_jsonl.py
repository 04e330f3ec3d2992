import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from buoyline.errors import MessageError
from buoyline.messages import spell
from buoyline.messages.jsonl import parse

SEPARATORS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def _with_pairs_joined(text: str) -> str:
    """Return *text* with each pair of surrogates as the one character that it stands for."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts = st.one_of(
    st.text(max_size=20),
    st.text(st.sampled_from(SEPARATORS + '\x00\x7f\x9f\ufeff"\\ab中😀\ud800\udfff'), max_size=20),
    st.text(st.characters(exclude_categories=()), max_size=20),
).map(_with_pairs_joined)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


class Call(BaseModel):
    """Stands for what a provider's package gives."""

    name: str
    arguments: dict[str, Any] = {}
    comment: str | None = None


@given(json_values)
def test_any_json_value_comes_back_equal(value: Any) -> None:
    assert parse(spell(value)) == value
    assert parse(spell(value).encode("utf-8")) == value


@given(json_values)
def test_what_was_read_is_spelled_the_same_again(value: Any) -> None:
    line = spell(value)
    assert spell(parse(line)) == line


@given(json_values)
def test_a_value_is_one_line_for_every_reader(value: Any) -> None:
    line = spell(value)
    assert line.splitlines() == [line]
    assert line.encode("utf-8").splitlines() == [line.encode("utf-8")]


@pytest.mark.parametrize("text", ["\ud800", "a\ud83dz", "\udfff\ud800"], ids=ascii)
def test_a_lone_surrogate_survives_in_a_line_that_is_utf_8(text: str) -> None:
    line = spell([text])
    assert parse(line.encode("utf-8")) == [text]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_without_a_json_form_is_refused_and_never_null(number: float) -> None:
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        spell({"n": [number]})


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_only_python_reads_is_refused(constant: str) -> None:
    with pytest.raises(MessageError, match=f"{constant} is not JSON"):
        parse(f'{{"n": [{constant}]}}')


@pytest.mark.parametrize("line", ["", "{", "{'a': 1}", '{"a": 1} {"b": 2}', '["a\nb"]', b"\xff", b'{"a": "\xff"}'])
def test_what_is_not_json_is_refused(line: str | bytes) -> None:
    with pytest.raises(MessageError, match=r"^not JSON: "):
        parse(line)


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 2, tzinfo=UTC), {1, 2}, b"bytes", object()], ids=lambda value: type(value).__name__
)
def test_a_value_without_a_json_form_is_refused_by_the_name_of_its_type(value: object) -> None:
    with pytest.raises(MessageError, match=f"{type(value).__name__} has no JSON form"):
        spell({"content": [value]})


def test_nesting_beyond_all_measure_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(200_000):
        nested = [nested]
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        spell(nested)
    with pytest.raises(MessageError, match="not JSON"):
        parse("[" * 200_000 + "]" * 200_000)


def test_a_model_within_is_spelled_by_the_fields_that_were_set() -> None:
    value = {"calls": [Call(name="read", arguments={"path": "a\u2028b"})]}
    assert spell(value) == '{"calls":[{"name":"read","arguments":{"path":"a\\u2028b"}}]}'


def test_a_model_with_a_field_that_has_no_json_form_is_refused_in_plain_words() -> None:
    with pytest.raises(MessageError, match=r"^cannot be written as JSON: (?!cannot)"):
        spell([Call.model_construct(name=object())])
