"""What the version before the redesign did, the checkout does: files, messages, events, errors, syncs, answers.

Both versions play the same scripts in processes of their own; `reference/` has all of it. A difference that is wanted
gets a line in `reference.comparison.INTENDED`, with its reason.
"""

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from reference import scripts
from reference.comparison import INTENDED, difference
from reference.player import Plain
from reference.scripts import DIALECTS, OFFLOADERS, PLAIN_CONFIG, PRESETS, Operation
from reference.versions import BASELINE, CACHE, CHECKOUT, REVIEWED, Process, answers

from buoyline.previews.layout import parse_preview

RECORDED_SIZE = 32_000
STOP_EACH = 17

HOOKS: dict[str, dict[str, Any]] = {
    "background": {"config": {**PLAIN_CONFIG, "background_ratio": 0.4}},
    "background, a model that waits": {"config": {**PLAIN_CONFIG, "background_ratio": 0.4}, "summarizer": {"steps": 3}},
    "a model": {"summarizer": {}},
    "a model that fails": {"summarizer": {"raises_at": [1, 2, 4]}},
    "few pictures": {"config": {**PLAIN_CONFIG, "max_images": 2}},
    "rules for tools": {"config": {**PLAIN_CONFIG, "tool_rules": {"run": {"offload": "never"}}}},
    "a limit for turns": {"config": {**PLAIN_CONFIG, "turn_results_limit": 700}},
    "a hook that keeps": {"should_offload": {"keeps": ["run"], "steps": 2}},
    "a hook that fails": {"should_offload": {"raises_at": [2, 3]}},
    "a listener that fails": {"event_raises_at": [1, 4, 6]},
    "redaction": {"redacts": True},
    "a session that cannot be a name": {"session": "Pier 7/äußerer Hafen"},
}


def unlike_baseline(case: str, script: Sequence[Operation]) -> str:
    return difference(answers(BASELINE, case, script), answers(CHECKOUT, case, script))


def test_each_intended_difference_has_a_reason() -> None:
    assert all(before != after and reason for before, after, reason in INTENDED)


@pytest.mark.slow
@pytest.mark.parametrize("version", [REVIEWED, BASELINE])
def test_a_version_of_the_past_runs_its_own_code(version: str) -> None:
    (found,) = answers(version, "locate", [{"do": "locate"}])
    assert found["answer"].startswith(f"{CACHE / version}/")


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("offloader", OFFLOADERS)
def test_a_window_is_as_it_was(dialect: str, offloader: str) -> None:
    conversation = scripts.conversation("life", dialect, 12)
    script = scripts.agent(
        conversation, scripts.pins_in(conversation), size=6_000, config=PLAIN_CONFIG, offloader=offloader
    )
    ending = scripts.ending() if offloader == "local" else [{"do": "close"}]
    assert unlike_baseline(f"window-{dialect}-{offloader}", [*script, *ending]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("hooks", HOOKS)
def test_a_window_with_hooks_is_as_it_was(dialect: str, hooks: str) -> None:
    assert unlike_baseline(*with_hooks(dialect, hooks)) == ""


def with_hooks(dialect: str, hooks: str) -> tuple[str, list[Operation]]:
    settings = {"config": PLAIN_CONFIG, "size": 6_000, **HOOKS[hooks]}
    conversation = scripts.conversation("hooks", dialect, 10)
    script = scripts.agent(
        conversation, scripts.pins_in(conversation), system="Be exact.", tools=[scripts.TOOL], **settings
    )
    session = str(settings.get("session", "s1"))
    return f"hooks-{dialect}-{[*HOOKS].index(hooks)}", [*script, *scripts.ending(session)]


@pytest.mark.slow
def test_the_scripts_do_what_a_window_can_do() -> None:
    """Two versions that fail in the same way would be equal, too."""
    kinds, errors, done = set[str](), set[str](), set[str]()
    for dialect, hooks in itertools.product(DIALECTS, HOOKS):
        for answer in answers(BASELINE, *with_hooks(dialect, hooks)):
            kinds |= {event["event"] for event in answer["events"] if "event" in event}
            done.add(answer["do"])
            if answer["do"] not in {"look_up", "look_around"}:
                errors.add(answer.get("error", ""))
    assert kinds >= {"ResultOffloaded", "MessagesArchived", "SummaryVerified", "ContextCompressed"}
    assert errors == {"", "RuntimeError"}
    assert done >= {"add", "prepare", "verify", "archived", "files", "look_around"}


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_a_window_with_a_document_is_as_it_was(preset: str) -> None:
    for dialect in DIALECTS:
        conversation = scripts.conversation(preset, dialect, 12)
        script = scripts.agent(
            conversation, scripts.pins_in(conversation), size=5_000, config=PLAIN_CONFIG, management=preset
        )
        stops = scripts.with_resumes(script, STOP_EACH)
        assert unlike_baseline(f"document-{preset}-{dialect}", [*stops, *scripts.ending(looks=False)]) == ""


@pytest.mark.slow
@pytest.mark.parametrize(("own", "shown"), [*itertools.permutations(DIALECTS, 2)])
def test_messages_are_handed_out_in_another_dialect_as_they_were(own: str, shown: str) -> None:
    script = scripts.agent(scripts.conversation("translated", own, 10), size=8_000, config=PLAIN_CONFIG)
    stops = scripts.with_resumes(script, STOP_EACH, dialect=shown)
    assert unlike_baseline(f"translated-{own}-{shown}", [*stops, *scripts.ending(looks=False)]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_conversions_are_as_they_were(dialect: str) -> None:
    script: list[Operation] = []
    for number, to in itertools.product(range(4), (*DIALECTS, "agentscope")):
        messages = scripts.conversation(("conversion", number), dialect, 6)
        script += [{"do": "convert", "messages": messages, "to": to}]
    assert unlike_baseline(f"convert-{dialect}", script) == ""


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [40, 150, 1_000])
def test_lines_in_previews_of_the_past_can_still_be_read(recorded: Path | None, max_tokens: int) -> None:
    """Previews themselves differ on purpose; stubs with those of earlier versions stay in sessions."""
    found = [*scripts.texts(recorded)]
    script: list[Operation] = [{"do": "preview", "text": text, "max_tokens": max_tokens} for _, text in found]
    for (name, text), answer in zip(found, answers(BASELINE, f"previews-{max_tokens}", script), strict=True):
        lines = text.split("\n")
        rows = [row for row in answer["answer"].split("\n") if re.match(r"[1-9][0-9]*(:[1-9][0-9]*)?: ", row)]
        parsed = parse_preview(answer["answer"])
        assert len(parsed) == len(rows), name
        for line in parsed:
            start = line.column - 1
            assert lines[line.number - 1][start : start + len(line.text)] == line.text, (name, line)
            if line.cut_chars:
                assert start + len(line.text) + line.cut_chars == len(lines[line.number - 1].removesuffix("\r")), name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_recorded_sessions_are_as_they_were(shared_data: Path, part: int) -> None:
    """Each third of them at another size, all with resumes; a fourth of all in each test."""
    paths = sorted((shared_data / "sessions").glob("*.jsonl"))
    for number, path in [*enumerate(paths)][part::4]:
        messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        script = scripts.agent(messages, size=(8_000, 32_000, 128_000)[number % 3])
        stops = scripts.with_resumes(script, STOP_EACH)
        found = unlike_baseline(f"recorded-{path.stem}", [*stops, *scripts.ending(looks=number % 4 == 0)])
        assert found == "", path.stem


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["fsync", "off"])
def test_what_is_synced_and_in_what_order_is_as_it_was(durability: str) -> None:
    """The answers have each sync, link, rename and cut; here they are a text of their own."""
    conversation = scripts.conversation("syncs", "openai", 8)
    script = scripts.agent(
        conversation, scripts.pins_in(conversation), size=5_000, config=PLAIN_CONFIG, durability=durability
    )
    script = [*scripts.with_resumes(script, STOP_EACH), {"do": "close"}]
    old, new = (answers(version, f"syncs-{durability}", script) for version in (BASELINE, CHECKOUT))
    assert spelled_syncs(new) == spelled_syncs(old)
    assert difference(old, new) == ""


SYNCS = Path(__file__).parent / "data" / "syncs.txt"


def short_life() -> list[Operation]:
    """Return what shows each kind of write once: results, a picture, lines, a compression, a resume."""
    said = scripts.conversation("syncs", "openai", 3)
    opening: list[Operation] = [
        {"do": "say", "messages": said, "pins": scripts.pins_in(said)},
        {"do": "open", "size": 50_000, "config": PLAIN_CONFIG, "durability": "fsync"},
    ]
    steps = ({"do": name} for name in ("save", "prepare", "resume", "prepare", "close"))
    adding = [step for _ in range(5) for step in ({"do": "add", "count": 3}, {"do": "prepare"})]
    return [*opening, *adding, {"do": "compress", "force": True}, *steps]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the names of open files are looked up in /proc")
def test_a_short_life_has_the_syncs_of_the_baseline_in_their_order(tmp_path: Path) -> None:
    """The file is what `spelled_syncs` says of the baseline; the next test checks that."""
    with Process(CHECKOUT, tmp_path / "w") as process:
        found = [process.play(operation) for operation in short_life()]
    assert [answer for answer in found if "error" in answer] == []
    assert spelled_syncs(found) == SYNCS.read_text("utf-8").splitlines()


@pytest.mark.slow
def test_the_kept_syncs_are_those_of_the_baseline() -> None:
    assert spelled_syncs(answers(BASELINE, "short-life", short_life())) == SYNCS.read_text("utf-8").splitlines()


FACTS_FILE = re.compile(r"rename sessions/s1/\.tmp-\* -> sessions/s1/facts-\d+\.jsonl")
"""The baseline keeps the facts of a summary in its line. Their file costs two syncs, and is durable before the line."""


def spelled_syncs(found: Sequence[Plain]) -> list[str]:
    """Return the syncs of each answer, without those of the files of facts."""
    spelled = [line for at, answer in enumerate(found) for line in (f"{at} {answer['do']}", *answer["syncs"])]
    for at in reversed([at for at, line in enumerate(spelled) if FACTS_FILE.fullmatch(line)]):
        assert (spelled[at - 1], spelled[at + 1]) == ("fdatasync sessions/s1/.tmp-*", "fsync sessions/s1")
        del spelled[at - 1 : at + 2]
    return spelled
