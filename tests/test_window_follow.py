"""A window follows a list that somebody else owns: what is shown is the list, and the log only grows."""

import json
import random
import re
from typing import Any

import pytest
from window_lives import KilledError, Mortality, calling, check_valid, result, said, user

from buoyline import ContextConfig
from buoyline.errors import CorruptError
from buoyline.window import ContextWindow, Event, Followed, HistoryForked
from buoyline.workspace.memory import MemoryDisk
from buoyline.workspace.workspace import MemoryWorkspace

CONFIG = ContextConfig(tool_result_limit=300)


class Life:
    """A framework's list, and a window that follows it; messages have hidden names that `follow` cannot see."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)  # noqa: S311 - no secret is drawn
        self.workspace = MemoryWorkspace()
        self.listed: list[dict[str, Any]] = []
        self.key = (lambda message: message.get("id", "")) if self.r.random() < 0.5 else None
        self.count = 0
        self.ours: list[Any] = []
        self.size = self.r.choice([900, 2_000, 100_000])

    async def open(self) -> ContextWindow:
        self.window = await ContextWindow.open(self.workspace, "s1", size=self.size, config=CONFIG)
        return self.window

    def made(self) -> dict[str, Any]:
        self.count += 1
        text = "ok" if self.r.random() < 0.2 else f"m{self.count} " + "word " * self.r.randint(0, 40)
        return self.r.choice([user, said])(text, id=f"i{self.count}")

    def change(self) -> None:
        """Do to the list what frameworks and their users do."""
        r, listed = self.r, self.listed
        kind = r.random()
        if kind < 0.4 or not listed:
            self.listed = [*listed, *(self.made() for _ in range(r.randint(1, 4)))]
        elif kind < 0.5:
            self.count += 1
            call = f"c{self.count}"
            self.listed = [*listed, calling(call), result(call, f"found {self.count}\n" * r.choice([1, 400]))]
        elif kind < 0.58:
            self.listed = listed[: r.randint(0, len(listed))]
        elif kind < 0.65:
            self.listed = listed[r.randint(0, len(listed)) :]
        elif kind < 0.72:
            at = r.randrange(len(listed))
            self.listed = [*listed[:at], self.made(), *listed[at + 1 :]]
        elif kind < 0.78:
            at = r.randrange(len(listed))
            self.listed = [*listed[:at], *listed[at + 1 :]]
        elif kind < 0.9:
            self.listed = self.window.messages
        else:
            self.listed = [dict(message) for message in listed]

    def check(self) -> None:
        """What is shown is the list: after our summary message for message, in front of it only what is archived."""
        head = self.window._context.head
        natives = [label(head.native)] if head.native is not None else []
        shown = [label(message) for message in self.window.messages]
        assert shown[: len(natives)] == natives
        tail = [one for one in shown[len(natives) :] if one != INTERRUPTED]
        listed = [label(message) for message in self.listed]
        ours = {label(message) for message in self.ours} | {INTERRUPTED}
        theirs = [one for one in listed if one not in ours]
        assert sorted(tail) == sorted(theirs[len(theirs) - len(tail) :]), (tail, theirs)
        assert head.native is not None or len(tail) == len(theirs)
        if natives:
            archived = [label(entry.native) for entry in self.window._records.read(self.window._order[: head.until])]
            for one in theirs[: len(theirs) - len(tail)]:
                assert one in archived
                archived.remove(one)


INTERRUPTED = "interrupted"


def label(message: dict[str, Any]) -> str:
    """Return what a message is, whatever form it is shown in."""
    text = str(message["content"])
    if late := re.match(r"\[Late result of the call '(\w+)'", text):
        return f"result {late[1]}"
    if text.startswith("[interrupted"):
        return INTERRUPTED
    if message["role"] == "tool":
        return f"result {message['tool_call_id']}"
    return text if message["content"] else f"call {message['tool_calls'][0]['id']}"


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_becomes_of_a_list_the_window_shows_it(seed: int) -> None:
    life = Life(seed)
    window = await life.open()
    for _ in range(life.r.randint(3, 14)):
        life.change()
        values = [line.value for line in window._session.read(range(window.added))]
        await window.follow(life.listed, key=life.key)
        life.check()
        forms = window._session.state.forms
        now = [line.value for line in window._session.read(range(len(values)))]
        assert all(old == new or at in forms for at, (old, new) in enumerate(zip(values, now, strict=True)))
        again = await window.follow(life.listed, key=life.key)
        assert (again.added, again.removed, again.changed) == (0, 0, 0)
        if life.r.random() < 0.6:
            await window.prepare()
        if life.r.random() < 0.2:
            await window.compress(force=True)
        if window._context.head.native is not None:
            life.ours.append(window._context.head.native)
        if life.r.random() < 0.2:
            before = window.messages
            window = await life.open()
            assert window.messages == before


@pytest.mark.parametrize("seed", range(60))
async def test_a_process_may_die_before_any_write_and_the_list_goes_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortality, life = Mortality(monkeypatch), Life(seed)
    window = await life.open()
    for _ in range(life.r.randint(3, 14)):
        life.change()
        mortality.left = life.r.choice([None, 0, 1, 2, 3, 5])
        try:
            await window.follow(life.listed, key=life.key)
            await window.prepare()
            if life.r.random() < 0.3:
                await window.compress(force=True)
        except KilledError:
            mortality.left = None
            window = await life.open()
            check_valid(await window.prepare())
        mortality.left = None
        if window._context.head.native is not None:
            life.ours.append(window._context.head.native)
        life.listed = [message for message in life.listed if label(message) != INTERRUPTED]
        await window.follow(life.listed, key=life.key)
        life.check()
        fresh = await life.open()
        assert fresh.messages == window.messages
        assert fresh.tokens == window.tokens
        window = fresh


# What the hunt for holes found, and what frameworks do.


def talk(first: int, end: int, words: int = 40) -> list[dict[str, Any]]:
    makes = (lambda number: user(f"q{number} " + "why " * words), lambda number: said(f"a{number} " + "so " * words))
    return [makes[number % 2](number) for number in range(first, end)]


def by_id(message: dict[str, Any]) -> str:
    return str(message.get("id", ""))


async def opened(workspace: MemoryWorkspace | None = None, **settings: Any) -> ContextWindow:
    return await ContextWindow.open(workspace or MemoryWorkspace(), "s1", size=100_000, **settings)


def bytes_of(workspace: MemoryWorkspace, name: str) -> bytearray:
    assert isinstance(workspace.disk, MemoryDisk)
    return workspace.disk._files[f"sessions/s1/{name}"]


async def test_a_list_that_grows_is_handed_out_as_the_same_objects() -> None:
    window, listed = await opened(), talk(0, 4)
    assert await window.follow(listed) == Followed(4)
    assert all(one is other for one, other in zip(await window.prepare(), listed, strict=True))
    listed += talk(4, 6)
    handed = await window.request([dict(message) for message in listed[:-1]] + listed[-1:])
    assert handed == listed
    assert handed[0] is listed[0]


@pytest.mark.parametrize("is_fresh", [False, True])
async def test_words_that_repeat_what_is_archived_are_not_taken_for_it(*, is_fresh: bool) -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    await window.follow([user("plan?"), *talk(1, 2), user("yes"), *talk(3, 6)])
    await window.compress(before=4)
    listed = [*window.messages, user("yes"), said("deleted")]
    for one in (await opened(workspace) if is_fresh else window,):
        assert (await one.follow(listed)).added == 2
        assert one.messages == listed
        assert await one.follow(one.messages) == Followed(0)
        assert one.messages == listed


@pytest.mark.parametrize("is_fresh", [False, True])
async def test_an_older_list_with_its_own_summary_comes_back(*, is_fresh: bool) -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    listed = talk(0, 12)
    await window.follow(listed)
    await window.compress(before=4)
    old = window.messages
    await window.follow([*listed[:2], *listed[3:]])
    await window.follow([*old, *talk(12, 16)])
    await window.compress(before=10)
    window = await opened(workspace) if is_fresh else window
    added = window.added
    followed = await window.follow(old)
    assert (followed.added, window.added) == (0, added)
    assert window.messages == old
    assert (await opened(workspace)).messages == old


@pytest.mark.parametrize("is_fresh", [False, True])
async def test_a_known_message_with_other_content_is_that_message_changed(*, is_fresh: bool) -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    listed = [{**message, "id": f"m{number}"} for number, message in enumerate(talk(0, 6))]
    await window.follow(listed, key=by_id)
    await window.prepare()
    window = await opened(workspace) if is_fresh else window
    listed[2] = {**listed[2], "content": "What else?"}
    assert await window.follow(listed, key=by_id) == Followed(0, changed=1)
    assert await window.prepare() == listed
    listed[4]["content"] = "Nothing."  # the very object, as a guardrail changes it
    assert (await window.follow(listed, key=by_id)).changed == 1
    assert (await opened(workspace)).messages == window.messages
    await window.compress(before=5)
    files = ("transcript.md", "summaries.jsonl")
    texts = [window._session.disk.read(f"{window._session.name}/{name}").decode() for name in files]
    assert "q2" not in "".join(texts)


async def test_arguments_whose_keys_a_database_has_ordered_are_the_same() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace, dialect="anthropic")
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"b": 1, "a": {"d": 2, "c": 3}}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "fine"}
    listed = [user("go"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
    await window.follow(listed)
    other = await opened(workspace)
    assert await other.follow(json.loads(json.dumps(listed, sort_keys=True))) == Followed(0)


async def test_a_list_with_whole_outputs_and_one_with_stubs_are_known_here_and_in_another_process() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace, config=CONFIG)
    listed = [user("go"), calling("c1"), result("c1", "row\n" * 2_000), said("seen")]
    await window.follow(listed)
    for known in (window.messages, listed):
        assert await window.follow(known) == Followed(0)
        assert await (await opened(workspace)).follow(known) == Followed(0)


async def test_a_list_that_was_lost_takes_all_away_and_says_so() -> None:
    workspace, events = MemoryWorkspace(), list[Event]()
    window = await opened(workspace, on_event=events.append)
    listed = talk(0, 8)
    await window.follow(listed)
    await window.compress(before=4)
    assert await window.follow([]) == Followed(0, 8, 0)
    assert events[-1] == HistoryForked(0, 8)
    assert window.messages == []
    assert (await window.follow(listed)).added == 8
    assert len(window._session.read(range(16))) == 16


async def test_a_summary_that_is_damaged_is_a_line_that_names_the_transcript() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    await window.follow(talk(0, 8))
    await window.compress(before=4)
    content = bytes_of(workspace, "summaries.jsonl")
    content[40] ^= 1
    again = await opened(workspace)
    assert again.summary is None
    assert again.messages[0]["content"].startswith("[Messages before number 4 are no longer in the context.")
    assert again.messages[1:] == window.messages[1:]
    assert await again.follow(again.messages) == Followed(0)


async def test_damage_among_archived_messages_keeps_no_window_from_opening() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    for end in (2, 4, 6, 8):
        await window.follow(talk(0, end))
    await window.compress(before=4)
    content = bytes_of(workspace, "context.jsonl")
    content[40] ^= 1
    again = await opened(workspace)
    assert again.messages == window.messages
    assert (await again.follow([*again.messages, user("next")])).added == 1
    content[content.rindex(b"a5 so")] ^= 1
    with pytest.raises(CorruptError):
        await opened(workspace)


async def test_a_result_that_comes_late_belongs_to_the_list_in_both_forms() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    listed = [user("go"), calling("c1"), user("are you there?")]
    await window.request(listed)
    listed.append(result("c1", "the real one"))
    handed = await window.request(listed)
    check_valid(handed)
    for known in (listed, handed):
        assert await window.follow(known) == Followed(0)
        assert await (await opened(workspace)).follow(known) == Followed(0)
    assert window.messages == handed
