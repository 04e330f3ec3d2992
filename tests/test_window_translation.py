"""Going on with a session in another dialect: what is handed out is converted, what is kept stays as it was written."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from window_forms import Anthropic, Bedrock, Form, OpenAI, words

from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError
from buoyline.messages import convert, spell
from buoyline.messages.jsonl import parse
from buoyline.messages.registry import dialect_named
from buoyline.window import Followed

SIZE = 3_000
PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/7.png"}}]}


@dataclass(frozen=True)
class Spelled:
    """OpenAI's messages in another dialect."""

    name: str

    def user(self, *contents: str | bytes) -> Any:
        return self._spelled([OpenAI().user(*contents)])[0]

    def calling(self, *call_ids: str, thinking: str = "") -> Any:
        return self._spelled([OpenAI().calling(*call_ids, thinking=thinking)])[0]

    def answering(self, contents: Mapping[str, Sequence[str | bytes]]) -> list[Any]:
        return self._spelled(OpenAI().answering(contents))

    def _spelled(self, messages: list[Any]) -> list[Any]:
        dialect = dialect_named(self.name)
        return [dialect.to_json(message) for message in convert(messages, to=self.name).messages]


FORMS: tuple[Form, ...] = (OpenAI(), Spelled("agentscope"), Spelled("anthropic"), Spelled("bedrock"))
PAIRS = [(one, other) for one in FORMS for other in FORMS if one is not other]
IDS = [f"{one.name}-{other.name}" for one, other in PAIRS]


async def filled(workspace: LocalWorkspace, form: Form, rounds: int = 8) -> list[Any]:
    """Let a session go on until its oldest messages have left; return all of them."""
    window = ContextWindow(session_id="s1", offloader=workspace, size=SIZE, dialect=form.name)
    sent: list[Any] = []
    for n in range(rounds):
        results = form.answering({f"c{n}": [f"berth 47-{n} " + words(200)]})
        for message in (form.user(f"Look at {n}."), form.calling(f"c{n}"), *results):
            await window.add(message)
            sent.append(message)
        await window.prepare()
    assert window._context.whole.messages.first > 0
    return sent


async def kept(workspace: LocalWorkspace) -> list[Any]:
    """Return all messages of the session as they are on disk: those in the archive, then those in the window."""
    state = await workspace.load_window("s1")
    stored = await workspace.load_messages("s1", 0, state.first) if state.first else []
    return [message for _, message in (*stored, *state.messages[len(state.head) :])]


def plain(form: Form, messages: list[Any]) -> list[Any]:
    return [parse(spell(dialect_named(form.name).to_json(message))) for message in messages]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=IDS)
async def test_a_session_goes_on_in_another_dialect_and_all_of_it_is_kept_as_it_was_written(
    tmp_path: Path, one: Form, other: Form
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    before = await filled(workspace, one)
    window = await ContextWindow.resume(workspace, "s1", dialect=other.name)
    handed = await window.prepare()
    dialect = dialect_named(other.name)
    texts = " ".join(dialect.view(message).spoken for message in handed)
    assert window._context.state.summary is not None
    assert window._context.state.summary.summary.text in texts
    assert "berth 47-7" in texts
    assert all(one is again for one, again in zip(handed, await window.prepare(), strict=True))
    later: list[Any] = []
    for n in range(8, 20):
        results = other.answering({f"c{n}": [f"berth 47-{n} " + words(200)]})
        for message in (other.user(f"Look at {n}."), other.calling(f"c{n}"), *results):
            await window.add(message)
            later.append(message)
        for message in await window.prepare():
            dialect.view(message)
    assert (await kept(workspace))[: len(before)] == plain(one, before)
    assert (await kept(workspace))[len(before) :] == plain(other, later)
    assert window.messages[-1] is later[-1]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=IDS)
async def test_a_session_of_two_dialects_goes_on_without_one(tmp_path: Path, one: Form, other: Form) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    before = await filled(workspace, one)
    window = await ContextWindow.resume(workspace, "s1", dialect=other.name)
    after = [other.user("And now?"), other.calling("c9"), *other.answering({"c9": ["berth 48"]})]
    for message in after:
        await window.add(message)
    await window.save()
    again = await ContextWindow.resume(workspace, "s1")
    assert again._context.whole.messages[-1].message.results[0].text == "berth 48"
    assert plain(other, again.messages[-len(after) :]) == plain(other, after)
    assert len(await kept(workspace)) == len(before) + len(after)


async def test_what_has_no_place_is_told_and_stays_on_disk(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    window = ContextWindow(session_id="s1", offloader=workspace, size=SIZE)
    await window.add({"role": "system", "content": "Be brief."})
    await window.add({"role": "user", "name": "ann", "content": "Ahoy"})
    await window.save()
    resumed = await ContextWindow.resume(workspace, "s1", dialect="bedrock")
    assert await resumed.prepare() == [{"role": "user", "content": [{"text": "Ahoy"}]}]
    assert resumed.conversion is not None
    assert resumed.conversion.system == "Be brief."
    assert [str(loss) for loss in resumed.conversion.losses] == [
        "message 1: name of the speaker: bedrock has no place for it"
    ]
    assert (await kept(workspace))[1]["name"] == "ann"


async def test_a_dialect_that_is_none_takes_no_session_over(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    window = ContextWindow(session_id="s1", offloader=workspace)
    await window.add({"role": "user", "content": "Ahoy"})
    await window.save()
    with pytest.raises(ConfigError, match="cobol"):
        await ContextWindow.resume(workspace, "s1", dialect="cobol")
    await window.add({"role": "user", "content": "Still here"})
    await window.save()


async def test_a_summary_never_makes_two_messages_of_one_role_neighbors_for_bedrock(tmp_path: Path) -> None:
    workspace, form = LocalWorkspace(tmp_path, durability="off"), Bedrock()
    window = ContextWindow(session_id="s1", offloader=workspace, size=3_000, dialect=form.name)
    shown: list[Any] = []
    for number in range(40):
        await window.add(form.user(f"{number}: {words(60)}"), pinned=number == 3)
        shown = await window.prepare()
        roles = [message["role"] for message in shown]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        await window.add(said(f"{number}: {words(60)}"), pinned=number == 2)

    assert window._context.state.messages.first > 0
    added = [entry.native for entry in window._context.state.messages]
    assert all(any(message is native for native in added) for message in shown[-4:])
    assert (await window.prepare())[0] is shown[0]
    again = await ContextWindow.resume(workspace, "s1")
    assert (await again.prepare())[: len(shown)] == shown


async def test_a_conversation_of_anthropics_does_not_begin_with_a_pin_of_the_models() -> None:
    form = Anthropic()
    window = ContextWindow(session_id="s1", offloader=MemoryWorkspace(), size=3_000, dialect=form.name)
    pin = {"role": "assistant", "content": "I keep to the plan."}
    await window.add(form.user("Make a plan."))
    await window.add(pin, pinned=True)
    await window.add(form.user(words(200)))
    await window.compress(before=2)

    shown = await window.prepare()
    assert shown[0]["role"] == "user"
    assert shown[1] is pin


async def test_a_list_that_holds_what_was_returned_in_bedrocks_form_is_followed_in_each_process(tmp_path: Path) -> None:
    workspace, form = LocalWorkspace(tmp_path, durability="off"), Bedrock()
    window = ContextWindow(session_id="s1", offloader=workspace, size=3_000, dialect=form.name)
    held: list[Any] = []
    for number in range(40):
        if number == 30:
            window, held = await ContextWindow.resume(workspace, "s1"), copy.deepcopy(held)
        held.append(form.user(f"{number}: {words(60)}"))
        assert await window.follow(held) == Followed(2 if number else 1)
        held = [*await window.prepare(), said(f"{number}: {words(60)}")]

    assert window.added == 79


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([OpenAI().calling("c1", "c2"), *OpenAI().answering({"c1": ["7"], "c2": ["8"]})], id="two results"),
        pytest.param([OpenAI().calling("c/1"), *OpenAI().answering({"c/1": ["7 fathoms"]})], id="an id"),
        pytest.param([{"role": "system", "content": "Be brief."}], id="a system message"),
        pytest.param([{"role": "user", "content": "And buoy 8?", "name": "ada"}], id="a name"),
        pytest.param([PICTURE], id="a picture by URL"),
    ],
)
async def test_a_list_that_holds_converted_messages_is_followed(dialect: str, messages: list[Any]) -> None:
    workspace = MemoryWorkspace()
    window = ContextWindow(session_id="s1", offloader=workspace, size=SIZE)
    for message in (*messages, {"role": "assistant", "content": "It is."}, OpenAI().user("Go on.")):
        await window.add(message)
    await window.prepare()
    again = await ContextWindow.resume(workspace, "s1", dialect=dialect)
    held = await again.prepare()
    system = again.conversion and again.conversion.system
    assert await again.follow(held) == Followed(0)
    assert await again.prepare() == held
    assert (again.conversion and again.conversion.system) == system


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
async def test_a_list_of_converted_messages_goes_on_in_each_process(dialect: str) -> None:
    workspace, form = MemoryWorkspace(), Spelled(dialect)
    window = ContextWindow(session_id="s1", offloader=workspace, size=SIZE)
    for number in range(20):
        (result,) = OpenAI().answering({f"c/{number}": [words(60)]})
        for message in (OpenAI().user(f"{number}: {words(60)}"), OpenAI().calling(f"c/{number}"), result):
            await window.add(message)
        await window.prepare()
    held: list[Any] = []
    for number in range(40):
        if number % 10 == 0:
            window = await ContextWindow.resume(workspace, "s1", dialect=dialect)
            held = copy.deepcopy(held) or await window.prepare()
        (result,) = form.answering({f"d{number}": [words(60)]})
        held += [form.calling(f"d{number}"), result]
        assert await window.follow(held) == Followed(2)
        held = await window.prepare()
    assert window.added == 140
    assert window._context.state.messages.first > 60


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"text": text}]}
