"""The program that evaluates an expression on a JSON document, in a process of its own.

Parsing 64 MB of JSON holds the interpreter lock for half a second, and an expression that a model wrote may take any
time and any memory. A process can be ended, and its limits are the system's. Nothing of buoyline is imported here: it
would take longer than the work.

Run as ``python -I evaluation.py DIRECTORY EXPRESSION MAX_BYTES``, with the document as standard input and the directory
that jmespath is in. Writes the result, indented; exit status 0, or 3 with what is wrong in words.
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

_WRONG = 3
_MEMORY_BYTES = 3 << 30
_SHOWN_KEYS = 20


def main() -> int:
    """Evaluate what the arguments say; return the exit status."""
    directory, expression, max_bytes = sys.argv[1:]
    _limit_memory()
    try:
        content = "".join(_pieces(directory, expression, int(max_bytes)))
    except MemoryError:
        content = "it takes too much memory; narrow the expression"
    except RecursionError:
        content = "the document or the expression is nested too deeply"
    except ValueError as error:  # jmespath's errors are some, too
        content = " ".join(str(error).split())
    else:
        sys.stdout.buffer.write(content.encode("utf-8", "backslashreplace"))
        return 0
    sys.stdout.buffer.write(content[:2_000].encode("utf-8", "backslashreplace"))
    return _WRONG


def _pieces(directory: str, expression: str, max_bytes: int) -> Iterator[str]:
    """Yield the result in pieces.

    Raises:
        ValueError: The document is not JSON, or the expression is none, or the result is too large.
    """
    sys.path.append(directory)
    import jmespath  # noqa: PLC0415 - the path to it is known only now

    compiled = jmespath.compile(expression)
    document = _parsed(sys.stdin.buffer.read().decode("utf-8-sig", "replace"))
    result = compiled.search(document)
    size = 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(result):
        size += len(piece)
        if size > max_bytes:
            problem = f"the result has more than {max_bytes:,} bytes; narrow it, e.g. with [:10], or ask for length(@)"
            raise ValueError(problem)
        yield piece
    if result is None:
        yield f"\n{_shape(document)}"


def _parsed(text: str) -> Any:
    """Return the document in *text*; of several, one a line, the list of them."""
    try:
        return json.loads(text)
    except ValueError as error:
        whole = error
    documents: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            documents.append(json.loads(line))
        except ValueError as error:
            if not documents:
                problem = f"the file is not JSON: {whole}"
            else:
                problem = f"the file is neither JSON nor JSON lines: line {number}: {error}"
            raise ValueError(problem) from error
    return documents


def _shape(document: Any) -> str:
    """Say what there is instead of nothing."""
    size = len(document) if isinstance(document, (dict, list)) else 0  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(document, dict):
        names: Iterator[Any] = itertools.islice(document, _SHOWN_KEYS)  # pyright: ignore[reportUnknownArgumentType]
        keys = ", ".join(json.dumps(name)[:80] for name in names)
        return f"nothing there; the document is an object with {size} keys: {keys}"
    if isinstance(document, list):
        return f"nothing there; the document is an array of {size}; begin with [0], or [*].key"
    return f"nothing there; the document is a {type(document).__name__}"


def _limit_memory() -> None:
    import resource  # noqa: PLC0415 - not on every system

    with contextlib.suppress(OSError, ValueError):  # a hint on macOS, which has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


if __name__ == "__main__":
    sys.exit(main())
