"""A window follows a list that somebody else owns: a framework changes it as it likes, and nothing is lost."""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from estimates import Estimates
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import MessageError, StaleWindowError, StorageError
from buoyline.maintenance.verify import verify
from buoyline.offloader import Offloader
from buoyline.window import Event, Followed, HistoryForked


def key(message: Any) -> str:
    return str(message.get("id", ""))


LARGE = "a row of many\n" * 2_000


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calling(call_id: str) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def talk(start: int, end: int, words: int = 3) -> list[dict[str, Any]]:
    """Return turns that nobody takes for each other."""
    return [
        message
        for number in range(start, end)
        for message in (user(f"question {number} " + "why " * words), answer(f"answer {number} " + "so " * words))
    ]


def window_of(offloader: Offloader, size: int = 100_000, session_id: str = "s1", **options: Any) -> ContextWindow:
    return ContextWindow(
        session_id=session_id, offloader=offloader, size=size, counter=Estimates(), dialect="openai", **options
    )


async def resumed(workspace: Offloader, **options: Any) -> ContextWindow:
    return await ContextWindow.resume(workspace, "s1", counter=Estimates(), **options)


def is_same(given: list[Any], others: list[Any]) -> bool:
    return len(given) == len(others) and all(one is other for one, other in zip(given, others, strict=True))


def archived(workdir: Path) -> list[Any]:
    path = workdir / "sessions/s1/context.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


async def test_a_list_that_grows_is_handed_out_as_the_same_objects() -> None:
    window = window_of(MemoryWorkspace())
    held = talk(0, 3)
    assert await window.follow(held) == Followed(6)
    assert is_same(await window.prepare(), held)
    held += talk(3, 4)
    assert await window.follow(held) == Followed(2)
    assert await window.follow(held) == Followed(0)
    assert is_same(await window.prepare(), held)


async def test_new_objects_with_the_same_content_are_the_same_messages() -> None:
    """A framework that reads its list from a database makes new objects for each call."""
    window = window_of(MemoryWorkspace())
    held = [*talk(0, 3), calling("c1"), result("c1", "fine")]
    await window.follow(held)
    first = await window.prepare()
    assert await window.follow([*copy.deepcopy(held), user("next")]) == Followed(1)
    assert is_same((await window.prepare())[:-1], first)


def keyed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**message, "id": f"m{number}"} for number, message in enumerate(messages)]


async def test_a_message_with_the_same_key_and_other_text_is_a_changed_one(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window, held = window_of(workspace), keyed(talk(0, 3))
    await window.follow(held, key=key)
    await window.prepare()
    edited = [*held[:2], {**held[2], "content": "What else?"}, *held[3:]]
    assert await window.follow(edited, key=key) == Followed(0, changed=1)
    assert await window.prepare() == edited
    edited[4]["content"] = "Nothing."  # the very object, as a guardrail changes it
    assert await window.follow(edited, key=key) == Followed(0, changed=1)
    assert await window.prepare() == edited
    window = await resumed(workspace)
    assert window.messages == edited

    await window.compress(before=4)
    edited[0] = {**edited[0], "content": "an edit of what is archived"}
    assert await window.follow([*edited, user("next")], key=key) == Followed(1, changed=1)
    assert "an edit of what is archived" not in json.dumps(archived(tmp_path))


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
async def test_any_known_message_may_be_missing(tmp_path: Path, *, by_key: bool, is_resumed: bool) -> None:
    options = {"key": key} if by_key else {}
    workspace = LocalWorkspace(tmp_path)
    window, held = window_of(workspace), keyed(talk(0, 5))
    await window.follow(held, **options)
    await window.prepare()
    for left in ([0, 1, 2, 4, 5, 6, 7, 8, 9], [0, 1, 4, 7, 8, 9], [0, 9]):
        if is_resumed:
            window = await resumed(workspace)
        shorter = [held[at] for at in left]
        followed = await window.follow(shorter, **options)
        assert (followed.added, followed.fork) == (0, None)
        assert await window.prepare() == shorter
    assert await window.follow([held[0], held[9], user("next")], **options) == Followed(1)
    assert [message["id"] for message in archived(tmp_path)] == [f"m{number}" for number in range(9)]
    assert verify(workspace).is_sound


async def test_an_edit_stores_the_messages_behind_it_once_and_goes_on_from_there(tmp_path: Path) -> None:
    events: list[Event] = []
    workspace = LocalWorkspace(tmp_path)
    window = window_of(workspace, on_event=events.append)
    held = talk(0, 4)
    await window.follow(held)
    await window.prepare()
    edited = [*held[:4], user("another question"), answer("another answer")]
    followed = await window.follow(edited)
    assert followed == Followed(2, 4, 4, followed.reference)
    assert is_same(await window.prepare(), edited)
    lines = Path(followed.reference).read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == held[4:]
    assert archived(tmp_path) == []
    assert HistoryForked(4, 4, followed.reference) in events
    assert (await resumed(workspace)).messages == edited
    assert not verify(workspace).findings


async def test_an_answer_may_be_regenerated_again_and_again(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = window_of(workspace)
    held, references = [*talk(0, 2), user("a riddle")], set[str]()
    await window.follow(held)
    await window.prepare()
    for number in range(4):
        followed = await window.follow([*held, answer(f"try {number}")])
        references.add(followed.reference)
        assert is_same((await window.prepare())[:-1], held)
    stored = [Path(path).read_text("utf-8") for path in sorted(references - {""})]
    assert sorted(json.loads(text)["content"] for text in stored) == ["try 0", "try 1", "try 2"]
    assert window.added == 6


async def test_a_list_that_goes_back_in_time_loses_its_end() -> None:
    window = window_of(MemoryWorkspace())
    held = talk(0, 4)
    await window.follow(held)
    await window.prepare()
    assert (await window.follow(held[:3])).removed == 5
    assert is_same(await window.prepare(), held[:3])
    assert await window.follow(held) == Followed(5)
    assert is_same(await window.prepare(), held)


async def test_a_list_may_go_back_behind_a_summary(tmp_path: Path) -> None:
    """All that the summary replaced is in the list, so it comes back, and the summary of another future goes."""
    workspace = LocalWorkspace(tmp_path)
    window = window_of(workspace, 3_000)
    held = talk(0, 30, 50)
    await window.follow(held)
    assert len(await window.prepare()) < len(held)
    early = [*held[:4], user("a new path")]
    followed = await window.follow(early)
    assert (followed.added, followed.removed, followed.fork) == (1, 56, 4)
    assert is_same(await window.prepare(), early)
    assert archived(tmp_path) == held
    assert (await resumed(workspace)).messages == early
    assert not verify(workspace).findings


async def test_a_change_behind_a_summary_keeps_the_summary(tmp_path: Path) -> None:
    window = window_of(LocalWorkspace(tmp_path), 3_000)
    held = talk(0, 30, 50)
    await window.follow(held)
    before = await window.prepare()
    edited = [*held[:-1], answer("another answer")]
    await window.follow(edited)
    after = await window.prepare()
    assert is_same(after[:-1], before[:-1])
    assert after[-1] is edited[-1]
    assert archived(tmp_path) == held[: len(archived(tmp_path))]


async def test_a_list_may_hold_what_was_handed_out() -> None:
    window = window_of(MemoryWorkspace(), 3_000)
    held = talk(0, 30, 50)
    await window.follow(held)
    held = await window.prepare()
    assert await window.follow([*held, *talk(30, 31)]) == Followed(2)
    held = await window.prepare()
    assert await window.follow(copy.deepcopy(held)) == Followed(0)
    assert await window.prepare() == held


async def test_a_stub_stays_in_the_place_of_a_large_result_of_the_list() -> None:
    window = window_of(MemoryWorkspace(), config=ContextConfig(tool_result_limit=500, preview_tokens=100))
    held = [user("look"), calling("c1"), result("c1", LARGE)]
    await window.follow(held)
    shown = await window.prepare()
    assert "[Tool result offloaded: " in shown[-1]["content"]
    held.append(answer("seen"))
    assert await window.follow(held) == Followed(1)
    assert is_same((await window.prepare())[:-1], shown)


async def test_a_list_that_lost_its_oldest_messages_has_them_archived(tmp_path: Path) -> None:
    """As a framework does that trims its list, and keeps the system message."""
    window = window_of(LocalWorkspace(tmp_path))
    held = [{"role": "system", "content": "Be kind."}, *talk(0, 5)]
    await window.follow(held)
    await window.prepare()
    trimmed = [held[0], *held[5:], *talk(5, 6)]
    assert await window.follow(trimmed) == Followed(2, 4)
    assert is_same(await window.prepare(), trimmed)
    assert archived(tmp_path) == held[:5]
    trimmed = trimmed[3:]
    assert await window.follow(trimmed) == Followed(0, 3)
    assert is_same(await window.prepare(), trimmed)
    assert archived(tmp_path) == held[:7]


async def test_archived_messages_may_be_dropped_from_the_list() -> None:
    window = window_of(MemoryWorkspace(), 3_000)
    held = talk(0, 30, 50)
    await window.follow(held)
    before = await window.prepare()
    assert await window.follow(held[6:]) == Followed(0, 6)
    assert is_same(await window.prepare(), before)


async def test_the_owner_may_remove_the_summary() -> None:
    window = window_of(MemoryWorkspace(), 3_000)
    await window.follow(talk(0, 30, 50))
    shown = await window.prepare()
    await window.follow(shown)
    assert (await window.follow(shown[1:])).fork is None
    assert is_same(await window.prepare(), shown[1:])


async def test_a_hand_off_to_a_sub_agent_and_back_keeps_every_message(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = window_of(workspace)
    main, other = talk(0, 3), [user("You get one task."), answer("Done.")]
    await window.follow(main)
    await window.prepare()
    assert (await window.follow(other)).fork == 0
    assert is_same(await window.prepare(), other)
    assert (await window.follow([*main, *other])).removed == 2
    assert is_same(await window.prepare(), [*main, *other])
    assert archived(tmp_path) == [*main, *other]
    assert not verify(workspace).findings


async def test_equal_messages_are_told_apart_by_their_places() -> None:
    window = window_of(MemoryWorkspace())
    yes = [user("yes"), answer("ok")]
    held = [*copy.deepcopy(yes), *copy.deepcopy(yes), *copy.deepcopy(yes)]
    await window.follow(held)
    assert is_same(await window.prepare(), held)
    assert (await window.follow(held[:4])).removed == 2
    assert (await window.follow([*held[:4], user("no")])).added == 1
    assert [one["content"] for one in await window.prepare()] == ["yes", "ok", "yes", "ok", "no"]


async def test_equal_messages_at_both_ends_of_a_list_do_not_hide_what_is_between() -> None:
    workspace = MemoryWorkspace()
    window = window_of(workspace, 3_000)
    await window.follow(talk(0, 30, 60))
    await window.prepare()
    held = [*await window.prepare(), user("yes"), answer("ok"), user("yes")]
    await window.follow(held)
    await window.compress(before=window.added - 3)
    held = await window.prepare()
    assert [message["content"] for message in held[1:]] == ["yes", "ok", "yes"]
    again = await resumed(workspace)
    assert await again.follow(copy.deepcopy(held)) == Followed(0)
    edited = [*held[:2], answer("why?"), user("yes")]
    assert (await again.follow(edited)).fork == 61
    assert await again.prepare() == edited


@pytest.mark.parametrize("size", [3_000, 100_000])
async def test_another_process_follows_the_same_list(size: int, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    config = ContextConfig(tool_result_limit=500, preview_tokens=100)
    window = window_of(workspace, size, config=config)
    held = [*talk(0, 20, 20), calling("c1"), result("c1", LARGE), answer("seen"), *talk(20, 22, 20)]
    await window.follow(held)
    before = await window.prepare()
    again = await resumed(workspace)
    assert await again.follow([*copy.deepcopy(held), user("go on")]) == Followed(1)
    assert (await again.prepare())[: len(before)] == before
    third = await resumed(workspace)
    assert await third.follow([*before, user("go on")]) == Followed(0)
    with pytest.raises(StaleWindowError):
        await again.follow(held[:3])


async def test_another_process_follows_a_list_with_words_that_are_redacted_on_disk(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=lambda text: text.replace("secret", "******"))
    window = window_of(workspace)
    held = [user("the secret is out"), *talk(0, 2)]
    await window.follow(held)
    await window.prepare()
    again = await resumed(workspace)
    assert await again.follow([*held, user("next")]) == Followed(1)


async def test_messages_that_are_added_one_by_one_belong_to_the_list() -> None:
    window = window_of(MemoryWorkspace())
    held = [user("look"), calling("c1")]
    await window.follow(held)
    await window.prepare()
    held.append(result("c1", "fine"))
    await window.add(held[-1])
    assert await window.follow([*held, answer("good")]) == Followed(1)
    assert len(await window.prepare()) == 4


async def test_messages_that_were_added_one_by_one_and_compacted_since_belong_to_the_list() -> None:
    window, held = window_of(MemoryWorkspace(), 2_000), talk(0, 2, 20)
    await window.follow(held)
    await window.prepare()
    for message in talk(2, 40, 20):
        held.append(message)
        await window.add(message)
    await window.prepare()
    assert window._context.state.messages.first > 4
    assert await window.follow([*held, user("next")]) == Followed(1)
    assert window.added == len(held) + 1


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_result_that_was_added_and_offloaded_since_belongs_to_the_list(*, is_streamed: bool) -> None:
    window, held = window_of(MemoryWorkspace()), [user("look"), calling("c1")]
    await window.follow(held)
    await window.prepare()
    held.append(result("c1", LARGE * 50))
    if is_streamed:
        await window.add_tool_output("c1", [LARGE] * 50)
    else:
        await window.add(held[-1])
    before = await window.prepare()
    assert "offloaded" in before[-1]["content"]
    assert await window.follow([*held, answer("good")]) == Followed(1)
    assert (await window.prepare())[:3] == before


async def with_late_result(workspace: Offloader, **options: Any) -> tuple[ContextWindow, list[Any]]:
    """Return a window and the list that it returned, which ends in a result whose call is archived."""
    window = window_of(workspace, 3_000, **options)
    held = [user("look"), calling("c1"), *talk(0, 30, 60)]
    await window.follow(held)
    held = [*await window.prepare(), result("c1", "it was late")]
    assert await window.follow(held) == Followed(1)
    held = await window.prepare()
    assert held[-1]["content"].startswith("[Result of the call 'c1'")
    return window, held


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_a_list_with_the_words_of_a_late_result_is_followed_after_a_compaction(*, is_resumed: bool) -> None:
    workspace = MemoryWorkspace()
    window, held = await with_late_result(workspace)
    held += talk(30, 60, 60)
    assert await window.follow(held) == Followed(60)
    await window.prepare()  # compacts, and the owner does not take it over
    if is_resumed:
        window = await resumed(workspace)
    assert await window.follow([*held, user("next")]) == Followed(1)


async def test_the_words_of_a_late_result_that_share_a_message_with_the_summary_belong_to_the_list() -> None:
    def said(message: dict[str, Any]) -> dict[str, Any]:
        return {"role": message["role"], "content": [{"text": message["content"]}]}

    window = ContextWindow(session_id="s1", offloader=MemoryWorkspace(), size=4_000, dialect="bedrock")
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "look", "input": {}}}]}
    late = {"toolResult": {"toolUseId": "c1", "content": [{"text": "it was late"}], "status": "success"}}
    await window.follow([said(user("look")), call, *map(said, talk(0, 30, 60))])
    held = [*await window.prepare(), {"role": "user", "content": [late]}]
    await window.follow(held)
    held = [*await window.prepare(), said(answer("I see."))]
    await window.follow(held)
    await window.compress(before=window.added - 2)
    held = await window.prepare()
    assert len(held) == 2
    assert await window.follow(held) == Followed(0)


@pytest.mark.parametrize("by_key", [False, True])
async def test_another_process_follows_a_list_that_was_saved_before_the_newest_compaction(*, by_key: bool) -> None:
    workspace, options = MemoryWorkspace(), {"key": key} if by_key else {}
    window = window_of(workspace, 3_000)
    numbered = [{**message, "id": f"m{number}"} for number, message in enumerate(talk(0, 60, 60))]
    await window.follow(numbered[:60], **options)
    held = [*await window.prepare(), *numbered[60:]]
    saved, first = copy.deepcopy(held), window._context.state.messages.first
    assert await window.follow(held, **options) == Followed(60)
    await window.prepare()
    assert window._context.state.messages.first > first > 0
    # The process is killed before the owner has saved what was returned.
    again = await resumed(workspace)
    assert await again.follow(saved, **options) == Followed(0)
    assert again.added == 120
    shown, third = await again.prepare(), await resumed(workspace)
    edited = [*saved[:-1], {**answer("another answer"), "id": "m120"}]
    assert (await third.follow(edited, **options)).fork == 119
    assert await third.prepare() == [*shown[:-1], edited[-1]]


async def test_pins_outlast_a_return_behind_the_archive() -> None:
    window = window_of(MemoryWorkspace(), 3_000)
    rule = user("Never push to main.")
    await window.add(rule, pinned=True)
    held = [rule, *talk(0, 30, 50)]
    await window.follow(held)
    await window.prepare()
    await window.follow(held[:3])
    assert is_same(await window.prepare(), held[:3])
    await window.follow([*held[:3], *talk(50, 80, 20)])
    assert rule in await window.prepare()


class Refusing(MemoryWorkspace):
    """Does not write windows while it refuses."""

    refuses = False

    async def replace_window(self, *args: Any, **options: Any) -> None:
        if self.refuses:
            raise StorageError("window.jsonl", "no space left on device")
        await super().replace_window(*args, **options)


@pytest.mark.parametrize("size", [3_000, 100_000])
async def test_a_fork_that_cannot_be_written_is_made_by_the_next_call(size: int) -> None:
    workspace, events = Refusing(), list[Event]()
    window = window_of(workspace, size, on_event=events.append)
    held = talk(0, 30, 50)
    await window.follow(held)
    before = await window.prepare()
    workspace.refuses = True
    edited = [*held[:10], user("a new path")]
    for _ in range(2):
        with pytest.raises(StorageError):
            await window.follow(edited)
    assert window.messages == before
    workspace.refuses = False
    assert (await window.follow(edited)).fork == 10
    assert is_same(await window.prepare(), edited)
    assert [event.message for event in events if isinstance(event, HistoryForked)] == [10]


async def test_a_list_that_cannot_be_read_is_followed_up_to_there() -> None:
    window = window_of(MemoryWorkspace())
    held = talk(0, 2)
    with pytest.raises(MessageError):
        await window.follow([*held, {"role": "nobody"}])
    assert await window.follow([*held, user("better")]) == Followed(1)
    assert len(await window.prepare()) == 5


async def test_a_fork_before_anything_was_handed_out_writes_nothing() -> None:
    window = window_of(MemoryWorkspace())
    await window.follow(talk(0, 2))
    assert (await window.follow(talk(1, 2))).reference == ""
    assert (await window.follow([*talk(1, 2), *talk(7, 8)])).added == 2
    assert await window.prepare() == [*talk(1, 2), *talk(7, 8)]


@pytest.mark.parametrize("is_archived", [False, True])
async def test_a_fork_stores_the_messages_that_were_not_handed_out_yet_too(
    tmp_path: Path, *, is_archived: bool
) -> None:
    window, held = window_of(LocalWorkspace(tmp_path)), talk(0, 3)
    await window.follow(held[:3])
    await window.prepare()
    if is_archived:
        await window.compress(before=2)
    await window.follow(held)  # a prepare that failed, such as for want of space, leaves it at that
    followed = await window.follow([held[0], user("something else")])
    assert followed.removed == 5
    await window.prepare()
    stored = "".join(path.read_text("utf-8") for path in tmp_path.glob("sessions/s1/*.*") if path.is_file())
    assert [message["content"] for message in held if message["content"] not in stored] == []


async def test_a_fork_among_messages_that_were_not_handed_out_yet_stores_them(tmp_path: Path) -> None:
    window, held = window_of(LocalWorkspace(tmp_path)), talk(0, 3)
    await window.follow(held[:2])
    await window.prepare()
    await window.follow(held)
    edited = [*held[:4], user("something else")]
    followed = await window.follow(edited)
    assert followed == Followed(1, 2, 4, followed.reference)
    lines = Path(followed.reference).read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == held[4:]
    assert is_same(await window.prepare(), edited)


async def test_without_an_offloader_a_fork_warns_of_the_loss() -> None:
    window = ContextWindow(session_id="s1")
    await window.follow(talk(0, 2))
    await window.prepare()
    with pytest.warns(UserWarning, match="no offloader"):
        assert (await window.follow(talk(0, 1))).reference == ""


changes = st.lists(
    st.tuples(st.sampled_from(["grow", "edit", "back", "trim", "copy", "resume", "hold"]), st.integers(0, 30)),
    max_size=12,
)


async def _play(workspace: Offloader, steps: list[tuple[str, int]], size: int) -> None:
    """Change a list as a framework might; the window hands out what it holds."""
    window, held, said = window_of(workspace, size), talk(0, 1), 1
    everything = [copy.deepcopy(message) for message in held]
    for change, number in steps:
        at = number % (len(held) + 1)
        match change:
            case "grow":
                held = [*held, *talk(said, said + number % 4 + 1, 20)]
            case "edit":
                held = [*held[:at], user(f"edited {said}"), *held[at + 1 :]]
            case "back":
                held = held[:at]
            case "trim":
                held = held[at:]
            case "copy":
                held = copy.deepcopy(held)
            case "resume":
                window = await resumed(workspace)
            case _:
                held = await window.prepare()
        said += 5
        everything += [copy.deepcopy(message) for message in held if message not in everything]
        followed = await window.follow(held)
        assert 0 <= followed.added <= len(held)
        shown = await window.prepare()
        assert await window.follow(held) == Followed(0)
        if window.size >= 100_000:
            assert shown == held
        else:
            assert window.tokens <= window.size
            assert held == [] or shown[-1] == held[-1]


@given(changes)
async def test_whatever_becomes_of_a_list_the_window_hands_it_out(steps: list[tuple[str, int]]) -> None:
    await _play(MemoryWorkspace(), [("grow", 0), *steps], 100_000)


@given(changes)
async def test_whatever_becomes_of_a_long_list_its_newest_message_is_handed_out(steps: list[tuple[str, int]]) -> None:
    await _play(MemoryWorkspace(), [("grow", 3), *steps], 1_500)


@given(changes)
@settings(max_examples=15)
async def test_no_message_that_was_handed_out_is_lost(steps: list[tuple[str, int]]) -> None:
    """Each is in the archive, in a file of its session, or in the window."""
    with tempfile.TemporaryDirectory() as directory:
        workspace = LocalWorkspace(directory, durability="off")
        window, held, said, seen = window_of(workspace), talk(0, 2), 2, set[str]()
        for change, number in [("grow", 0), *steps]:
            at = number % (len(held) + 1)
            match change:
                case "edit" | "copy" | "resume":
                    held = [*held[:at], user(f"edited {said}")]
                case "trim":
                    held = held[at:]
                case "back":
                    held = held[:at]
                case _:
                    held = [*held, *talk(said, said + 2)]
            said += 5
            await window.follow(held)
            assert await window.prepare() == held
            seen.update(message["content"] for message in held)
        files = "".join(path.read_text("utf-8") for path in Path(directory).rglob("*") if path.is_file())
        assert [text for text in seen if text not in files] == []
        assert not verify(workspace).findings
