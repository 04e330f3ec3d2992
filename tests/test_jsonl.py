import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from buoyline.errors import MessageError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_array, is_object, parse

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


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_a_separator_of_lines_is_escaped_in_texts_and_in_keys(separator: str) -> None:
    value = {f"a{separator}b": [f"{separator}c"]}
    line = spell(value)
    assert separator not in line
    assert parse(line) == value


def test_text_stays_as_it_is_where_every_reader_agrees_on_it() -> None:
    assert spell({"text": "grüße 中文 😀"}) == '{"text":"grüße 中文 😀"}'


@pytest.mark.parametrize("text", ["\ud800", "a\ud83dz", "\udfff\ud800"], ids=ascii)
def test_a_lone_surrogate_survives_in_a_line_that_is_utf_8(text: str) -> None:
    line = spell([text])
    assert parse(line.encode("utf-8")) == [text]


def test_a_pair_of_surrogates_comes_back_as_its_character() -> None:
    """JSON has one spelling for both; the character is what was meant."""
    assert parse(spell(["\ud83d\ude00"])) == ["😀"]


def test_the_order_of_keys_is_kept() -> None:
    assert spell({"b": 1, "a": {"d": 2, "c": 3}}) == '{"b":1,"a":{"d":2,"c":3}}'
    assert list(parse('{"b":1,"a":2}')) == ["b", "a"]


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


def test_moderate_nesting_is_fine() -> None:
    line = "[" * 500 + "]" * 500
    assert spell(parse(line)) == line


def test_nesting_beyond_all_measure_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(200_000):
        nested = [nested]
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        spell(nested)
    with pytest.raises(MessageError, match="not JSON"):
        parse("[" * 200_000 + "]" * 200_000)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["content"] = [value]
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        spell(value)


def test_a_model_within_is_spelled_by_the_fields_that_were_set() -> None:
    value = {"calls": [Call(name="read", arguments={"path": "a\u2028b"})]}
    assert spell(value) == '{"calls":[{"name":"read","arguments":{"path":"a\\u2028b"}}]}'


def test_a_model_whose_field_holds_another_type_is_spelled_without_a_warning() -> None:
    """As the packages build them for a provider that is compatible, but not quite."""
    assert spell(Call.model_construct(name=["not", "text"])) == '{"name":["not","text"]}'


def test_a_model_with_a_field_that_has_no_json_form_is_refused_in_plain_words() -> None:
    with pytest.raises(MessageError, match=r"^cannot be written as JSON: (?!cannot)"):
        spell([Call.model_construct(name=object())])


def test_objects_and_arrays_are_told_from_all_else() -> None:
    objects: list[object] = [{}, {"a": 1}]
    arrays: list[object] = [[], (1,)]
    others: list[object] = [{1: "a"}, "ab", b"ab", None, 5]
    assert [value for value in [*objects, *arrays, *others] if is_object(value)] == objects
    assert [value for value in [*objects, *arrays, *others] if is_array(value)] == arrays


@settings(max_examples=30)
@given(st.lists(json_values, max_size=5))
def test_lines_of_a_file_come_back_in_order(values: list[Any]) -> None:
    content = "".join(f"{spell(value)}\n" for value in values)
    assert [parse(line) for line in content.splitlines()] == values


def test_every_recorded_message_comes_back_equal(shared_data: Path) -> None:
    for path in sorted((shared_data / "sessions").glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line:
                assert parse(spell(json.loads(line))) == json.loads(line)
