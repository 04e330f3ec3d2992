"""Makes texts of ten kinds and of any size, for the measures of time in `previews.py`."""

import json
import random
from collections.abc import Iterator

_TEXT = """
    account balance cache client commit config counter cursor daemon device driver editor engine
    fallback filter folder format gateway header index journal kernel ledger lookup marker member metric
    module network notice object packet parser policy quota reader record region replica request result
    router sample schema segment server session shard signal socket source stream symbol table target
    thread ticket tracker update vector volume worker writer
"""
WORDS = tuple(_TEXT.split())
MADE_CHARS = 4_000_000
"""Longer texts repeat their beginning."""

KINDS = ("log", "code", "CSV", "HTML", "JSON", "diff", "tests", "Markdown", "one line", "binary")


def made(kind: str, size: int) -> str:
    """Return a text of *kind* with *size* characters; a JSON document is a little shorter or longer."""
    rng = random.Random(f"{kind} 7")  # noqa: S311 - no secret is drawn
    if kind == "JSON":
        return _document(size, rng)
    if kind == "binary":
        return rng.randbytes(min(size, 1 << 20)).decode("latin-1") * -(-size // (1 << 20))
    chunk, pieces = 0, list[str]()
    for piece in _PIECES[kind](rng):
        pieces.append(piece)
        chunk += len(piece)
        if chunk >= min(size, MADE_CHARS):
            break
    text = "".join(pieces)
    return (text * -(-size // len(text)))[:size]


def _some(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def _log(rng: random.Random) -> Iterator[str]:
    n = 0
    while True:
        n += 1
        level = rng.choices(("INFO", "DEBUG", "WARN", "ERROR"), (80, 15, 4, 1))[0]
        said = rng.choice((f"handled request {rng.randbytes(4).hex()} in {rng.randrange(97)} ms", _some(rng, 6)))
        yield (
            f"2026-01-01 12:{n // 60 % 60:02}:{n % 60:02}.{n % 1000:03} {level} [{rng.choice(WORDS)}-{n % 8}]"
            f" app.{rng.choice(WORDS)}: {said}\n"
        )


def _code(rng: random.Random) -> Iterator[str]:
    while True:
        name, other = rng.choice(WORDS), rng.choice(WORDS)
        number = rng.randrange(10_000)
        yield (
            f"def {name}_{other}_{number}({other}: int, {name}: str = '{_some(rng, 2)}') -> int:\n"
            f'    """Return the {_some(rng, 5)}."""\n'
            f"    if {other} > {number}:\n        raise ValueError(f'no {name} in {{{other}}}')\n"
            f"    {name}s = [{other} + {number} for {other} in range({number})]\n    return sum({name}s)\n\n\n"
        )


def _table(rng: random.Random) -> Iterator[str]:
    yield "id,name,region,price,stock,updated\n"
    n = 0
    while True:
        n += 1
        price, day = rng.random() * 90, n % 28 + 1
        yield f"{n},{_some(rng, 2)},{rng.choice('NSEW')},{price:.2f},{rng.randrange(40)},2026-01-{day:02}\n"


def _page(rng: random.Random) -> Iterator[str]:
    yield "<!DOCTYPE html>\n<html><head><title>The ledger of volumes</title></head>\n<body>\n<h1>Volumes</h1>\n"
    while True:
        yield (
            f'<div class="{rng.choice(WORDS)}" id="n{rng.randrange(10**6)}">\n<h2>{_some(rng, 3)}</h2>\n'
            f"<p>{_some(rng, 30)} <a href='/{rng.choice(WORDS)}'>{_some(rng, 2)}</a> {_some(rng, 9)}.</p>\n"
            f"<ul><li>{_some(rng, 4)}</li><li>{_some(rng, 4)}</li></ul></div>\n"
        )


def _diff(rng: random.Random) -> Iterator[str]:
    while True:
        path = f"src/{rng.choice(WORDS)}/{rng.choice(WORDS)}_{rng.randrange(999)}.py"
        yield f"diff --git a/{path} b/{path}\nindex 1111111..2222222 100644\n--- a/{path}\n+++ b/{path}\n"
        line = 1
        for _ in range(rng.randrange(1, 5)):
            line += rng.randrange(20, 90)
            yield f"@@ -{line},6 +{line},7 @@ def {rng.choice(WORDS)}():\n"
            yield "".join(f"     {_some(rng, 4)}\n" for _ in range(3))
            yield f"-    {_some(rng, 5)}\n+    {_some(rng, 5)}\n+    {_some(rng, 6)}\n     {_some(rng, 3)}\n \n"


def _tests(rng: random.Random) -> Iterator[str]:
    n = 0
    while True:
        n += 1
        name = f"tests/test_{rng.choice(WORDS)}.py::test_{rng.choice(WORDS)}_{n}"
        if n % 200:
            yield f"{name} PASSED [{n % 100:3}%]\n"
        else:
            yield (
                f"{name} FAILED [{n % 100:3}%]\n    def test_it():\n>       assert total({n}) == {n + 1}\n"
                f"E       assert {n} == {n + 1}\n\ntests/test_{rng.choice(WORDS)}.py:{n % 300}: AssertionError\n"
            )


def _markdown(rng: random.Random) -> Iterator[str]:
    yield "# The ledger of volumes\n\n"
    while True:
        yield (
            f"## {_some(rng, 3).capitalize()}\n\n{_some(rng, 30).capitalize()}, with `{rng.choice(WORDS)}`.\n\n"
            f"- {_some(rng, 6)}\n- **{_some(rng, 2)}**: {_some(rng, 5)}\n\n```python\n{rng.choice(WORDS)} = 1\n```\n\n"
        )


def _one_line(rng: random.Random) -> Iterator[str]:
    while True:
        yield f"{_some(rng, 8)} {rng.randrange(10**5)} "


def _document(size: int, rng: random.Random) -> str:
    records = [
        {"id": n, "name": _some(rng, 2), "tags": rng.sample("abcdef", 2), "size": n % 97, "open": n % 3 == 0}
        for n in range(min(size, MADE_CHARS) // 118)
    ]
    text = json.dumps(records, indent=1)
    if size <= MADE_CHARS:
        return text
    return "[" + ",".join([text[1:-1]] * -(-size // len(text))) + "]"


_PIECES = {
    "log": _log, "code": _code, "CSV": _table, "HTML": _page, "diff": _diff, "tests": _tests, "Markdown": _markdown,
    "one line": _one_line,
}  # fmt: skip
