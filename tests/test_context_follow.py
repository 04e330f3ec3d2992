"""A window follows a list that somebody else owns: what is shown is the list, and the log only grows."""

import random
import re
from typing import Any

import pytest
from context_lives import KilledError, Mortality, calling, check_valid, result, said, user

from buoyline import ContextConfig
from buoyline.context import ContextWindow
from buoyline.store.workspace import MemoryWorkspace

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
        """What is shown is the list: behind our summary message for message, in front of it only what is archived."""
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
