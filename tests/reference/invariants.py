"""What must hold whichever version wrote a folder, and whatever failed: read from the files, as in docs/format.md."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from reference.player import Plain
from reference.scripts import Message

_TAGS = frozenset({"type", "format", "media_type"})
"""Keys of blocks that do not say anything by themselves: a block that is offloaded becomes one of text."""


def lost_messages(workdir: Path, said: Sequence[Message], session: str = "s1") -> list[str]:
    """Return what of *said* is neither at its place in archive or window nor in an offloaded file."""
    folder = workdir / "sessions" / session
    archive, window = (_values(folder / name) for name in ("context.jsonl", "window.jsonl"))
    note = [record for record in _values(folder / "journal.jsonl") if record["op"] == "window"][-1]
    kept = [*archive[: note["first"]], *window[len(note["head"]) :]]
    files = {path.read_bytes().decode("utf-8", "surrogatepass") for path in folder.glob("tool_result-*.txt")}
    blobs = {path.stem for path in (workdir / "data").glob("*")}
    return [
        f"message {number}: {text[:80]!r}"
        for number, (message, found) in enumerate(zip_longest(said, kept))
        for text in _missing(message, found, files, blobs)
    ]


def _values(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _missing(message: Message | None, found: Plain, files: set[str], blobs: set[str]) -> Iterator[str]:
    if message is None:
        yield f"nobody said {found}"
        return
    shown = set(_strings(found))
    for text in _strings(message):
        if text not in shown and text not in files and _digest(text) not in blobs:
            yield text


def _strings(value: Plain) -> Iterator[str]:
    """Yield each text in a message; of a URL with data, the data."""
    if isinstance(value, str):
        yield value.rpartition(";base64,")[2] if value.startswith("data:") else value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _TAGS:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _digest(text: str) -> str:
    """Return the name that the blob of these bytes has; nothing if it is no base64."""
    try:
        return hashlib.sha256(base64.b64decode(text, validate=True)).hexdigest()
    except ValueError:
        return ""


def refused_because(messages: Sequence[Message]) -> str:
    """Return why a provider would refuse *messages*: a result without a call, or a call that is passed over."""
    waiting = Counter[str]()
    for number, message in enumerate(messages):
        calls, results = _ids(message)
        if results and Counter(results) - waiting:
            return f"message {number} has results {results}, and {dict(waiting)} wait for one"
        waiting -= Counter(results)
        if waiting and not results:
            return f"message {number} comes before the results of {dict(waiting)}"
        waiting += Counter(calls)
    return ""


def _ids(message: Message) -> tuple[list[str], list[str]]:
    """Return the ids of calls and of results in a message of any of the three dialects."""
    calls = [call["id"] for call in message.get("tool_calls") or ()]
    results = [message["tool_call_id"]] if message["role"] == "tool" else []
    content = message["content"] if isinstance(message["content"], list) else []
    for block in content:
        if block.get("type") == "tool_use":
            calls.append(block["id"])
        elif block.get("type") == "tool_result":
            results.append(block["tool_use_id"])
        elif "toolUse" in block:
            calls.append(block["toolUse"]["toolUseId"])
        elif "toolResult" in block:
            results.append(block["toolResult"]["toolUseId"])
    return calls, results
