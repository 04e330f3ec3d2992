"""Print the lines of code of each room beside its budget; exit 1 if one is over.

    python scripts/sizes.py [--one-result]

The budgets are in pyproject.toml, `tool.buoyline.budgets`. A line of code holds at least one token that is neither a
comment nor part of a string that stands alone (a docstring). `--one-result` prints instead how many calls, functions
and modules one tool result takes from `add` to the `prepare` that offloads it: in all threads, without the primitives
for files, the token counter and previews.
"""

import argparse
import ast
import asyncio
import io
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "buoyline"

NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
# Not for users of the library: they are no part of the budget of words.
UNCOUNTED_PAGES = {"AGENTS.md", "ARCHITECTURE.md", "llms.txt"}
# What a result passes through and is not its own way: primitives for files, tokens, previews.
PRIMITIVES = ("workspace/disk.py", "tokens/", "previews/", "errors.py")


def main() -> int:
    """Print the table, or the way of one result; return 1 if a room is over its budget."""
    parser = argparse.ArgumentParser(description="Print the sizes of the project.", epilog="Example: make sizes")
    parser.add_argument("--one-result", action="store_true", help="count the calls of one result instead")
    if parser.parse_args().one_result:
        for name, figure in asyncio.run(one_result()).items():
            print(f"{name:<28}{figure:>8,}")
        return 0
    over = 0
    for name, size, budget in sizes():
        over += size > budget
        print(f"{name:<28}{size:>8,}{budget:>8,}{f'   over by {size - budget:,}' if size > budget else ''}")
    return int(over > 0)


def sizes() -> Iterator[tuple[str, int, int]]:
    """Yield the name, the size and the budget of each room, of all of the source, and of what is beside it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    budgets = project["tool"]["buoyline"]["budgets"]
    lines = {path.relative_to(SOURCE).as_posix(): code_lines(path) for path in SOURCE.rglob("*.py")}
    left = dict(lines)
    # A room within another one is counted before it.
    for room, budget in sorted(budgets["rooms"].items(), key=lambda item: -len(item[0])):
        names = [name for name in left if name.startswith(f"{room}/") or name == f"{room}.py"]
        yield room, sum(map(left.pop, names)), budget
    yield "(other files)", sum(left.values()), budgets["other"]
    yield "all of src", sum(lines.values()), budgets["src"]
    yield "files of src", len(lines), budgets["files"]
    for folder in ("tests", "benchmarks"):
        yield folder, sum(map(code_lines, (ROOT / folder).rglob("*.py"))), budgets[folder]
    yield "words of Markdown", words(pages()), budgets["words"]
    yield "words of README", words([ROOT / "README.md"]), budgets["readme_words"]


def code_lines(path: Path) -> int:
    """Return how many lines of *path* hold code."""
    text = path.read_text(encoding="utf-8")
    alone: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            alone.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - alone)


def pages() -> Iterator[Path]:
    """Yield the pages for users."""
    yield from (page for page in ROOT.glob("*.md") if page.name not in UNCOUNTED_PAGES)
    yield from (page for page in (ROOT / "docs").rglob("*.md") if "internals" not in page.parts)


def words(paths: Iterable[Path]) -> int:
    """Return how many words *paths* hold."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


async def one_result() -> dict[str, int]:
    """Return how many calls, functions and modules one result takes from `add` to the `prepare` that offloads it."""
    from buoyline import ContextWindow  # noqa: PLC0415 - the other figures need no import of the package

    calls: Counter[tuple[str, str]] = Counter()
    is_counting = False

    def count(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if is_counting and event == "call" and name.startswith(str(SOURCE)):
            module = name.removeprefix(f"{SOURCE}/")
            if not any(part in module for part in PRIMITIVES):
                calls[module, frame.f_code.co_qualname] += 1

    threading.setprofile(count)  # before the window starts its threads
    with tempfile.TemporaryDirectory() as directory:
        async with await ContextWindow.open(directory, "sizes", size=128_000) as window:
            await window.add({"role": "user", "content": "Run the tests."})
            for number in (1, 2):  # the second is counted: the first starts the session
                call = {"id": f"call_{number}", "type": "function", "function": {"name": "test", "arguments": "{}"}}
                await window.add({"role": "assistant", "content": None, "tool_calls": [call]})
                text = "".join(f"line {line}: ok {number}\n" for line in range(5_000))
                is_counting = number == 2  # noqa: PLR2004 - as in the line of the loop
                sys.setprofile(count)
                await window.add({"role": "tool", "tool_call_id": call["id"], "content": text})
                await window.prepare()
                sys.setprofile(None)
            is_counting = False
    threading.setprofile(None)
    return {
        "calls of one result": calls.total(),
        "functions of one result": len(calls),
        "modules of one result": len({module for module, _ in calls}),
    }


if __name__ == "__main__":
    sys.exit(main())
