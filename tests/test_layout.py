import hashlib
import re
import unicodedata
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buoyline.errors import InvalidNameError
from buoyline.workspace import layout
from buoyline.workspace.layout import encode_id

DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")

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
    "devices": ["CON", "con", "con.txt", "Aux", "nul.tar.gz", "com1", "LPT9", "com\u00b9"],
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
    "names of our own": ["context.jsonl", ".locks", "session.json", "torn", "data", ".tmp-1"],
    "nul": ["a\x00b", "\x00"],
    "what a name looks like": ["A~aaaaaaaa", "a~b", "id", "id~aaaaaaaa"],
}

ids = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=70),
    st.text(st.sampled_from("abAB01._-~ /\\:\u0301\xe9\u212akK\u0130\u0131\u017fs\ud800\n"), max_size=6),
    st.from_regex(r"[A-Za-z0-9._-]{1,70}", fullmatch=True),
    st.sampled_from(sorted({identifier for group in HOSTILE_IDS.values() for identifier in group})),
)


def _folded(name: str) -> set[str]:
    """Return what *name* is to file systems that fold case, Unicode forms or both."""
    return {name.casefold(), *(unicodedata.normalize(form, name).casefold() for form in FORMS)}


def _is_name_on_every_system(name: str) -> bool:
    return (
        re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._~-]*", name) is not None
        and len(name.encode("ascii")) <= 255
        and not name.endswith(".")
        and name.partition(".")[0].lower() not in DEVICES
    )


def _variants(identifier: str) -> set[str]:
    """Return ids that a careless encoding would put into the same file."""
    forms = {unicodedata.normalize(form, identifier) for form in FORMS}
    others = {identifier.lower(), identifier.upper(), identifier.swapcase(), identifier.casefold(), identifier.strip()}
    replaced = {identifier.replace(old, new) for old in "/:.~ _" for new in ("-", "_", "")}
    return forms | others | replaced | {f"{identifier}.", f"{identifier} ", encode_id(identifier)}


@given(ids)
@example("\u0130")
def test_a_name_is_valid_on_every_system(identifier: str) -> None:
    name = encode_id(identifier)
    assert _is_name_on_every_system(name)
    assert len(name) <= 73


@given(ids)
def test_an_id_and_its_look_alikes_have_names_that_no_file_system_takes_for_one(identifier: str) -> None:
    names: dict[str, str] = {}
    for variant in {identifier} | {variant for variant in _variants(identifier) if len(variant) <= 4_096}:
        for name in _folded(encode_id(variant)):
            assert names.setdefault(name, variant) == variant


@given(st.lists(ids, unique=True, max_size=20))
def test_different_ids_have_different_names(identifiers: list[str]) -> None:
    names = [encode_id(identifier).casefold() for identifier in identifiers]
    assert len(set(names)) == len(identifiers)


@pytest.mark.parametrize("identifiers", HOSTILE_IDS.values(), ids=HOSTILE_IDS.keys())
def test_a_hostile_id_has_a_file_of_its_own_inside_the_workspace(identifiers: list[str]) -> None:
    names = [encode_id(identifier) for identifier in identifiers]
    assert all(_is_name_on_every_system(name) for name in names)
    assert len({name.casefold() for name in names}) == len(identifiers)


@pytest.mark.parametrize("identifiers", HOSTILE_IDS.values(), ids=HOSTILE_IDS.keys())
def test_a_hostile_id_names_a_file_right_beneath_the_session(identifiers: list[str]) -> None:
    for identifier in identifiers:
        names = layout.result_names(identifier) or (_numbered(identifier),)
        assert all(re.fullmatch(r"tool_result-[A-Za-z0-9._~-]{1,97}\.txt", name) for name in names)
        assert all(map(layout.is_result_name, names))
        assert re.fullmatch(r"\.locks/[0-9a-f]{2}\.lock", layout.lock_name(identifier))


@pytest.mark.parametrize("identifier", ["s1", "toolu_01Rn", "a.b", "A", "0", "call-1.2", "a" * 64, "com", "a..b"])
def test_an_id_that_can_be_a_name_is_its_own_name(identifier: str) -> None:
    assert layout.result_names(identifier)[0] == f"tool_result-{identifier}.txt"
    assert layout.session_directories(identifier)[0] == f"sessions/{identifier}"


@pytest.mark.parametrize(
    "identifier",
    ["", "a b", "a.", "a.view", "a.VIEW", "con", "Aux.txt", "-a", ".a", "_a", "a" * 65, "\xe9", "\u212a", "a~b", "a\n"],
)
def test_an_id_that_cannot_be_a_name_is_none(identifier: str) -> None:
    assert layout.result_names(identifier) == ()
    assert not identifier or f"sessions/{identifier}" not in layout.session_directories(identifier)


def test_a_numbered_name_says_the_tool_or_else_the_id() -> None:
    sha256 = "11" * 32
    tail = layout.result_tail("read_file:31", sha256)
    assert re.fullmatch(r"~[a-z2-7]{16}\.txt", tail)
    assert layout.numbered_result_name("read_file:31", "web_search", 12, sha256) == f"tool_result-web_search-12{tail}"
    assert layout.numbered_result_name("read_file:31", "", 12, sha256) == f"tool_result-read_file-31-12{tail}"
    assert layout.numbered_result_name("", "", 12, sha256) == f"tool_result-12{layout.result_tail('', sha256)}"


def _numbered(identifier: str) -> str:
    return layout.numbered_result_name(identifier, identifier, 1, "22" * 32)


def test_the_names_of_the_format_do_not_change() -> None:
    """Other tools, and older workspaces, find their files by them."""
    assert {
        identifier: encode_id(identifier) for identifier in ("s1", "call_abc", "toolu_01ABc", "a.b", "", "../x", "con")
    } == {
        "s1": "s1",
        "call_abc": "call_abc",
        "toolu_01ABc": f"toolu_01ABc~{_base32('toolu_01ABc')[:8]}",
        "a.b": f"a.b~{_base32('a.b')[:8]}",
        "": "id~4oymiquy7qobjgx36tejs35zeqt24qpe",
        "../x": f"x~{_base32('../x')}",
        "con": f"con~{_base32('con')}",
    }


def _base32(identifier: str) -> str:
    """Spell out what docs/format.md says: SHA-256, its first 20 bytes in base32, in small letters."""
    number = int.from_bytes(hashlib.sha256(identifier.encode("utf-8")).digest()[:20], "big")
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[number >> shift & 31] for shift in range(155, -1, -5))


@pytest.mark.parametrize("identifier", [123, None, b"abc", 1.5, ["a"], True], ids=repr)
def test_an_id_that_is_no_text_is_refused(identifier: Any) -> None:
    with pytest.raises(InvalidNameError, match="an id must be text, not"):
        encode_id(identifier)
    with pytest.raises(InvalidNameError, match="an id must be text, not"):
        layout.session_directories(identifier)
    with pytest.raises(InvalidNameError, match="an id must be text, not"):
        layout.require_id(identifier)


def test_a_session_id_of_64_kilobytes_is_refused_and_not_repeated_in_the_error() -> None:
    assert layout.session_directories("q" * 4_096)
    with pytest.raises(InvalidNameError, match="from 1 to 4,096 characters") as caught:
        layout.session_directories("q" * 65_536)
    assert len(str(caught.value)) < 200


def test_a_call_id_of_any_length_is_a_name() -> None:
    assert len(encode_id("q" * 65_536)) < 80


def test_a_session_needs_an_id_that_says_something() -> None:
    with pytest.raises(InvalidNameError, match="from 1 to 4,096 characters"):
        layout.session_directories("")


@given(st.lists(ids, unique=True, max_size=8), st.binary(min_size=32, max_size=32).map(bytes.hex))
def test_results_variants_and_views_never_share_a_file(identifiers: list[str], sha256: str) -> None:
    # Of the plain ids only one may be taken where they are equal up to case: tests/test_file_names.py.
    firsts = [
        name for identifier in identifiers for name in layout.result_names(identifier)[1:] or (_numbered(identifier),)
    ]
    results = [*firsts, *(layout.variant_result_name(name, sha256) for name in firsts)]
    names = [*results, *map(layout.view_name, results)]
    assert len({name.casefold() for name in names}) == len(names)
    assert all(_is_name_on_every_system(name) for name in names)


def test_a_variant_is_named_by_its_content() -> None:
    first, second = (layout.variant_result_name("tool_result-a.txt", digit * 64) for digit in "12")
    assert first == layout.variant_result_name("tool_result-a.txt", "1" * 64) != second
    assert re.fullmatch(r"tool_result-a~[a-z2-7]{16}\.txt", first)
    assert layout.first_result_name(first) == layout.first_result_name("tool_result-a.txt") == "tool_result-a.txt"


def test_a_view_is_named_after_its_result() -> None:
    assert layout.view_name("tool_result-a.txt") == "tool_result-a.view.txt"


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


def test_torn_bytes_are_set_aside_under_file_offset_and_content() -> None:
    names = {
        layout.torn_name(name, offset, content)
        for name in ("context.jsonl", "journal.jsonl")
        for offset in (0, 17)
        for content in (b"", b"a")
    }
    assert len(names) == 8
    assert all(re.fullmatch(r"torn/(context|journal)\.jsonl-(0|17)-[0-9a-f]{8}", name) for name in names)


@given(ids)
def test_a_lock_is_one_of_256_and_always_the_same(identifier: str) -> None:
    name = layout.lock_name(identifier)
    assert name == layout.lock_name(identifier)
    assert re.fullmatch(r"\.locks/[0-9a-f]{2}\.lock", name)
