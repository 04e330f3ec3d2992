"""``buoyline preview``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import buoyline, buoyline_process

from buoyline import ContextConfig
from buoyline.cli import main
from buoyline.cli.preview import LIMIT
from buoyline.tokens import default_counter


def test_a_preview_is_within_its_budget_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(5000)) + b"\xff\x1b[31m end")
    done = buoyline_process("preview", path, "--max-tokens", 300)
    found = json.loads(buoyline("preview", path, "--max-tokens", 300, "--json").stdout)

    assert set(found) == {"path", "tokens", "text"}
    assert str(path) in done.stdout
    assert "\x1b" not in done.stdout
    assert found["tokens"] == default_counter().count(found["text"]) <= 300
    assert "5001: " in found["text"]


def test_preview_reads_what_is_piped_in() -> None:
    text = "".join(f"step {number} is done\n" for number in range(3_000)) + "FATAL: no disk\n"
    shown = CliRunner().invoke(main, ["preview", "-", "--max-tokens", "150"], input=text)
    assert shown.exit_code == 0
    assert shown.output.startswith("(standard input): 3,001 lines, ")
    assert "\n3001: FATAL: no disk\n" in shown.output


@pytest.mark.parametrize(("lines", "is_small"), [(0, True), (2, True), (3_000, False)])
def test_preview_says_what_would_not_be_offloaded(lines: int, *, is_small: bool) -> None:
    text = "".join(f"step {number} is done\n" for number in range(lines))
    shown = CliRunner().invoke(main, ["preview", "-"], input=text)
    notice = "buoyline: an agent would see this file whole: it is not above the default limit of 3,000 tokens\n"
    assert shown.stderr == (notice if is_small else "")
    assert ContextConfig().tool_result_limit == LIMIT
