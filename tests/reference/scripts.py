"""Scripts to play: conversations from a seed, in three dialects, and operations on a window. Imports no buoyline."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import made_outputs

Message = dict[str, Any]
Operation = dict[str, Any]

DIALECTS: Final = ("anthropic", "bedrock", "openai")
OFFLOADERS: Final = ("local", "memory", "bare", "none")
PRESETS: Final = (
    "chat",
    "coding-agent",
    "long-conversations",
    "research-agent",
    "small-local-model",
    "tool-heavy",
    "tool-heavy-with-summarization",
)
TOOL: Final = {"name": "look", "description": "Look at a file.", "input_schema": {"type": "object"}}
PLAIN_CONFIG: Final = {"tool_result_limit": 300, "preview_tokens": 150}

_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x08\x00\x00\x00\x06"
_NAMES = "anchor buoy chart depth ebb fairway gale harbour inlet jetty keel lantern mooring northeast oar pier"
_WORDS = re.findall(r"\w+", _NAMES)


def chance_of(seed: object) -> Random:
    """Return a source of chance that is the same for the same seed."""
    return Random(f"reference {seed}")  # noqa: S311 - repeatable


def sentence(chance: Random, count: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(count)).capitalize() + "."


def picture(number: int) -> str:
    """Return what a picture's bytes are in base64."""
    return base64.b64encode(_PNG + number.to_bytes(4, "big") * 8).decode()


# Texts of tools


def _log(chance: Random, size: int) -> str:
    levels = ("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR")
    return "\n".join(
        f"2026-03-{1 + at % 28:02} 10:{at % 60:02}:07 {chance.choice(levels)} harbour.{chance.choice(_WORDS)}: "
        f"{sentence(chance, 6)} id={chance.randrange(16**8):08x}"
        for at in range(size)
    )


def _json_list(chance: Random, size: int) -> str:
    return json.dumps(
        [
            {"id": at, "name": chance.choice(_WORDS), "depth_m": round(chance.random() * 40, 2), "open": at % 3 == 0}
            for at in range(size)
        ]
    )


def _json_lines(chance: Random, size: int) -> str:
    return "".join(json.dumps({"n": at, "pier": chance.choice(_WORDS), "red": None}) + "\n" for at in range(size))


def _table(chance: Random, size: int) -> str:
    rows = (f"{at},{chance.choice(_WORDS)},{chance.randrange(9000)}" for at in range(size))
    return "\n".join(["id,buoy,depth", *rows, "broken,row"])


def _program(chance: Random, size: int) -> str:
    return "\n\n".join(
        f"def {chance.choice(_WORDS)}_{at}(depth: int) -> int:\n"
        f'    """{sentence(chance, 5)}"""\n'
        f"    return depth * {chance.randrange(99)}"
        for at in range(size)
    )


def _patch(chance: Random, size: int) -> str:
    return "\n".join(
        f"--- a/{word}.py\n+++ b/{word}.py\n@@ -{at},2 +{at},2 @@\n-old = {at}\n+new = {at + 1}\n same = True"
        for at in range(1, size)
        for word in [chance.choice(_WORDS)]
    )


def _one_line(chance: Random, size: int) -> str:
    return " ".join(sentence(chance, 9) for _ in range(size * 4))


def _odd_lines(chance: Random, size: int) -> str:
    return "\r\n".join(f"{sentence(chance, 4)}\u2028{at}\x1b[31m \u202e{'ä' * (at % 7)}" for at in range(size))


def _page(chance: Random, size: int) -> str:
    rows = "".join(f"<li class='b{at}'>{sentence(chance, 8)}</li>\n" for at in range(size))
    return f"<!DOCTYPE html>\n<html><head><title>Buoys</title></head><body><ul>\n{rows}</ul></body></html>"


def _secrets(chance: Random, size: int) -> str:
    return "\n".join(f"token: secret-{chance.randrange(999)} {sentence(chance, 3)}" for _ in range(size))


KINDS: Final[Sequence[Callable[[Random, int], str]]] = (
    _log,
    _json_list,
    _json_lines,
    _table,
    _program,
    _patch,
    _one_line,
    _odd_lines,
    _page,
    _secrets,
)


def texts(shared_data: Path | None) -> Iterator[tuple[str, str]]:
    """Yield names and texts whose previews are compared; recorded outputs of tools, too, if there are some."""
    for kind in KINDS:
        for size in (0, 1, 7, 60, 900):
            yield f"{kind.__name__}-{size}", kind(chance_of((kind.__name__, size)), size)
    for name, made in sorted(vars(made_outputs).items()):
        if isinstance(made, made_outputs.Made):
            yield name, made.text
    for path in sorted((shared_data / "tool_outputs").rglob("*")) if shared_data is not None else ():
        if path.is_file() and path.stat().st_size < 400_000:
            yield path.name, path.read_bytes().decode("utf-8", "replace")


# Conversations


class Writer:
    """Spells what is said in one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def words(self, role: str, text: str, images: Sequence[int] = ()) -> Message:
        """Return a message of text, and of pictures behind it."""
        if not images and (self.dialect == "openai" or role == "system"):
            return {"role": role, "content": text}
        return {"role": role, "content": [self._text(text), *map(self._image, images)]}

    def calls(self, text: str, calls: Sequence[tuple[str, str, Mapping[str, Any]]], thought: str = "") -> Message:
        """Return an answer of the model with calls of tools: id, name, arguments."""
        if self.dialect == "openai":
            made = [
                {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for i, name, arguments in calls
            ]
            reasoning = {"reasoning_content": thought} if thought else {}
            return {"role": "assistant", "content": text or None, "tool_calls": made, **reasoning}
        if self.dialect == "anthropic":
            blocks: list[Any] = [{"type": "tool_use", "id": i, "name": n, "input": dict(a)} for i, n, a in calls]
            thoughts: list[Any] = [{"type": "thinking", "thinking": thought, "signature": "sig=="}] if thought else []
        else:
            blocks = [{"toolUse": {"toolUseId": i, "name": n, "input": dict(a)}} for i, n, a in calls]
            said = {"reasoningText": {"text": thought, "signature": "sig=="}}
            thoughts = [{"reasoningContent": said}] if thought else []
        return {"role": "assistant", "content": [*thoughts, *([self._text(text)] if text else []), *blocks]}

    def results(self, results: Sequence[tuple[str, str, Sequence[int]]]) -> list[Message]:
        """Return the messages that answer calls: id, text, pictures."""
        if self.dialect == "openai":
            return [
                {
                    "role": "tool",
                    "tool_call_id": i,
                    "content": [self._text(text), *map(self._image, images)] if images else text,
                }
                for i, text, images in results
            ]
        blocks = [(i, [self._text(text), *map(self._image, images)]) for i, text, images in results]
        if self.dialect == "anthropic":
            made: list[Any] = [{"type": "tool_result", "tool_use_id": i, "content": content} for i, content in blocks]
        else:
            made = [{"toolResult": {"toolUseId": i, "status": "success", "content": content}} for i, content in blocks]
        return [{"role": "user", "content": made}]

    def _text(self, text: str) -> Any:
        return {"text": text} if self.dialect == "bedrock" else {"type": "text", "text": text}

    def _image(self, number: int) -> Any:
        content = picture(number)
        if self.dialect == "openai":
            return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
        if self.dialect == "anthropic":
            return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": content}}
        return {"image": {"format": "png", "source": {"bytes": {"$bytes": content}}}}


def conversation(seed: object, dialect: str, turns: int) -> list[Message]:
    """Return messages of a user, an agent and its tools: parallel calls, odd and repeated ids, pictures, reasoning."""
    chance, writer = chance_of((seed, dialect)), Writer(dialect)
    has_system = dialect == "openai" and chance.random() < 0.6
    said = [writer.words("system", "Be exact. Never touch secret-7.")] if has_system else []
    for turn in range(turns):
        pictures = [chance.randrange(99)] if chance.random() < 0.2 else []
        said.append(writer.words("user", f"{turn}: {sentence(chance, chance.randrange(3, 60))}", pictures))
        for step in range(chance.randrange(4)):
            said += _step(chance, writer, f"{turn}_{step}")
        said.append(writer.words("assistant", f"{sentence(chance, 12)} See src/{chance.choice(_WORDS)}.py:{turn}."))
    return said


def _step(chance: Random, writer: Writer, place: str) -> list[Message]:
    count = chance.choice((1, 1, 1, 2, 3))
    names = [chance.choice(("look", "look", "run", "fetch/page")) for _ in range(count)]
    ids = [_call_id(chance, writer.dialect, f"{place}_{number}") for number in range(count)]
    paths = [f"src/{chance.choice(_WORDS)}.py" for _ in range(count)]
    calls = [(i, name, {"path": path, "n": n}) for n, (i, name, path) in enumerate(zip(ids, names, paths, strict=True))]
    results = [(i, _result(chance), [chance.randrange(99)] if chance.random() < 0.1 else []) for i in ids]
    thought = sentence(chance, 9) if chance.random() < 0.3 else ""
    return [
        writer.calls(sentence(chance, 4) if chance.random() < 0.5 else "", calls, thought),
        *writer.results(results),
    ]


def _call_id(chance: Random, dialect: str, place: str) -> str:
    odd = ("call_again", "Call_Again", "read:1/2", "", "aux") if dialect == "openai" else ("call_again", "Call_Again")
    return chance.choice(odd) if chance.random() < 0.15 else f"toolu_{place}"


def _result(chance: Random) -> str:
    if chance.random() < 0.35:
        return sentence(chance, chance.randrange(1, 30))
    return chance.choice(KINDS)(chance, chance.randrange(2, 90))


# Scripts


WHOLE = 1_000_000
"""Tokens of answers that differ by the rows that name calls, so that a limit would cut them at other places."""


def ending(session: str = "s1", *, looks: bool = True) -> list[Operation]:
    """Return operations that show all that is there in the end."""
    folder = f"sessions/{session}"
    lookups: list[Operation] = [
        {"do": "look_around", "max_tokens": 250},
        _look_up("read", path=f"{folder}/transcript.md", start=5, max_tokens=400),
        _look_up("read", path="transcript.md:3-9", session=session),
        _look_up("read", path="nothing.txt"),
        _look_up("grep", pattern="pier|mooring", max_tokens=WHOLE, context=1),
        _look_up("grep", pattern="ERROR", path="tool_result-*.txt", max_tokens=WHOLE, ignore_case=True),
        _look_up("grep", pattern="(", session=session),
        _look_up("grep", pattern="buoy_", literal=True, session=session, confined=True, max_tokens=WHOLE),
        _look_up("search", query="Which pier has a red lantern?", max_tokens=WHOLE),
        _look_up("search", query="deepest inlet northeast", start=2, session=session, max_tokens=WHOLE),
        _look_up("glob", pattern="**/tool_result-*.txt", max_tokens=200),
        _look_up("glob", pattern="*.jsonl", session=session),
        _look_up("query", path=f"{folder}/window.jsonl", expression="[].role"),
        _look_up("query", path=f"{folder}/context.jsonl", expression="SELECT count(*) AS n FROM t1"),
        _look_up("retrieve", reference=f"{folder}/transcript.md", pattern="keel", context_lines=1, max_tokens=300),
        _look_up("retrieve", reference="transcript.md", session=session, line_range={"start": 2, "end": 12}),
    ]
    return [{"do": "verify"}, {"do": "archived"}, {"do": "files"}, *(lookups if looks else []), {"do": "close"}]


def _look_up(name: str, **arguments: Any) -> Operation:
    return {"do": "look_up", "name": name, **arguments}


def pins_in(messages: Sequence[Message]) -> list[int]:
    """Return the positions of two messages of the user, to be pinned."""
    return [at for at, message in enumerate(messages) if _is_words(message)][1:6:3]


def _is_words(message: Message) -> bool:
    content = message["content"]
    blocks = content if isinstance(content, list) else []
    has_results = any("toolResult" in block or block.get("type") == "tool_result" for block in blocks)
    return message["role"] == "user" and not has_results


def agent(messages: Sequence[Message], pins: Sequence[int] = (), **settings: Any) -> list[Operation]:
    """Return what an agent does with a conversation: a model call before each answer."""
    script: list[Operation] = [{"do": "say", "messages": messages, "pins": pins}, {"do": "open", **settings}]
    for message in messages:
        if message["role"] == "assistant":
            script.append({"do": "prepare"})
        script.append({"do": "add"})
    return [*script, {"do": "prepare"}]


def with_resumes(script: Sequence[Operation], each: int, **settings: Any) -> list[Operation]:
    """Return *script* with another window that goes on behind each so many operations."""
    found: list[Operation] = []
    for number, operation in enumerate(script, 1):
        found.append(operation)
        if number % each == 0:
            found += [{"do": "save"}, {"do": "resume", **settings}]
    return found


def walk(seed: object, dialect: str, length: int, **settings: Any) -> list[Operation]:
    """Return operations by chance on a conversation; *settings* go to the window."""
    chance, messages = chance_of(("walk", seed)), conversation(seed, dialect, length)
    script: list[Operation] = [
        {"do": "say", "messages": messages, "pins": pins_in(messages)},
        {"do": "open", "size": chance.choice((3_000, 6_000, 12_000)), "dialect": dialect, **settings},
    ]
    can_resume = settings.get("offloader", "local") in {"local", "memory"}
    for number in range(length):
        script += _steps(chance, number, can_resume=can_resume)
    return script


def settings_by_chance(chance: Random) -> dict[str, Any]:
    """Return settings for a window: where it offloads to, limits, hooks that are slow or raise, a document."""

    def maybe(likely: float, value: Any) -> Any:
        return value if chance.random() < likely else None

    document = maybe(0.2, chance.choice(PRESETS))
    config = {
        "background_ratio": maybe(0.3, 0.4) if document is None else None,
        "max_images": maybe(0.2, 2),
        "turn_results_limit": maybe(0.2, 700),
        "tool_rules": maybe(0.2, {"run": {"offload": "never"}}),
    }
    raising = [chance.randrange(1, 6) for _ in range(2)]
    found = {
        "offloader": chance.choices(OFFLOADERS, (12, 2, 1, 1))[0],
        "config": {**PLAIN_CONFIG, **{key: value for key, value in config.items() if value is not None}},
        "management": document,
        "summarizer": maybe(0.4, chance.choice(({}, {"steps": 3}, {"raises_at": raising}))),
        "should_offload": maybe(0.3, chance.choice(({"keeps": ["run"]}, {"steps": 2}, {"raises_at": raising}))),
        "event_raises_at": maybe(0.1, raising),
        "redacts": maybe(0.1, True),  # noqa: FBT003 - the value of a setting
        "durability": maybe(0.2, "fsync"),
        "system": maybe(0.3, "Be exact."),
        "tools": maybe(0.3, [TOOL]),
    }
    return {key: value for key, value in found.items() if value is not None}


def _steps(chance: Random, number: int, *, can_resume: bool) -> list[Operation]:
    add: Operation = {"do": "add", "count": chance.randrange(1, 5)}
    prepare, save, resume = ({"do": name} for name in ("prepare", "save", "resume"))
    focus, before = chance.choice(("", "the depth")), chance.randrange(1, 5 * number + 2)
    factor, is_whole = chance.choice((0.2, 0.8, 1.0, 1.3, 5)), chance.random() < 0.5
    chunks = [sentence(chance, 40) + "\n" for _ in range(chance.randrange(1, 40))]
    likely: list[tuple[int, list[Operation]]] = [
        (70, [add, prepare]),
        (3, [add, save]),
        (4, [{"do": "compress", "force": is_whole, "focus": focus}]),
        (3, [{"do": "compress", "before": before}]),
        (3, [{"do": "request_compression", "focus": "the piers"}, add, prepare]),
        (4, [{"do": "usage", "factor": factor, "output_tokens": 20}, add]),
        (3, [{"do": "recover"}]),
        (3, [{"do": "compress_ahead", "holds": is_whole}, add, prepare, {"do": "release"}]),
        (1, [{"do": "stream", "call_id": f"stream_{number}", "chunks": chunks, "name": "look"}]),
        (5 * can_resume, [save, resume] if is_whole else [resume]),
    ]
    return chance.choices([steps for _, steps in likely], [weight for weight, _ in likely])[0]
