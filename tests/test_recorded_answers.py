"""Every answer of the lookups is what it was when tests/data/lookup_answers.json was written, byte for byte.

``python tests/test_recorded_answers.py`` writes the file again, for a change of answers that is meant.
"""

import asyncio
import base64
import hashlib
import itertools
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from buoyline.errors import BuoylineError
from buoyline.lookups import Answer, Retrieved, glob, grep, query, read, retrieval_tool, retrieve, search
from buoyline.lookups.retrieve import retrieve_lines
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace
Call: TypeAlias = dict[str, Any]
Lookup: TypeAlias = Callable[..., Retrieved | Answer]

RECORDED = Path(__file__).parent / "data" / "lookup_answers.json"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
_SHOWN_CHARS = 240
_RANDOM_CALLS = 300
_MAX_PAGES = 12

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PLAIN = "\n".join(f"line {n}{' ERROR' if n in {3, 5, 40} else ''}" for n in range(1, 61))
WIDE = json.dumps({"users": [{"id": n, "name": f"user {n}", "role": "admin" if n % 40 == 7 else "member"}
                             for n in range(200)]}, separators=(",", ":"))  # fmt: skip
TEXTS = {
    "plain": PLAIN,
    "wide": WIDE,
    "empty": "",
    "end": "a\nb\n",
    "blank": "\n\n\n",
    "odd": "a\ud800b\r\n\x00\u2028\u202e tab\t end\r\n漢字 é \x1b[31m\r",
    "forged": "a\n---\n[9 matches for /x/]\n> 1| a\n",
    "log": "".join(f"12:00:{n % 60:02} {'ERROR' if n % 37 == 5 else 'INFO'} step {n} of the run\n" for n in range(500)),
    "long": "first\n" + "".join(f"needle{n:05} {'some other words ' * 200}"[:3_000] for n in range(12)) + "\nlast\n",
    "lines": "".join(f"{'é漢x' * (n * 97 % 700)}needle{n}\n" for n in range(30)),
}
REFERENCES = [
    *(f"sessions/s1/tool_result-{name}.txt" for name in TEXTS),
    *("sessions/s1/tool_result-wide.view.txt", "tool_result-log.txt", "call-log", " [tool_result-log.txt:10-20,31] "),
    *("tool_result-plain.txt:3-5", "plain:40", "plain:55-99", "plain:70", "plain:0", "plain:5:3"),
    *("sessions/s1/tool_result-wide.view.txt:4-6", "sessions/s1/tool_result-wide.txt:1:2001"),
    *("long:2:3001", "long:2:999999", "lines:9:1001", "mixed", "pictures", "twice", "lo", "nothing of the kind", ""),
    *("journal.jsonl", "sessions/s1", "../s2/x", "s2-only", "sessions/s2/tool_result-s2-only.txt"),
    *("transcript.md", "context.jsonl", "transcript.md:2-4"),
]
PATTERNS = [
    *("ERROR", "line 4", "needle[0-9]+", "admin", '"id":47,', "^", "$", "step .*9 ", "(", "[", "none such", ""),
    *("x" * 1_001, "a\nb", "é漢"),
]
OPTIONS: list[Call] = [
    *({"pattern": pattern} for pattern in PATTERNS),
    *({"context_lines": lines} for lines in (0, 3, -5, "2", 1.5, True)),
    *({"line_range": {"start": first, "end": last}} for first, last in ((1, 2), (2, 900), (0, 4), (9, 4), ("3", 4.0))),
    *({"line_range": given} for given in ({}, {"start": 1}, [1, 2], "1-2")),
    {"whole": True},
    {"whole": True, "pattern": "e"},
    {"pattern": "ERROR", "line_range": {"start": 4, "end": 50}, "context_lines": 1},
]


def filled(workspace: Workspace) -> list[str]:
    """Offload the same to each workspace; return the references of all payloads in the order in which they came."""
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    image = {"type": "image", "source": source}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF-1.7 \0").decode()}
    blocks = [
        *({"type": "text", "text": PLAIN}, image, {"type": "text", "text": "last words\n"}),
        {"type": "document", "source": pdf, "title": "tide] table"},
    ]

    async def fill() -> list[str]:
        others = [("s1", "twice", "one\n"), ("s1", "twice", "two\n"), ("s2", "s2-only", "b\n")]
        for session, call_id, content in (*(("s1", name, text) for name, text in TEXTS.items()), *others):
            message: Call = {"role": "tool", "tool_call_id": call_id, "content": content}
            await workspace.offload_tool_result(session, message)
        call_log = [{"type": "text", "text": TEXTS["log"]}, image]
        contents: dict[str, list[Any]] = {"mixed": blocks, "pictures": [image] * 7, "call-log": call_log}
        for name, parts in contents.items():
            message = {"type": "tool_result", "tool_use_id": name, "content": parts}
            await workspace.offload_tool_result("s1", message)
        bedrock = [{"json": {"a": [1, {"b": None}], "c": 1.5}}, {"text": PLAIN}]
        await workspace.offload_tool_result("s1", {"toolResult": {"toolUseId": "json", "content": bedrock}})
        await workspace.archive("s1", [{"role": "user", "content": f"question {n}"} for n in range(9)])
        payloads = [
            *((PNG, "image/png"), (b"%PDF-1.7 \0", "application/pdf"), (b'{"a": 1.50, "b": [2]}', "application/json")),
            *(("<p>\nnéedle\n</p>".encode(), "text/html"), (b"one\nbefore (3 behind\n\xff\xfe\n", "text/plain")),
            *((b"\x00\x01\x02", "application/octet-stream"), (b"\n", "text/plain"), (b"a,b\n1,2\n", "text/csv")),
        ]
        stored = [await workspace.offload_data_block(_block(content, media)) for content, media in payloads]
        return [block["source"]["data"] for block in stored]

    return ["json", *asyncio.run(fill())]


def _block(content: bytes, media_type: str) -> dict[str, Any]:
    data = base64.b64encode(content).decode()
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def calls(payloads: list[str]) -> Iterator[Call]:
    """Yield what is asked for: each reference as it is, each option of some, and a drawn choice of all together."""
    references = [*REFERENCES, *payloads]
    for reference in references:
        yield {"reference": reference}
        yield {"reference": reference, "pattern": "e", "context_lines": 0}
    for reference in ("sessions/s1/tool_result-plain.txt", "wide", "mixed", "json", *payloads[3:6]):
        for known in OPTIONS:
            yield {"reference": reference, **known}
    drawn = random.Random(719)  # noqa: S311 - no secret is drawn
    for _ in range(_RANDOM_CALLS):
        first = drawn.randint(1, 60)
        options: list[Call] = [
            {"pattern": drawn.choice(PATTERNS)},
            {"line_range": {"start": first, "end": first + drawn.randint(0, 900)}},
            {"context_lines": drawn.randint(-1, 9)},
            {"max_tokens": drawn.choice([60, 120, 200, 700, None])},
        ]
        chosen = drawn.sample(options, drawn.randint(0, 4))
        yield {
            "reference": drawn.choice(references),
            **{name: value for each in chosen for name, value in each.items()},
        }


def other_lookups() -> Iterator[tuple[Lookup, Call]]:
    """Yield calls of `read`, `grep`, `search`, `glob` and `query`."""
    drawn = random.Random(720)  # noqa: S311 - no secret is drawn
    for path in (
        *(f"tool_result-{name}.txt" for name in TEXTS),
        "wide:4-9,20",
        "call-log",
        "transcript.md",
        "data",
        "x",
    ):
        yield read, {"path": path}
        for _ in range(4):
            first = drawn.randint(1, 60)
            options: list[Call] = [
                {"start": first},
                {"end": first + drawn.randint(0, 90)},
                {"column": drawn.choice([1, 2, 1_001, 2_500])},
                {"max_tokens": drawn.choice([60, 200, 700])},
                {"whole": True},
            ]
            chosen = drawn.sample(options, drawn.randint(0, 3))
            yield read, {"path": path, **{name: value for each in chosen for name, value in each.items()}}
    for pattern in (*PATTERNS, "Error", "neadle", "LINE 40"):
        yield grep, {"pattern": pattern}
        for _ in range(4):
            options = [
                {"path": drawn.choice(["tool_result-*.txt", "long", "log:40-300", ["plain", "lines"]])},
                {"context": drawn.choice([0, 1, 7])},
                {"literal": True},
                {"ignore_case": True},
                {"max_tokens": drawn.choice([60, 200, 310, 700])},
            ]
            chosen = drawn.sample(options, drawn.randint(0, 4))
            yield grep, {"pattern": pattern, **{name: value for each in chosen for name, value in each.items()}}
    for query_text in ("which step had an ERROR", '"line 40" user-7', "needle00004 words", "漢", "?"):
        for max_tokens in (120, 600, 2_000):
            yield search, {"query": query_text, "max_tokens": max_tokens}
            yield search, {"query": query_text, "max_tokens": max_tokens, "path": ["long", "log:1-90"], "start": 2}
    for pattern in ("tool_*", "sessions/**/*.txt", "[a-m]*.txt", "sessions/s1/*.md", "data/*", "none", "", "x" * 1_001):
        for max_tokens in (60, 300, 2_000):
            yield glob, {"pattern": pattern, "max_tokens": max_tokens}
    for expression in ("keys(@)", "users[?role=='admin'].id", "SELECT count(*) FROM t1_users", "nonsense("):
        yield query, {"path": "wide", "expression": expression, "max_tokens": 200}


def answered(
    workspace: Workspace, call: Mapping[str, Any], session: str | None, lookup: Lookup = retrieve
) -> list[list[Any]]:
    """Return the answers to *call*, and to each call that an answer says goes on, to the end."""
    arguments: Call = {"counter": _counter(workspace), "session": session, **call}
    answers: list[list[Any]] = []
    while len(answers) < _MAX_PAGES:
        try:
            found = lookup(workspace, **arguments)
        except BuoylineError as error:
            return [*answers, [str(error), type(error).__name__]]
        parts = [
            [type(part).__name__, part.text, _digest(getattr(part, "content", None))]
            for part in getattr(found, "parts", ())
        ]
        answers.append([*_fields(found), parts])
        if not found.next:
            return answers
        arguments |= found.next
    return answers


def _root(workspace: Workspace) -> str:
    return f"{workspace.workdir}/" if isinstance(workspace, LocalWorkspace) else "memory:///"


def _counter(workspace: Workspace) -> Callable[[str], int]:
    """Count a token for each four characters, the same wherever the workspace is."""
    root = _root(workspace)
    return lambda text: -(-len(text.replace(root, "")) // 4)


def _digest(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()[:16]


def _fields(found: Retrieved | Answer) -> list[Any]:
    lines = [
        [line.path, line.number, line.column, line.content, line.rest, line.is_abridged, line.is_hit]
        for line in found.lines
    ]
    return [found.text, lines, getattr(found, "paths", ()), found.total, dict(found.next)]


def _recorded(workspace: Workspace, asked: object, answers: list[list[Any]]) -> list[str]:
    """Return the call, the text of the first answer as far as the file has room for it, and the hash of all answers."""
    root = _root(workspace)
    call = json.dumps(asked).replace(root, "")
    spelled = _TIME.sub("", json.dumps(answers).replace(root, "").replace(root.rstrip("/"), "."))
    return [call, json.loads(spelled)[0][0][:_SHOWN_CHARS], hashlib.sha256(spelled.encode()).hexdigest()[:16]]


def answers_in_session(workspace: Workspace, payloads: list[str]) -> Iterator[list[str]]:
    """Yield what is recorded of each call that is made with a session."""
    for call in calls(payloads):
        yield _recorded(workspace, call, answered(workspace, call, "s1"))
    tool = retrieval_tool(workspace, "s1", counter=_counter(workspace), max_tokens=900)
    for call in (
        *({"reference": "plain", "pattern": "ERROR"}, {"reference": "plain"}, {"reference": "wide", "whole": True}),
        *({"reference": "mixed"}, {"reference": "wide", "colour": 1}, {}, {"reference": "plain", "whole": 3}),
    ):
        yield _recorded(workspace, ["tool", call], [[asyncio.run(tool.call(**call))]])


def other_answers(workspace: Workspace, payloads: list[str]) -> Iterator[list[str]]:
    """Yield what is recorded of calls for all sessions, and of content that is in no workspace."""
    for call in itertools.islice(calls(payloads), 120):
        yield _recorded(workspace, [None, call], answered(workspace, call, None))
    chosen: list[Call] = [{}, {"max_tokens": 300}, *OPTIONS[:6], *OPTIONS[15:19], *OPTIONS[21:24]]
    for (name, text), options in itertools.product(TEXTS.items(), chosen):
        for reference in (name, f"{name}:2:3"):
            asked = {"reference": reference, "counter": _counter(workspace), **options}
            try:
                answers = [_fields(retrieve_lines(text.encode("utf-8", "surrogatepass"), **asked))]
            except BuoylineError as error:
                answers = [[str(error), type(error).__name__]]
            yield _recorded(workspace, ["lines", reference, options], answers)
    for lookup, call in other_lookups():
        for session in ("s1", None) if lookup in {read, glob, search} else ("s1",):
            described = [lookup.__name__, session, call]
            yield _recorded(workspace, described, answered(workspace, call, session, lookup))


def _expected() -> list[list[str]]:
    recorded: list[list[str]] = json.loads(RECORDED.read_text("utf-8"))
    return recorded


def test_every_answer_is_what_it_was(tmp_path: Path) -> None:
    workspace, expected = LocalWorkspace(tmp_path / "w", durability="off"), _expected()
    payloads = filled(workspace)
    found = [*answers_in_session(workspace, payloads), *other_answers(workspace, payloads)]
    assert len(found) == len(expected) > 900
    for answer, before in zip(found, expected, strict=True):
        assert answer == before


def test_every_answer_from_memory_is_that_from_disk() -> None:
    workspace, expected = MemoryWorkspace(), _expected()
    count = 0
    for answer, before in zip(answers_in_session(workspace, filled(workspace)), expected, strict=False):
        assert answer == before
        count += 1
    assert count > 500


def _write() -> None:
    with tempfile.TemporaryDirectory() as directory:
        workspace = LocalWorkspace(Path(directory) / "w", durability="off")
        payloads = filled(workspace)
        answers = [*answers_in_session(workspace, payloads), *other_answers(workspace, payloads)]
    rows = ",\n".join(json.dumps(answer) for answer in answers)
    RECORDED.write_text(f"[\n{rows}\n]\n", "utf-8")


if __name__ == "__main__":
    _write()
