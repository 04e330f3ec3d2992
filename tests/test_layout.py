"""Names on disk: whatever an id is, its files are its own, and right where they belong."""

import hashlib
import re
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buoyline.errors import InvalidNameError
from buoyline.workspace import layout

HOSTILE_IDS = {
    "empty": [""],
    "dot": ["."],
    "dotdot": [".."],
    "traversal": ["../../escape"],
    "deep traversal": ["../../../../../../../../target"],
    "absolute": ["/absolute/target"],
    "slash": ["a/b"],
    "backslash": ["a\\..\\b"],
    "300 ascii": ["a" * 300, "a" * 299],
    "300 bytes of CJK": ["\u65e5" * 100, "\u65e5" * 99],
    "leading dash": ["-rf"],
    "leading dot": [".hidden"],
    "trailing dot or blank": ["abc.", "abc ", "abc", "abc..", "Abc."],
    "newline": ["a\nb", "a\n", "a"],
    "ansi": ["\x1b[31mred"],
    "bidi": ["\u202egnp.exe"],
    "lone surrogate": ["\ud800x", "\udfffx"],
    "emoji": ["\U0001f98a"],
    "case pair": ["Call_A", "call_a", "CALL_A"],
    "NFC and NFD": ["\xe9", "e\u0301"],
    "kelvin": ["\u212a", "k", "K"],
    "sanitise collision": ["a/b", "a_b", "a:b", "a-b", "a b"],
    "stream": ["file:stream"],
    "wildcards": ['*?<>|"'],
    "percent": ["%2e%2e%2fx"],
    "fullwidth dots": ["\uff0e\uff0e\uff0f\uff0e\uff0e\uff0fx"],
    "blanks": ["   ", " ", "\t", "\u3000"],
    "names of our own": ["context.jsonl", "state.jsonl", "torn", "data", ".tmp-1"],
    "nul": ["a\x00b", "\x00"],
    "what a name looks like": ["A~aaaaaaaa", "a~b", "id", "id~aaaaaaaa"],
}

ids = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=70),
    st.text(st.sampled_from("abAB01._-~ /\\:\u0301\xe9\u212akK\u0130\u0131\u017fs\ud800\n"), max_size=6),
    st.from_regex(r"[A-Za-z0-9._-]{1,70}", fullmatch=True),
    st.sampled_from(sorted({identifier for group in HOSTILE_IDS.values() for identifier in group})),
)


def _is_name(name: str) -> bool:
    return (
        re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._~-]*", name) is not None
        and len(name.encode("ascii")) <= 255
        and not name.endswith(".")
    )


@pytest.mark.parametrize(
    ("media_type", "extension"),
    [
        ("image/png", "png"),
        ("IMAGE/PNG; charset=x", "png"),
        (" image/jpeg ", "jpg"),
        ("application/pdf", "pdf"),
        ("audio/wav", "wav"),
        ("text/html", "bin"),
        ("image/svg+xml", "bin"),
        ("image/../../../x", "bin"),
        ("image/p\x00ng", "bin"),
        ("a/" + "b" * 300, "bin"),
        ("", "bin"),
        (";", "bin"),
    ],
)
def test_a_blob_gets_an_extension_that_runs_nothing(media_type: str, extension: str) -> None:
    assert layout.blob_name(b"abc", media_type) == f"data/{hashlib.sha256(b'abc').hexdigest()}.{extension}"


@given(st.binary(max_size=20), st.text(max_size=20))
def test_a_reference_leads_back_to_its_blob(payload: bytes, media_type: str) -> None:
    name = layout.blob_name(payload, media_type)
    assert layout.blob_behind(layout.reference_to(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "workspace:///data/../../etc/passwd",
        f"workspace:///data/{'0' * 63}.png",
        f"workspace:///data/{'G' * 64}.png",
        f"workspace:///data/{'0' * 64}",
        f"workspace:///data/{'0' * 64}.png\n",
        f"workspace:///data/{'0' * 64}.p/g",
        f"workspace:///data/{'0' * 64}.abcdefghi",
        f" workspace:///data/{'0' * 64}.png",
        f"workspace://data/{'0' * 64}.png",
        f"see workspace:///data/{'0' * 64}.png",
    ],
)
def test_what_a_tool_wrote_is_no_reference_of_ours(text: str) -> None:
    assert layout.blob_behind(text) is None


def test_a_session_id_of_64_kilobytes_is_refused_and_not_repeated_in_the_error() -> None:
    assert layout.session_directory("q" * 4_096)
    for wrong in ("q" * 65_536, "", None):
        with pytest.raises(InvalidNameError, match="1 to 4,096 characters") as caught:
            layout.session_directory(cast("Any", wrong))
        assert len(str(caught.value)) < 200


@given(st.lists(ids, unique=True, max_size=8), st.binary(min_size=32, max_size=32).map(bytes.hex))
@example(sorted({one for group in HOSTILE_IDS.values() for one in group}), "22" * 32)
def test_no_two_names_are_one_and_each_is_right_beneath_its_session(identifiers: list[str], sha256: str) -> None:
    results = [layout.result_name(one, variant) for one in identifiers for variant in ("", sha256)]
    arguments = [layout.arguments_name(one) for one in identifiers]
    names = [*results, *map(layout.view_name, results), *arguments]
    assert len({*names}) == len(names)
    assert all(map(_is_name, names))
    assert all(map(layout.is_result_name, results))
    assert [layout.result_behind(layout.view_name(name)) for name in results] == results
