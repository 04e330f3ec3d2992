"""A dialect of another package: registered once, it works wherever a built-in one does."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from buoyline import ContextWindow, LocalWorkspace
from buoyline.cli import main
from buoyline.errors import ConfigError, MessageError
from buoyline.maintenance.verify import verify
from buoyline.messages import (
    Dialect,
    Message,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    convert,
    register_dialect,
    registry,
    spell,
)
from buoyline.messages.dialect import Blocks
from buoyline.messages.jsonl import parse
from buoyline.messages.model import Losses, Part, Role
from buoyline.messages.registry import detect, dialect_named, dialect_names, read_result

ROLES: dict[str, Role] = {"harbour": "user", "pilot": "assistant", "deck": "tool", "owner": "system"}
SPEAKERS = {role: speaker for speaker, role in ROLES.items()}


class Harbour(Dialect):
    """Radio messages: a speaker, words, and lists of what is asked of tools and what they report."""

    name = "harbour"

    def detects(self, message: object) -> bool:
        return isinstance(message, dict) and "from" in message and "role" not in message

    def view(self, message: Any) -> Message:
        if message["from"] not in ROLES:
            raise MessageError(f"nobody is called {message['from']!r}")
        parts: list[Part] = [Text(message["says"])] if "says" in message else []
        parts += [ToolCall(ask["ref"], ask["tool"], spell(ask["with"])) for ask in message.get("asks", [])]
        parts += [ToolResult(found["ref"], "", (Text(found["text"]),)) for found in message.get("reports", [])]
        return Message(ROLES[message["from"]], tuple(parts))

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        for turn in turns:
            if any(result.is_error for result in turn.results):
                losses.note("mark of a failed result")
            message: dict[str, Any] = {"from": SPEAKERS[turn.role]}
            if turn.text:
                message["says"] = turn.text
            if turn.calls:
                message["asks"] = [
                    {"ref": call.call_id, "tool": call.name, "with": losses.object_of(call.arguments)}
                    for call in turn.calls
                ]
            if turn.results:
                message["reports"] = [{"ref": result.call_id, "text": result.text} for result in turn.results]
            yield message

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> dict[str, Any]:
        reports = list(message["reports"])
        for number, (block,) in results.items():
            reports[number] = {**reports[number], "text": block}
        return {**message, "reports": reports}


HARBOUR = Harbour()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    register_dialect(HARBOUR)


def soundings(rounds: int) -> list[dict[str, Any]]:
    """Return a conversation in which each round calls a tool with a long result."""
    talk: list[dict[str, Any]] = [{"from": "owner", "says": "You pilot ships."}]
    for number in range(rounds):
        depths = "\n".join(f"buoy {number}-{line}: {line % 17} fathoms" for line in range(300))
        talk += [
            {"from": "harbour", "says": f"Sound the channel {number}."},
            {"from": "pilot", "says": "Aye.", "asks": [{"ref": f"c{number}", "tool": "sonar", "with": {"n": number}}]},
            {"from": "deck", "reports": [{"ref": f"c{number}", "text": depths}]},
        ]
    return talk


async def test_a_session_of_it_is_offloaded_archived_rendered_and_resumed(tmp_path: Path) -> None:
    workspace, talk = LocalWorkspace(tmp_path), soundings(6)
    window = await ContextWindow.open(workspace, "s1", size=3_000)
    for message in talk:
        await window.add(message)
    prepared = await window.prepare()
    assert [detect(message).name for message in prepared] == ["harbour"] * len(prepared)
    (newest,) = dialect_named("harbour").view(prepared[-1]).results
    assert newest.text.startswith("[Tool result offloaded: ")
    assert talk[3]["reports"][0]["text"].startswith("buoy 0-0: 0 fathoms"), "the caller's message is not changed"

    stored = workspace.stored("s1")
    assert stored.state.places
    assert all(detect(line.value).name == "harbour" for line in stored.lines())
    transcript = next(tmp_path.rglob("*.md")).read_text("utf-8")
    assert "Sound the channel 0." in transcript
    assert "### call sonar c0" in transcript
    assert not verify(workspace).findings

    resumed = await ContextWindow.open(LocalWorkspace(tmp_path), "s1")
    assert await resumed.prepare() == prepared
    await resumed.add({"from": "harbour", "says": "Make fast."})
    assert (await resumed.prepare())[-1] == {"from": "harbour", "says": "Make fast."}


@pytest.mark.parametrize("to", ["agentscope", "anthropic", "bedrock", "openai"])
def test_a_conversion_there_and_back_gives_the_same_messages(to: str) -> None:
    talk = soundings(2)[1:]
    there = convert(talk, to=to)
    assert there.losses == ()
    back = convert(there.messages, to="harbour")
    assert [loss for loss in back.losses if not loss.why.startswith("accounts of")] == []
    assert parse(spell(back.messages)) == talk


def test_a_loss_is_recorded_for_the_message_that_has_it() -> None:
    talk = [{"role": "user", "content": "Ahoy"}, {"role": "user", "content": [{"type": "novelty"}]}]
    converted = convert(talk, to="harbour", from_="openai")
    assert [(loss.message, loss.what) for loss in converted.losses] == [(1, "block of type 'novelty'")]
    assert converted.messages[0] == {"from": "harbour", "says": "Ahoy"}


def test_it_is_detected_before_the_built_in_dialects_and_leaves_their_messages_to_them() -> None:
    class Loose(Harbour):
        name = "loose"

        def detects(self, message: object) -> bool:
            return isinstance(message, dict) and "role" in message and "berth" in message

    register_dialect(Loose())
    assert detect({"role": "user", "content": "Ahoy", "berth": 7}).name == "loose"
    assert detect({"role": "user", "content": "Ahoy"}).name == "openai"
    assert detect({"from": "pilot", "says": "Aye."}) is HARBOUR
    report = {"from": "deck", "reports": [{"ref": "c1", "text": "7 fathoms"}]}
    assert read_result(report) == ToolResult("c1", "", (Text("7 fathoms"),))


def test_a_name_that_is_taken_is_refused() -> None:
    register_dialect(HARBOUR)  # once more does no harm
    assert "harbour" in dialect_names()

    class Other(Harbour):
        pass

    with pytest.raises(ConfigError, match=r"'harbour' is the name of .* already"):
        register_dialect(Other())
    Other.name = "openai"
    with pytest.raises(ConfigError, match="choose another one"):
        register_dialect(Other())


async def test_without_it_a_session_is_refused_with_the_dialects_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = await ContextWindow.open(LocalWorkspace(tmp_path), "s1", size=3_000)
    for message in soundings(1):
        await window.add(message)
    await window.prepare()
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(MessageError, match=r"known dialect \(.*anthropic, bedrock"):
        await ContextWindow.open(LocalWorkspace(tmp_path), "s1")
    with pytest.raises(ConfigError, match="'harbour' is not known"):
        await ContextWindow.open(LocalWorkspace(tmp_path), "s2", size=3_000, dialect="harbour")


async def test_without_it_people_still_see_the_messages_and_verify_names_it_in_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=3_000, dialect="harbour")
    await window.extend(soundings(1))
    monkeypatch.setattr(registry, "_registered", {})
    report = verify(LocalWorkspace(tmp_path))
    assert [(one.kind, one.severity) for one in report.findings] == [("unknown-dialect", "note")]
    shown = CliRunner().invoke(main, ["show", "s1", "--messages", "0-1", "--workdir", str(tmp_path)])
    assert (shown.exit_code, "harbour" in shown.output) == (0, True), shown.output
