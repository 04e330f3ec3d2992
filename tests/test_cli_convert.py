"""``buoyline convert``: the messages of a session in another dialect."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from buoyline import ContextWindow, LocalWorkspace
from buoyline.cli import main

CLIP = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a session of which some messages have left the context."""
    workspace = LocalWorkspace(tmp_path_factory.mktemp("cli") / "workspace", durability="off")

    async def fill() -> None:
        window = await ContextWindow.open(workspace, "s1", size=60_000)
        await window.add({"role": "system", "content": "Be brief."})
        for n in range(10):
            text = {"type": "text", "text": f"question {n} " + "about tides " * 200}
            await window.add({"role": "user", "name": "ann", "content": [text, CLIP]})
            await window.add({"role": "assistant", "content": f"answer {n}"})
        await window.compress(before=11)

    asyncio.run(fill())
    return workspace.workdir


def _run(workdir: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["convert", *args, "--workdir", str(workdir)])


def test_the_context_is_printed_a_message_a_line_and_losses_go_to_stderr(workdir: Path) -> None:
    found = _run(workdir, "s1", "--to", "anthropic")
    assert found.exit_code == 0
    messages = [json.loads(line) for line in found.stdout.splitlines()]
    assert messages[-1] == {"role": "assistant", "content": "answer 9"}
    assert "question 3" in json.dumps(messages[0]), "the summary quotes it"
    assert "buoyline: system prompt: Be brief." in found.stderr
    assert "audio, audio/wav, 4 bytes: anthropic has no place for it" in found.stderr


def test_the_whole_history_is_printed_on_demand(workdir: Path) -> None:
    found = _run(workdir, "s1", "--to", "agentscope", "--all")
    messages = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(messages) == 21
    assert [message["name"] for message in messages[:3]] == ["system", "ann", "assistant"]
    assert found.stderr == ""


def test_all_of_it_is_one_json_value(workdir: Path) -> None:
    found = json.loads(_run(workdir, "s1", "--to", "anthropic", "--all", "--json").stdout)
    assert found["dialect"] == "anthropic"
    assert found["system"] == "Be brief."
    assert len(found["messages"]) == 20
    lost = {"message": 1, "what": "audio, audio/wav, 4 bytes", "why": "anthropic has no place for it"}
    assert lost in found["losses"]


def test_what_was_printed_can_be_replayed(workdir: Path, tmp_path: Path) -> None:
    recording = tmp_path / "again.jsonl"
    recording.write_text(_run(workdir, "s1", "--to", "openai", "--all").stdout, encoding="utf-8")
    replayed = CliRunner().invoke(main, ["replay", str(recording), "--workdir", str(tmp_path / "w"), "--json"])
    assert json.loads(replayed.stdout)["messages"] == 21


def test_a_session_or_a_dialect_that_is_none_is_said(workdir: Path) -> None:
    unknown = _run(workdir, "s2", "--to", "openai")
    assert unknown.exit_code == 1
    assert "no session 's2'; `buoyline sessions` lists those there are" in unknown.stderr
    assert _run(workdir, "s1", "--to", "cobol").exit_code == 2
    assert _run(workdir, "s1").exit_code == 2


def test_a_session_of_an_agent_without_a_window_is_printed_whole(tmp_path: Path) -> None:
    asyncio.run(LocalWorkspace(tmp_path).offload_context("s1", [{"role": "user", "content": "hello"}]))
    assert json.loads(_run(tmp_path, "s1", "--to", "openai").stdout)["content"] == "hello"


def test_equal_losses_are_one_line_with_their_number(workdir: Path) -> None:
    found = _run(workdir, "s1", "--to", "anthropic", "--all").stderr.splitlines()
    (line,) = [line for line in found if "audio" in line]
    assert line.startswith("buoyline: 10 messages from 1 on: audio, audio/wav, 4 bytes: anthropic has no place for it")
