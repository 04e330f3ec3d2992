"""``buoyline context``: a document is checked and explained."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import buoyline

from buoyline.management.model import put
from buoyline.workspace import LocalWorkspace

SLIDING: dict[str, Any] = {
    "hooks": {
        "pre_llm": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 6, "activation": {"message_count_exceed": 12}}}
        ]
    }
}


def test_a_document_is_explained_by_its_name_or_file(tmp_path: Path) -> None:
    file = tmp_path / "seven.json"
    file.write_text(json.dumps(SLIDING), "utf-8")
    put(SLIDING, LocalWorkspace(tmp_path / "w"), "six")
    for source in ("six", file):
        done = buoyline("context", source, "--workdir", tmp_path / "w")
        assert done.returncode == 0
        assert "pre_llm, before each model call:" in done.stdout
        assert "runs if message_count_exceed 12" in done.stdout


def test_each_problem_is_on_a_line_of_its_own_and_the_status_is_1(tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"hooks": {"pre_llm": [{"type": "X"}], "post_tool": [{"type": "Slidingwindow"}]}}', "utf-8")
    done = buoyline("context", file, "--workdir", tmp_path / "w")
    assert done.returncode == 1
    near, unknown = done.stdout.splitlines()
    assert (
        near == f"{file}: hooks.post_tool[0].type: 'Slidingwindow' is no manager; did you mean 'SlidingWindowManager'?"
    )
    assert unknown.startswith(f"{file}: hooks.pre_llm[0].type: 'X' is no manager; choose one of SlidingWindowManager, ")
    found = json.loads(buoyline("context", file, "--workdir", tmp_path / "w", "--json").stdout)
    assert (found["valid"], len(found["problems"])) == (False, 2)


@pytest.mark.parametrize("typed", ["polcy.json", "./polcy", "nowhere"])
def test_what_is_no_document_is_one_line_and_status_1(tmp_path: Path, typed: str) -> None:
    done = buoyline("context", typed, "--workdir", tmp_path / "w")
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("\n") == 1
    assert not (tmp_path / "w").exists()
