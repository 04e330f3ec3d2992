"""Every block of README.md and docs/ runs as it is printed, and prints what the page says.

The blocks of a page run in their order in a fresh directory; those that need a framework run by themselves, and are
skipped without it. Models of frameworks are replaced by scripted ones.
"""

import importlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import serving, summary
from page_blocks import LANGUAGES, MODEL_URL, NOTES, ROOT, blocks_of, is_like, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTED = {
    "agent_framework": "agent_framework_model",
    "agents": "openai_agents_model",
    "deepagents": "langchain_model",
    "google.adk": "google_adk_model",
    "langchain": "langchain_model",
}
"""Modules of frameworks, and that of the tests whose `install` puts a scripted model in the place of real ones."""

NEEDED = {"", "agentscope", "opentelemetry", "pydantic_ai", "strands", *SCRIPTED}
"""Modules without which a block is skipped; a misspelt one would skip it for ever."""

FIELDS = ("task_overview", "current_state", "important_discoveries", "next_steps", "context_to_preserve")
ALL_BLOCKS = [block for page in PAGES for block in blocks_of(page)]
GROUPS = sorted({(block.page, block.notes.get("needs", "")) for block in ALL_BLOCKS})


@pytest.fixture
def model_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Skip without the framework that the blocks need, else put a scripted model in the place of its own."""
    needs = request.node.callspec.params["needs"]
    if needs:
        pytest.importorskip(needs, reason=f"these blocks need {needs}")
    if needs == "agentscope":
        made = importlib.import_module("agentscope_model").ScriptedModel
        monkeypatch.setattr("agentscope.model.OpenAIChatModel", lambda *_, **__: made(["The harbour is charted."]))
    elif needs == "strands":
        made = importlib.import_module("strands_model").ScriptedModel
        monkeypatch.setattr("strands.agent.agent.BedrockModel", lambda *_, **__: made([_strands_answer]))
    elif needs in SCRIPTED:
        importlib.import_module(SCRIPTED[needs]).install(monkeypatch)
    if needs == "pydantic_ai":
        importlib.import_module("pydantic_ai_model").install(monkeypatch)
        monkeypatch.setenv("OPENAI_API_KEY", "none is asked for")
        with serving(summary(dict.fromkeys(FIELDS, "All parts were looked at."))) as server:
            yield server.url
    else:
        yield MODEL_URL


def _strands_answer(messages: list[dict[str, Any]]) -> Any:
    """Call the page's tool once, then answer."""
    is_result = any("toolResult" in block for block in messages[-1]["content"])
    return "The disk was full." if is_result else [{"toolUse": {"toolUseId": "call_1", "name": "build", "input": {}}}]


@pytest.fixture
def fresh_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a directory with a short name: stubs and summaries hold it, and the pages show counts of their tokens."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        for name in ("examples", "src"):
            (Path(directory) / name).symlink_to(ROOT / name)
        monkeypatch.chdir(directory)
        monkeypatch.syspath_prepend(directory)
        monkeypatch.setattr("buoyline.messages.registry._registered", {})
        yield


@pytest.mark.usefixtures("fresh_directory")
@pytest.mark.parametrize(
    ("page", "needs"), GROUPS, ids=[f"{page.relative_to(ROOT)}{needs and '-'}{needs}" for page, needs in GROUPS]
)
def test_every_block_of_a_page_runs_and_prints_what_the_page_shows(page: Path, needs: str, model_url: str) -> None:
    run([block for block in blocks_of(page) if block.notes.get("needs", "") == needs], model_url)


@pytest.mark.usefixtures("fresh_directory")
def test_the_first_script_runs_again_and_goes_on_with_the_session(capsys: pytest.CaptureFixture[str]) -> None:
    program = next(block.text for block in blocks_of(ROOT / "README.md") if block.language == "python")
    for _ in range(2):
        exec(program, {"__name__": "__main__"})  # noqa: S102 - the page's own code
        assert "step 4711: FAILED: disk full" in capsys.readouterr().out


def test_every_block_says_its_language_and_is_marked_by_known_notes() -> None:
    odd = [block.place for block in ALL_BLOCKS if block.language not in LANGUAGES or block.notes.keys() - NOTES]
    assert odd == []
    assert {needs for _, needs in GROUPS} <= NEEDED


def test_only_what_installs_something_or_needs_recordings_is_not_run() -> None:
    skipped = {block.notes["skip"] for block in ALL_BLOCKS if "skip" in block.notes}
    assert skipped <= {"installs", "needs recordings"}


def test_every_fence_and_note_of_the_pages_is_taken_for_one() -> None:
    for page in PAGES:
        text, blocks = page.read_text("utf-8"), blocks_of(page)
        fences = sum(line.strip().startswith(("```", "~~~")) for line in text.splitlines())
        notes = sum(bool(block.notes) for block in blocks)
        assert (page.name, fences, text.count("<!--")) == (page.name, 2 * len(blocks), notes)


@pytest.mark.parametrize(
    ("expected", "printed", "like"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one\ntwo", "one\nthree\n", False),
        ("one", "one\ntwo\n", False),
        ("in …/ws, 3 files", "in /tmp/ws, 3 files", True),
        ("in …, 3 files", "in /tmp\n, 3 files", False),
        ("…\ntwo", "zero\none\ntwo", True),
        ("one\n…", "one\ntwo\nthree\n", True),
        ("sent 2,366,273", "sent 2,366,801", True),
        ("sent 2,366,273", "sent 2,566,801", False),
        ("in 40 lines", "in 41 lines", False),
        ("cost 0.0439 (69% less)", "cost 0.0441 (68% less)", True),
        ("cost 0.0439 (69% less)", "cost 0.0441 (67% less)", False),
    ],
)
def test_only_marked_text_and_small_differences_of_large_numbers_are_passed_over(
    expected: str, printed: str, *, like: bool
) -> None:
    assert is_like(expected, printed) is like


def test_every_link_between_the_pages_leads_to_a_file_and_a_heading() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"]
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
        if not target.startswith("https://") and not _is_there(page, *target.partition("#")[::2])
    ]
    assert broken == []


def _is_there(page: Path, name: str, anchor: str) -> bool:
    target = page.parent / name if name else page
    if not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_or_the_page_of_frameworks_names_every_page() -> None:
    indexes = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/frameworks.md"))
    assert [page.name for page in PAGES[1:] if f"{page.name})" not in indexes] == []
