import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import MessageError
from buoyline.messages.payloads import Reference, put_back, take_out

PAYLOAD = b"\x89PNG\r\n\x1a\n"
BASE64 = base64.b64encode(PAYLOAD).decode("ascii")
REFERENCE = f"workspace:///data/{hashlib.sha256(PAYLOAD).hexdigest()}.bin"


class Store:
    """Keeps payloads by their hash, as a workspace does."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.media_types: list[str] = []

    def put(self, payload: bytes, media_type: str) -> str:
        reference = f"workspace:///data/{hashlib.sha256(payload).hexdigest()}.bin"
        self.blobs[reference] = payload
        self.media_types.append(media_type)
        return reference

    def get(self, reference: str) -> bytes:
        return self.blobs[reference]


def _spelled(payload: bytes, change: Callable[[str], str] = str) -> str:
    return change(base64.b64encode(payload).decode("ascii"))


base64_texts = st.binary(max_size=12).map(_spelled)
almost_base64 = st.builds(
    _spelled,
    st.binary(max_size=12),
    st.sampled_from([lambda text: text.rstrip("="), lambda text: f"{text}\n", lambda text: f" {text}", str.lower]),
)
heads = st.sampled_from(["data:image/png;base64,", "data:;base64,", "data:a/b;charset=x;base64,", "data:,", "data:x"])
leaves = st.one_of(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    base64_texts,
    almost_base64,
    st.builds(str.__add__, heads, base64_texts | almost_base64 | st.text(max_size=8)),
    base64_texts.map(lambda _: REFERENCE),
)
keys = st.sampled_from(["url", "image_url", "file_data", "data", "type", "format", "media_type", "source", "text"])
carriers = st.one_of(
    st.fixed_dictionaries({"type": st.just("base64"), "data": base64_texts | almost_base64}),
    st.fixed_dictionaries({"format": st.sampled_from(["wav", "mp3"]), "data": base64_texts}),
    st.fixed_dictionaries({"url": st.builds(str.__add__, heads, base64_texts)}),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["data", "image"]),
            "source": st.fixed_dictionaries(
                {"type": st.just("base64"), "data": base64_texts | almost_base64},
                optional={"media_type": st.just("image/png"), "url": st.none() | base64_texts},
            ),
        }
    ),
)
values: st.SearchStrategy[Any] = st.recursive(
    leaves | carriers,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_putting_back_what_was_taken_out_gives_the_same_value(value: Any) -> None:
    store = Store()
    without, references = take_out(value, store.put)
    assert put_back(without, references, store.get) == value


@given(values)
def test_no_payload_is_left_and_each_place_holds_its_reference(value: Any) -> None:
    without, references = take_out(value, Store().put)
    assert take_out(without, Store().put) == (without, ())
    for at, _, reference in references:
        found = without
        for key in at:
            found = found[key]
        assert found == reference


@pytest.mark.parametrize(
    ("block", "at", "head", "media_type"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BASE64}"}},
            ("image_url", "url"),
            "data:image/png;base64,",
            "image/png",
        ),
        (
            {"type": "image_url", "image_url": f"data:image/png;base64,{BASE64}"},
            ("image_url",),
            "data:image/png;base64,",
            "image/png",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
            ("input_audio", "data"),
            "",
            "audio/wav",
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{BASE64}"}},
            ("file", "file_data"),
            "data:application/pdf;base64,",
            "application/pdf",
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
            ("source", "data"),
            "",
            "image/png",
        ),
        (
            {"type": "document", "source": {"data": BASE64, "media_type": "application/pdf", "type": "base64"}},
            ("source", "data"),
            "",
            "application/pdf",
        ),
    ],
)
def test_a_payload_is_found_where_providers_put_it(
    block: dict[str, Any], at: tuple[str, ...], head: str, media_type: str
) -> None:
    store = Store()
    message = {"role": "user", "content": ["before", block]}
    without, references = take_out(message, store.put)
    assert references == (Reference(("content", 1, *at), head, REFERENCE),)
    assert store.blobs == {REFERENCE: PAYLOAD}
    assert store.media_types == [media_type]
    assert put_back(without, references, store.get) == message


@pytest.mark.parametrize(
    "text",
    ["", "aGk", "aGk=\n", " aGk=", "aG k=", "aGl=", "aGk==", "_-8=", "aGk=aGk=", "%%%%", "\xe9\xe9\xe9\xe9", "\ud800"],
    ids=ascii,
)
def test_base64_that_would_not_come_back_the_same_stays(text: str) -> None:
    for value in ({"type": "base64", "data": text}, {"url": f"data:image/png;base64,{text}"}):
        assert take_out(value, Store().put) == (value, ())


@pytest.mark.parametrize(
    "value",
    [
        BASE64,
        f"data:image/png;base64,{BASE64}",
        {"data": BASE64},
        {"type": "text", "data": BASE64},
        {"type": "text", "text": f"data:image/png;base64,{BASE64}"},
        {"arguments": f'{{"url": "data:image/png;base64,{BASE64}"}}'},
        {"url": f"https://example.org/{BASE64}"},
        {"url": f"data:image/png,{BASE64}"},
        {"url": f"DATA:image/png;base64,{BASE64}"},
        {"type": "base64", "data": ["a"]},
        {"type": "base64", "data": REFERENCE},
        {"url": REFERENCE},
    ],
)
def test_text_that_merely_looks_like_a_payload_stays(value: Any) -> None:
    assert take_out(value, Store().put) == (value, ())


def test_a_payload_is_found_deep_in_a_message_and_one_nested_deeper_than_the_stack_is_refused() -> None:
    value: Any = {"url": f"data:image/png;base64,{BASE64}"}
    for _ in range(100):
        value = [value]
    store = Store()
    without, references = take_out(value, store.put)
    assert len(references[0].at) == 101
    assert put_back(without, references, store.get) == value
    for _ in range(30_000):
        value = [value]
    with pytest.raises(MessageError, match="nested more deeply"):
        take_out(value, store.put)
