"""`buoyline view`: one page that shows a session, and in which hostile text stays text."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import browsing
from click.testing import CliRunner
from window_lives import calling, result, said, user

from buoyline import ContextConfig, ContextWindow
from buoyline.cli import main
from buoyline.compression import SummaryRequest

HOSTILE = "</pre><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'> \x1b[31m $bars ${title}"
LOG = "".join(f"step {n}: {'FAILED: disk full' if n == 4711 else 'ok'}\n" for n in range(9_000))


@pytest.fixture
async def page(tmp_path: Path) -> Path:
    """A session with a compaction and a file, and hostile text in each of its parts."""
    async with await ContextWindow.open(tmp_path, "s1", size=16_000, system=HOSTILE) as window:
        await window.add(user(f"Why does the build fail? {HOSTILE}"))
        await window.extend([calling("c1", name="build"), result("c1", LOG + HOSTILE), said(f"It failed. {HOSTILE}")])
        await window.prepare()
        await window.compress(force=True, before=-1)
        await window.extend([calling("c2<b>", name="<script>"), result("c2<b>", HOSTILE), said("Done.")])
        await window.prepare()
    output = tmp_path / "session.html"
    ran = CliRunner().invoke(main, ["view", "s1", "-o", str(output), "--workdir", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    return output


class Tags(HTMLParser):
    """The tags of a page, and all that its attributes say."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.words = list[str](), list[tuple[str, str]](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_page_has_no_script_but_its_own_and_loads_nothing(page: Path) -> None:
    found = Tags(page.read_text("utf-8"))
    assert (found.tags.count("script"), found.tags.count("img"), found.tags.count("link")) == (1, 0, 0)
    assert [name for name, _ in found.attributes if name.startswith("on") or name == "src"] == []
    assert [value for name, value in found.attributes if name == "href" and not value.startswith("#")] == []
    assert "window.hacked = 1" in found.words
    assert "\x1b" not in found.words


def test_every_citation_leads_to_a_line_of_the_page(page: Path) -> None:
    found = Tags(page.read_text("utf-8"))
    targets = {value[1:] for name, value in found.attributes if name == "href"}
    assert len(targets) > 3
    assert targets <= {value for name, value in found.attributes if name == "id"}


def test_a_click_on_a_citation_shows_its_line_in_a_browser(page: Path, tmp_path: Path) -> None:
    with browsing(tmp_path) as browser:
        browser.open(page)
        target = "document.getElementById(document.querySelector('a[href].cite-file').hash.slice(1))"
        assert browser.run(f"return {target}.checkVisibility()") is False
        browser.click("a.cite-file")
        assert browser.run(f"return {target}.checkVisibility()") is True
        assert "FAILED: disk full" in browser.run(f"return {target}.textContent")
        assert browser.run("return document.querySelectorAll('nav a').length") == 4
        assert browser.run("return typeof window.hacked") == "undefined"
        assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_a_session_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["view", "s9", "--workdir", str(tmp_path)])
    assert ran.exit_code == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_with_a_hostile_name_stays_text_on_the_page(tmp_path: Path) -> None:
    workdir = tmp_path / "<img src=x>"
    document = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 4}}]}}
    async with await ContextWindow.open(workdir, "s1", size=64_000, management=document) as window:
        await window.extend([user("Go on."), said("Done.")] * 6)
        await window.prepare()  # a line says where the messages are: in this folder
    output = tmp_path / "page.html"
    ran = CliRunner().invoke(main, ["view", "s1", "-o", str(output), "--workdir", str(workdir)])
    assert ran.exit_code == 0, ran.output
    found = Tags(output.read_text("utf-8"))
    assert "img" not in found.tags
    assert "<img src=x>" in found.words


async def test_a_field_with_a_hostile_name_stays_text_on_the_page(tmp_path: Path) -> None:
    names = ["<img src=x>", "next"]

    async def write(_: SummaryRequest) -> dict[str, str]:
        return dict.fromkeys(names, "Sail.")

    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    config = ContextConfig(summary_schema=schema, summary_template="{next}")
    async with await ContextWindow.open(tmp_path, "s1", size=64_000, config=config, summarizer=write) as window:
        await window.extend([user("Go on."), said("Done.")] * 6)
        await window.compress(before=-2)
    output = tmp_path / "page.html"
    ran = CliRunner().invoke(main, ["view", "s1", "-o", str(output), "--workdir", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    found = Tags(output.read_text("utf-8"))
    assert "img" not in found.tags
    assert names[0] in found.words
