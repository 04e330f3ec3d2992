"""How likely an exact string is needed again, by the table that a script learned, and how the script learns."""

import json
import math
import re
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from buoyline.compression.extractive.conversation import Conversation, QuotationLimits
from buoyline.compression.extractive.facts import FACTS
from buoyline.compression.extractive.learned import LEARNED
from buoyline.compression.summary import SourceMessage
from buoyline.messages.registry import detect
from buoyline.tokens import as_text_counter, default_counter

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts/train_ranker.py"))
Row, FEATURES = SCRIPT["Row"], SCRIPT["FEATURES"]
COUNTER = as_text_counter(default_counter())


def call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": name, "type": "function", "function": function}],
    }


def result(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": text}


def read(*messages: Mapping[str, Any]) -> Conversation:
    sources = [SourceMessage(at, detect(message).view(message)) for at, message in enumerate(messages)]
    return Conversation(sources, QuotationLimits.within(1_000, COUNTER))


def needs(*messages: Mapping[str, Any]) -> dict[str, float]:
    conversation = read(*messages)
    return {found.text: conversation.value_of(found) for found in conversation.occurrences}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_the_shipped_table_is_as_the_script_writes_it() -> None:
    assert SCRIPT["TABLE"].read_text("utf-8") == SCRIPT["table_module"](LEARNED)
    assert set(LEARNED) == set(FEATURES)
    assert SCRIPT["TABLE"].stat().st_size < 100_000


def test_the_library_computes_each_feature_of_the_table() -> None:
    conversation = read(
        user("Look at https://example.org/a and commit 3f2a9c1b in src/app/main.py."),
        call("write_file", path="src/app/main.py", content="run_all()"),
        result("write_file", '{"item_name": "run_all", "other_name": 1}'),
        {"role": "assistant", "content": "I changed run_all."},
        user("Now rename run_all."),
    )

    computed = {name for found in conversation.occurrences for name in SCRIPT["features_of"](found, 1)}

    assert computed == set(FEATURES)


def test_a_string_that_the_agent_used_is_needed_more_than_one_that_a_tool_listed() -> None:
    found = needs(
        user("Find it."),
        call("grep", pattern="load_index"),
        result("grep", "load_index and save_index"),
        {"role": "assistant", "content": "One moment."},
    )

    assert found["load_index"] > found["save_index"]


def test_a_string_in_a_long_list_is_needed_less_than_one_among_few() -> None:
    listing = " ".join(f"name_{at}" for at in range(60))
    found = needs(user("Look."), result("a", f"{listing} in_list"), result("b", "in_line and on_line"), user("Go on."))

    assert found["in_line"] > found["in_list"]


def test_a_string_beside_one_that_the_agent_wrote_is_needed_more() -> None:
    beside, apart = "open_file close_file", "read_row write_row"
    found = needs(call("run", it="open_file"), result("run", beside), result("run", apart), user("Go on."))

    assert found["close_file"] > found["read_row"]


def test_the_newest_words_of_user_and_agent_raise_the_need_of_their_strings() -> None:
    asked = needs(user("Use old_name."), result("a", "x"), user("Use new_name."), result("a", "y"))
    said = needs(
        {"role": "assistant", "content": "It is old_name."}, {"role": "assistant", "content": "It is new_name."}
    )

    for found in (asked, said):
        assert found["new_name"] / (1 - found["new_name"]) > 1.5 * found["old_name"] / (1 - found["old_name"])


def test_a_mere_key_is_needed_less_than_a_value_however_often_it_comes() -> None:
    answers = [result("a", json.dumps({"flight_number": f"HAT{at:03}"})) for at in range(8)]
    found = needs(user("Find a flight."), *answers, user("Thanks."))

    assert found["HAT007"] > found["flight_number"]


def rows(family: str, cut: str, *strings: tuple[dict[str, float], bool]) -> list[Any]:
    return [
        Row(family, f"{family}_{cut}", {"intercept": 1.0, **features}, is_needed, 1, 2.0)
        for features, is_needed in strings
    ]


CALLED, CHANGED, PLAIN = {"in call": 1.0}, {"in change": 1.0}, dict[str, float]()
MADE = [
    *rows("one", "a@1", *[(CALLED, True)] * 300, *[(CALLED, False)] * 100, *[(PLAIN, True), (PLAIN, False)] * 200),
    *rows("two", "a@1", *[(CHANGED, False)] * 300, *[(CHANGED, True)] * 100, *[(PLAIN, True), (PLAIN, False)] * 200),
]


def test_a_feature_of_what_is_written_again_gets_a_weight_above_zero_and_another_one_below() -> None:
    table = SCRIPT["learned"](MADE)

    # Three of four are written again, among others of which half are; few rows pull the weight towards zero.
    assert 0.4 < table["in call"] < math.log(3)
    assert -math.log(3) < table["in change"] < -0.4
    assert table["url"] == 0.0  # no row has it


def test_a_session_in_which_all_is_written_again_changes_no_weight_of_a_feature() -> None:
    table = SCRIPT["learned"](MADE)
    more = SCRIPT["learned"]([*MADE, *rows("two", "b@2", *[(CHANGED, True)] * 400)])

    assert more["in call"] == pytest.approx(table["in call"], abs=0.1)
    assert more["in change"] < -0.5


def test_a_system_of_equations_is_solved() -> None:
    found = SCRIPT["solved"]([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], [6.0, 10.0, 8.0])

    assert found == pytest.approx([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda row: row.is_needed, (1.0, 1.0)),
        (lambda row: not row.is_needed, (0.0, 0.0)),
        (lambda _row: 1, (0.5, 1.0)),
    ],
)
def test_the_figures_of_an_order_are_known_for_the_best_the_worst_and_none(
    value: Callable[[Any], float], expected: tuple[float, float]
) -> None:
    made = rows("one", "a@1", *[(CALLED, True)] * 3, *[(PLAIN, False)] * 5)

    assert tuple(SCRIPT["figures"](made, value)) == expected


def test_sessions_are_cut_and_their_strings_judged_by_what_the_agent_writes_later(tmp_path: Path) -> None:
    turns: Sequence[dict[str, Any]] = [
        message
        for at in range(5)
        for message in (
            user(f"Do step {at}."),
            call("run", it="used_often" if at else "used_once"),
            result("run", f"seen_only_{at} used_often"),
        )
    ]
    (tmp_path / "made_1.jsonl").write_text("\n".join(map(json.dumps, turns)), "utf-8")

    found = list(SCRIPT["rows_of"](tmp_path, {}))

    assert {row.family for row in found} == {"made"}
    assert len({row.cut for row in found}) > 1
    for cut in {row.cut for row in found}:
        needed = [row.is_needed for row in found if row.cut == cut]
        assert sum(needed) == 1  # used_often
        assert len(needed) > 2


def test_each_weight_of_a_fact_is_used() -> None:
    folder = SCRIPT["TABLE"].parent
    source = "\n".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py")))

    assert set(re.findall(r'FACTS\["([^"]+)"\]', source)) == set(FACTS)
