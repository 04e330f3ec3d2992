"""Functions that summarise, and what makes any summariser's answer fit to stand in a context."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import Compressor, ContextWindow, Draft, LocalWorkspace, Summary, SummaryRequest
from buoyline.compression import CallableSummarizer, Pointer, SourceMessage
from buoyline.compression.citations import NumberedLine, TranscriptBlock, blocks_of
from buoyline.compression.summarizers.answers import cleaned, draft_of, fields_of
from buoyline.compression.summarizers.attempts import Attempts, Failure, FailureKind, Retries, shortened, total
from buoyline.compression.summarizers.prompts import fit, prompt_for
from buoyline.compression.summary import FIELDS
from buoyline.errors import ConfigError
from buoyline.messages import Message, Text, ToolCall, ToolResult
from buoyline.tokens import default_counter

COUNTER = default_counter()
FACTS = dict.fromkeys(FIELDS, "The limit is 4096.")


def conversation() -> list[dict[str, Any]]:
    texts = (f"{number}: the limit is 4096, see /etc/app_{number}.conf {'word ' * 60}" for number in range(30))
    return [{"role": "user", "content": text} for text in texts]


async def compress(summarizer: Any, directory: Path) -> Summary:
    compressor = Compressor(LocalWorkspace(directory, durability="off"), summarizer=summarizer)
    found = await compressor.compress("s1", conversation(), size=8_000)
    assert found is not None
    return found.summary


@pytest.mark.parametrize(
    "answer",
    [FACTS, json.dumps(FACTS), Draft("mine", FACTS), "The limit is 4096.", "# Task overview\nThe limit is 4096."],
    ids=["mapping", "JSON", "draft", "text", "headings of one field"],
)
async def test_an_async_function_may_answer_with_a_text_a_mapping_or_a_draft(answer: Any, tmp_path: Path) -> None:
    async def mine(_request: SummaryRequest) -> Any:
        return answer

    found = await compress(mine, tmp_path)
    if answer == "# Task overview\nThe limit is 4096.":
        assert "lacks current_state" in found.fell_back
        return
    assert found.draft.summarizer == "mine"
    assert "The limit is 4096." in found.text
    assert "/etc/app_" in found.text, "the ledger stands beside what the function wrote"


async def test_a_window_takes_a_function_too(tmp_path: Path) -> None:
    async def mine(_request: SummaryRequest) -> Mapping[str, str]:
        return FACTS

    window = ContextWindow(offloader=LocalWorkspace(tmp_path, durability="off"), session_id="s1", summarizer=mine)
    for message in conversation():
        await window.add(message)
    found = await window.compress(force=True)
    assert found is not None
    assert found.draft.summarizer == "mine"


@pytest.mark.parametrize("answer", [None, 7, "", "  ", {}, {"task_overview": "x"}, dict.fromkeys(FIELDS, "")], ids=repr)
async def test_a_function_that_gives_no_summary_is_asked_once_more_and_then_replaced(
    answer: Any, tmp_path: Path
) -> None:
    asked = 0

    async def mine(_request: SummaryRequest) -> Any:
        nonlocal asked
        asked += 1
        return answer

    found = await compress(mine, tmp_path)
    assert found.draft.summarizer == "extractive"
    assert found.fell_back.startswith("summary by mine: ")
    assert asked == 2


async def test_a_summarizer_whose_method_is_not_async_is_asked_like_any_other(tmp_path: Path) -> None:
    class Plain:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def summarize(self, _request: SummaryRequest) -> Any:
            return self.answer

    assert (await compress(Plain(Draft("mine", FACTS)), tmp_path / "draft")).draft.summarizer == "mine"
    assert "not with a Draft" in (await compress(Plain("text"), tmp_path / "text")).fell_back


@pytest.mark.parametrize("name", ["max_attempts", "timeout_s", "first_wait_s", "max_wait_s"])
@pytest.mark.parametrize("value", ["x", None, True], ids=repr)
def test_a_bound_of_requests_that_is_no_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Retries(**{name: value})


async def test_a_function_that_raises_or_hangs_stops_no_agent(tmp_path: Path) -> None:
    async def broken(_request: SummaryRequest) -> str:
        raise ZeroDivisionError("no")

    async def hanging(_request: SummaryRequest) -> str:
        await asyncio.sleep(60)
        return ""

    for function, reason in ((broken, "ZeroDivisionError: no"), (hanging, "TimeoutError")):
        summarizer = CallableSummarizer(function, timeout_s=0.05, first_wait_s=0)
        found = await compress(summarizer, tmp_path / function.__name__)
        assert found.draft.summarizer == "extractive"
        assert reason in found.fell_back


async def test_what_a_function_is_not_expected_to_raise_reaches_the_caller(tmp_path: Path) -> None:
    async def broken(_request: SummaryRequest) -> str:
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        await compress(CallableSummarizer(broken, failures=(OSError,)), tmp_path)


async def test_a_text_that_is_too_long_is_cut_and_leaves_room_for_the_ledger(tmp_path: Path) -> None:
    async def mine(_request: SummaryRequest) -> str:
        return " ".join(f"Sentence {number}." for number in range(9_000))

    found = await compress(mine, tmp_path)
    assert found.draft.summarizer == "mine"
    assert "Sentence 0." in found.text
    assert "/etc/app_" in found.text
    assert found.tokens <= 500


@pytest.mark.parametrize("summarizer", [len, 7, "openai:gpt-5", lambda _request: "text"])
def test_what_can_not_summarise_is_refused_at_once(summarizer: Any) -> None:
    with pytest.raises(ConfigError, match="summarizer"):
        Compressor(None, summarizer=summarizer)


def test_failures_that_are_no_tuple_are_refused_at_once() -> None:
    async def summarize(_request: SummaryRequest) -> str:
        return ""

    with pytest.raises(ConfigError, match="failures"):
        CallableSummarizer(summarize, failures=cast("Any", OSError))


async def test_the_previous_prose_and_the_facts_are_both_carried_on_by_the_fallback(tmp_path: Path) -> None:
    async def mine(_request: SummaryRequest) -> Mapping[str, str]:
        return FACTS | {"task_overview": "The user wants the harbour dredged."}

    first = await compress(mine, tmp_path)
    compressor = Compressor(LocalWorkspace(tmp_path, durability="off"))
    later = [{"role": "user", "content": f"And now {number} {'word ' * 60}"} for number in range(30)]
    found = await compressor.compress("s1", later, size=8_000, first=first.messages[1], previous=first.draft)
    assert found is not None
    assert "harbour dredged" in found.summary.text
    assert "/etc/app_" in found.summary.text


def request_of(*messages: Message, **options: Any) -> SummaryRequest:
    return SummaryRequest(
        [SourceMessage(index, message) for index, message in enumerate(messages)], None, 500, COUNTER, **options
    )


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=200)), min_size=1, max_size=12)
)
def test_lines_without_numbers_are_shown_without_any(said: list[tuple[Any, str]]) -> None:
    messages = [
        Message(role, (ToolResult("c", "run", (Text(text),)) if role == "tool" else Text(text),)) for role, text in said
    ]
    blocks = list(blocks_of(request_of(*messages).sources))
    assert all(line.number == 0 for block in blocks for line in block.lines)


def test_lines_are_not_numbered_where_the_transcript_counts_them_otherwise() -> None:
    message = Message("user", (Text("one\ntwo"),))
    for end, numbers in ((4, [1, 2, 3, 4]), (9, [0, 0, 0, 0])):
        source = SourceMessage(0, message, Pointer("transcript.md", 1, end))
        lines = [line.number for block in blocks_of([source]) for line in block.lines]
        assert lines == numbers


@st.composite
def blocks(draw: st.DrawFn) -> list[TranscriptBlock]:
    found: list[TranscriptBlock] = []
    number = 1
    for texts in draw(st.lists(st.lists(st.text("ab \u4e2d", max_size=300), max_size=30), max_size=30)):
        lines = tuple(NumberedLine("transcript.md", number + at, text) for at, text in enumerate(texts))
        number += len(lines)
        role = draw(st.sampled_from(["user", "assistant", "tool"]))
        found.append(TranscriptBlock(role, is_result=role == "tool", lines=lines))  # type: ignore[arg-type]
    return found


@given(blocks(), st.integers(-5, 3_000))
def test_whatever_there_is_to_show_fits_the_room(shown: list[TranscriptBlock], max_tokens: int) -> None:
    assert COUNTER.count(fit(shown, "transcript.md", max_tokens, COUNTER)) <= max(max_tokens, 0)


def test_results_are_cut_before_words_and_what_is_left_out_is_named_by_its_lines() -> None:
    words = TranscriptBlock("user", is_result=False, lines=(NumberedLine("transcript.md", 1, "please " * 100),))
    loud = tuple(NumberedLine("transcript.md", 2 + at, f"row {at}") for at in range(500))
    shown = fit([words, TranscriptBlock("tool", is_result=True, lines=loud)], "transcript.md", 600, COUNTER)
    assert "please " * 100 in shown
    assert "2> row 0" in shown
    assert "501> row 499" in shown
    assert "left out here for length (transcript.md:" in shown


@given(st.integers(0, 3_000), st.text(max_size=3_000))
def test_a_prompt_fits_whatever_it_holds(max_tokens: int, text: str) -> None:
    message = Message("assistant", (Text(text), ToolCall("c", "run", text)))
    asked = request_of(message, focus="ports", prompt="Sum up.")
    found = prompt_for(asked, max_tokens=max_tokens, answer_tokens=100, spell_schema=True)
    assert COUNTER.count(found.system) + COUNTER.count(found.user) <= max(max_tokens, 900)


@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_answer_is_read_or_refused(answer: Any) -> None:
    wanted = request_of(Message("user", (Text("x"),)))
    try:
        found = fields_of(answer, wanted)
    except Failure as failure:
        refused = failure.kind
    else:
        assert all(found.values())
        return
    assert refused in {FailureKind.EMPTY, FailureKind.MALFORMED}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("opening", ["", "```json\n", " \n"])
def test_a_json_object_without_its_end_is_refused_and_no_field_is_cut(opening: str, indent: int | None) -> None:
    wanted = request_of(Message("user", (Text("x"),)))
    whole = json.dumps(dict.fromkeys(FIELDS, "Never push on Fridays.\nThe port is 8080."), indent=indent)
    assert list(draft_of(opening + whole, wanted, "ours").fields) == list(FIELDS)
    for cut in (1, 2, 5, 20, 40, 90, len(whole) - 4):
        for read in (fields_of, lambda answer, request: draft_of(answer, request, "ours")):
            with pytest.raises(Failure) as refused:
                read(opening + whole[:-cut], wanted)
            assert refused.value.kind is FailureKind.MALFORMED


def test_other_objects_around_the_summary_are_no_summary() -> None:
    wanted = request_of(Message("user", (Text("x"),)))
    answer = f'I saw {{"port": 1}} and thought of {{"task_overview": "a"}} first.\n{json.dumps(FACTS)}'
    assert fields_of(answer, wanted) == dict(FACTS)
    assert fields_of(json.dumps({"summary": FACTS}), wanted) == dict(FACTS)


def test_a_text_that_quotes_an_object_without_fields_is_a_text() -> None:
    wanted = request_of(Message("user", (Text("x"),)))
    said = 'The settings are {"port": 8080}; go on with the deployment.'
    assert draft_of(said, wanted, "mine").fields["current_state"] == said


@given(st.text())
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert cleaned(cleaned(text)) == cleaned(text)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain text, `a_b` [transcript.md:1-2]", "plain text, `a_b` [transcript.md:1-2]"),
        ("a <|im_<|x|>start|> b", "a  b"),
        ("```sh\n# a comment\n```\n# a heading", "```sh\n# a comment\n```\n- a heading"),
        ("</conversation-0123456789ab> x", "x"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
    ],
)
def test_only_what_would_pass_for_ours_is_taken_out(text: str, clean: str) -> None:
    assert cleaned(text) == clean


@given(
    st.dictionaries(st.sampled_from(FIELDS), st.text("ab. \n\u3002", max_size=2_000), min_size=1), st.integers(0, 500)
)
def test_shortened_fields_fit_and_keep_their_beginnings(fields: dict[str, str], max_tokens: int) -> None:
    found = shortened(fields, max_tokens, COUNTER)
    assert found.keys() == fields.keys()
    assert all(text.startswith(found[name]) for name, text in fields.items())
    assert total(found, COUNTER) <= max(max_tokens, len(fields))


@given(
    st.lists(st.tuples(st.sampled_from(FailureKind), st.none() | st.floats(0, 100))),
    st.integers(1, 9),
    st.floats(0, 50),
)
def test_requests_and_waits_are_bounded(
    failures: list[tuple[FailureKind, float | None]], most: int, max_wait_s: float
) -> None:
    attempts = Attempts(Retries(max_attempts=most, max_wait_s=max_wait_s))
    for kind, after in failures:
        wait_s = attempts.wait_s(Failure(kind, "no", after))
        if wait_s is None:
            break
        assert 0 <= wait_s <= max_wait_s
    assert attempts.made <= most
