"""A session on disk, read with the standard library alone.

    python examples/inspect_session.py [DIRECTORY]

Writes a small session, then prints its messages, the records of its state, the beginning of its transcript, and the
lines that its summary cites. The session is kept in DIRECTORY; without it, nothing is kept.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from buoyline import ContextWindow


async def write_session(directory: Path) -> None:
    """Fill a window with a short conversation and a large tool result, then compact it."""
    readings = "".join(f"buoy {number:04} depth {number * 7 % 90} m\n" for number in range(1_000))
    async with await ContextWindow.open(directory, "soundings") as window:
        call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "log.txt"}'}}
        await window.add({"role": "user", "content": "Which buoy is deepest? Never round a depth."})
        await window.add({"role": "assistant", "content": "I read log.txt.", "tool_calls": [call]})
        await window.add({"role": "tool", "tool_call_id": "call_1", "content": readings})
        await window.add({"role": "assistant", "content": "Buoy 0077 is deepest in log.txt, with 89 m."})
        await window.add({"role": "user", "content": "Thank you. Now the shallowest."})
        await window.compress(before=4)  # all but the last message; otherwise it waits until the window fills up


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON values of a file, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def inspect(session: Path) -> None:
    """Print the content of *session*."""
    print("context.jsonl: the messages, as their framework writes them")
    for message in json_lines(session / "context.jsonl"):
        print(f"  {message['role']:9} {str(message['content'])[:60]!r}")

    print("state.jsonl: what is in the context, and from when on")
    for record in json_lines(session / "state.jsonl"):
        print(f"  {record['op']:9} {', '.join(sorted(record.keys() - {'op', 'buoyline'}))}")

    print("transcript.md: those that left the context, to read")
    transcript = (session / "transcript.md").read_text(encoding="utf-8").split("\n")
    print("".join(f"  {number:3} {line[:70]}\n" for number, line in enumerate(transcript[:12], 1)), end="")

    print("summaries.jsonl: the lines that the last summary cites")
    for pointer in json_lines(session / "summaries.jsonl")[-1]["pointers"]:
        lines = (session / pointer["path"]).read_text(encoding="utf-8").split("\n")
        print(f"  {pointer['path']}:{pointer['start']}-{pointer['end']}")
        print("".join(f"    {line[:70]}\n" for line in lines[pointer["start"] - 1 : pointer["end"]][:4]), end="")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        workdir = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        asyncio.run(write_session(workdir))
        inspect(workdir / "sessions" / "soundings")
