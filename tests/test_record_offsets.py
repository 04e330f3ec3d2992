"""A record is found by its name, however it is spelled and however much of the journal was looked at before."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline.messages import spell
from buoyline.workspace import journal
from buoyline.workspace.journal import encode
from buoyline.workspace.journal_tail import RecordOffsets

NAMES = st.sampled_from(
    [
        "a",
        "ab",
        "b",
        '"',
        "\\",
        '\\"',
        'a","id":"b',
        '"id":"a"',
        "\n",
        "\u2028",
        "\x7f",
        "é",
        "\ud800",
        "\ud83d\ude00",
        "😀",
    ]
)
FIELDS = {"batch": "id", "result": "path", "stub": "sha256"}


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    op, name, other = draw(st.sampled_from([*FIELDS, "settings"])), draw(NAMES), draw(NAMES)
    nested = {"op": "batch", "id": other, "path": other, "sha256": other}
    calls = {"call_id": other} if op == "result" else {}
    names = {FIELDS[op]: name} if op in FIELDS else {}
    return {"op": op, **calls, **names, "filling": "x" * draw(st.integers(0, 300)), "tools": [nested]}


@given(
    made=st.lists(records(), max_size=30),
    damaged=st.sets(st.integers(0, 29), max_size=4),
    asked=st.lists(st.tuples(st.sampled_from([*FIELDS]), NAMES, st.integers(0, 30)), min_size=1, max_size=12),
    chunk_bytes=st.sampled_from([16, 200, 1 << 20]),
)
@settings(deadline=None)
def test_the_newest_whole_record_of_a_name_is_found(
    made: Sequence[dict[str, Any]], damaged: set[int], asked: Sequence[tuple[str, str, int]], chunk_bytes: int
) -> None:
    lines = [encode(record) for record in made]
    ends = [0, *accumulate(map(len, lines))]
    for number in damaged & set(range(len(lines))):
        lines[number] = lines[number][:-6] + b"!" + lines[number][-5:]
    content = b"".join(lines)
    catalogue = RecordOffsets(lambda offset, size: content[offset : offset + size])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_CHUNK_BYTES", chunk_bytes)
        for op, name, grown in sorted(asked, key=lambda question: question[2]):
            whole = [(at, record) for at, record in enumerate(made[:grown]) if at not in damaged and record["op"] == op]
            # By the spelling: two surrogates that form a pair are read back as the character that they stand for.
            named = [ends[at] for at, record in whole if spell(record[FIELDS[op]]) == spell(name)]
            found = catalogue.find(op, name, ends[min(grown, len(made))])
            assert (found and found[0]) == (named[-1] if named else None)


def test_who_asks_once_has_few_lines_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(encode({"op": "batch", "id": f"batch {number}", "time": ""}) for number in range(1000))
    monkeypatch.setattr(journal, "_CHUNK_BYTES", 1 << 10)
    catalogue = RecordOffsets(lambda offset, size: content[offset : offset + size])
    assert catalogue.find("batch", "never", len(content)) is None
    assert len(catalogue._offsets) < 50
    for number in range(0, 1000, 90):
        found = catalogue.find("batch", f"batch {number}", len(content))
        assert found is not None
        assert found[1]["id"] == f"batch {number}"
    assert len(catalogue._offsets) == 1000


def test_a_journal_that_grows_may_be_asked_as_often_as_one_likes() -> None:
    content, catalogue = b"", RecordOffsets(lambda offset, size: content[offset : offset + size])
    for number in range(200):
        content += encode({"op": "batch", "id": str(number), "time": ""})
        assert catalogue.find("batch", str(number), len(content)) is not None
        assert catalogue.find("batch", "never", len(content)) is None
