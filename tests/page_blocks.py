"""The fenced blocks of a Markdown page, and how each kind is run. CONTRIBUTING.md says how a page marks them."""

import ast
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

from click.testing import CliRunner

from buoyline.cli import main

ROOT = Path(__file__).parents[1]
LANGUAGES = {"console", "json", "python", "text"}
NOTES = {"continues", "file", "name", "needs", "output", "skip"}
MODEL_URL = "http://127.0.0.1:8000/v1"
"""The address of a model in the pages; a server on loopback stands behind it in the tests."""

_FENCE = re.compile(r"(?:^ *<!-- ([^\n]*) -->\n)?^ *```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_WILDCARD = re.compile(r"(^(?:…|\.\.\.)\n|…|\.\.\.|\d[\d,]*\d{2}|\d+\.\d{3,}|\d+%)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block, and the notes in the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    notes: dict[str, str]

    @property
    def place(self) -> str:
        """Where the block is, as editors and terminals link it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def syntax(self) -> ast.Module:
        """Parse the block, with the line numbers of its page."""
        return ast.parse("\n" * self.line + self.text, self.page)


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of *page* in their order; `needs` is that of the block they continue."""
    text = page.read_text("utf-8")
    blocks: list[Block] = []
    for fence in _FENCE.finditer(text):
        items = [item.partition(":") for item in (fence[1] or "").split(";") if item.strip()]
        notes = {key.strip(): value.strip() for key, _, value in items}
        line = text.count("\n", 0, fence.start(3))
        blocks.append(Block(page, line, fence[2], dedent(fence[3]), notes))
    needs = {block.notes["name"]: block.notes.get("needs", "") for block in blocks if "name" in block.notes}
    for block in blocks:
        if "continues" in block.notes:
            block.notes["needs"] = needs[block.notes["continues"]]
    for before, block in pairwise(blocks):
        if "output" in block.notes:
            block.notes["needs"] = before.notes.get("needs", "")
    return blocks


def run(blocks: list[Block], model_url: str = MODEL_URL) -> None:
    """Run *blocks*, which belong together, in the current directory."""
    for number, block in enumerate(blocks):
        if "file" in block.notes:
            path = Path(block.notes["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "console" and "skip" not in block.notes:
            for command, output in _commands(block.text):
                _compare(block, output, _printed_by(block, command))
        elif block.language == "python" and not block.notes.keys() & {"continues", "file"}:
            _run_python([block, *_parts_of(block, blocks[number + 1 :])], model_url)


def _parts_of(block: Block, later: list[Block]) -> Iterator[Block]:
    """Yield the fragments of a program that begins with *block*, and what it prints."""
    name, is_part = block.notes.get("name"), True
    for other in later:
        if other.language == "python":
            is_part = name is not None and other.notes.get("continues") == name
        if is_part and (other.language == "python" or "output" in other.notes):
            yield other


def _run_python(parts: list[Block], model_url: str) -> None:
    """Run a program: its fragments are pasted at the end of its `main`, or of the `with` that ends it."""
    first, *others = parts
    program = first.syntax()
    fragments = [part.syntax() for part in others if part.language == "python"]
    if "skip" in first.notes:
        program.body = [node for node in program.body if isinstance(node, ast.Import | ast.ImportFrom)]
    else:
        end = _end_of(program)
        for fragment in fragments:
            end.extend(fragment.body)
    for node in ast.walk(program):
        if isinstance(node, ast.Constant) and node.value == MODEL_URL:
            node.value = model_url
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(program, first.page, "exec"), {"__name__": "__main__"})  # noqa: S102 - the page's own code
    outputs = [part.text for part in others if "output" in part.notes]
    _compare(first, "".join(outputs), printed.getvalue())


def _end_of(program: ast.Module) -> list[ast.stmt]:
    """Return the statements at whose end a fragment goes."""
    end = next((node.body for node in program.body if isinstance(node, ast.AsyncFunctionDef)), program.body)
    while isinstance(last := end[-1], ast.With | ast.AsyncWith):
        end = last.body
    return end


def _commands(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield each command after a `$ `, its lines joined where one ends with `\`, and the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        end = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\\n"))
        yield "".join(lines[:end]).replace("\\\n", " ").strip(), "".join(lines[end:])


def _printed_by(block: Block, command: str) -> str:
    """Run *command*: one of ours in this process, any other, or several, in a shell."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    if words[0] == "buoyline" and not {"|", "<", ">", "&&", ";"} & set(words):
        result = CliRunner().invoke(main, shlex.split(command, comments=True)[1:], catch_exceptions=False)
        status, printed = result.exit_code, result.output
    else:
        search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            ["/bin/sh", "-euc", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
            env={**os.environ, "PATH": search_path, "PYTHONUTF8": "1"},
        )
        status, printed = ran.returncode, ran.stdout
    assert status == 0, f"{block.place}: `{command}` ended with {status}:\n{printed}"
    return printed


def _compare(block: Block, expected: str, printed: str) -> None:
    assert not expected or is_like(expected, printed), f"{block.place} prints something else:\n{printed}"


def is_like(expected: str, printed: str) -> bool:
    """Return whether *printed* is what a page shows.

    `…` and `...` mean any text in a line, or any lines if alone. Numbers from 100 on, and those with three decimals,
    may differ by 3 %, and percentages by one: counts of tokens depend on the name of the directory.
    """
    pattern, numbers = "", list[str]()
    for number, part in enumerate(_WILDCARD.split(_stripped(expected))):
        if number % 2 == 0:
            pattern += re.escape(part)
        elif part[0].isdigit():
            numbers.append(part)
            pattern += r"(\d+%)" if part.endswith("%") else r"(\d[\d,.]*)"
        else:
            pattern += r"(?:[^\n]*\n)*?" if part.endswith("\n") else r"[^\n]*?"
    found = re.fullmatch(pattern, _stripped(printed))
    return found is not None and all(map(_is_near, numbers, found.groups()))


def _is_near(expected: str, printed: str) -> bool:
    number, other = (float(text.rstrip("%").replace(",", "")) for text in (expected, printed))
    return abs(number - other) <= (1 if expected.endswith("%") else 0.03 * number)


def _stripped(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())
