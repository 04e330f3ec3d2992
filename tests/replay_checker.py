"""Checks what a window hands out and leaves on disk, at every step of a replay, from the files alone.

It shares no code with what it checks: it reads the recording and the workspace as any program may that knows
docs/format.md. Of the library it takes the counter of a single text and of a single message, which have tests of
their own.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message

Raw = dict[str, Any]

COUNTER = default_counter()
WHOLE = re.compile(r"^Whole result: (.*)$", re.MULTILINE)
MARK = re.compile(r"\[([^\[\]\s:]+):([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\]")
STORED = re.compile(r"workspace:///(data/[0-9a-f]{64}\.[a-z0-9]+)")
TIME = re.compile(rb"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")
FACTS_HASH = re.compile(rb'("facts":\{"path":"facts-[0-9]+\.jsonl","bytes":)[0-9]+,"sha256":"[0-9a-f]{64}"')
EMBEDDED = re.compile(r"data:[a-z]+/[a-z0-9.+-]+;base64,([A-Za-z0-9+/=]+)")


def bytes_of(message: Any) -> bytes:
    """Return a message as a provider gets it, so that two that look the same to it are the same."""
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")


def pairs(messages: Sequence[Raw]) -> Iterator[tuple[int, int]]:
    """Yield the positions of each call and its result: the nearest call before it of the same id without one."""
    open_calls: list[tuple[int, str]] = []
    for position, message in enumerate(messages):
        open_calls += [(position, call["id"]) for call in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            mine = [call for call in open_calls if call[1] == message.get("tool_call_id")]
            if mine:
                # Of several calls in one message the first is meant; which of them makes no difference to a cut.
                open_calls.remove(mine[-1])
                yield mine[-1][0], position


@dataclass
class Counts:
    """What was looked at, so that a test can tell that it tested anything."""

    sessions: int = 0
    steps: int = 0
    compressions: int = 0
    pointers: int = 0
    stubs: int = 0
    exceeding_steps: int = 0
    late_results: int = 0
    resumes: int = 0
    most_compressions: int = 0
    most_summary_tokens: int = 0


class Grown:
    """A file that only ever grows, read line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self._known = b""

    def read(self) -> list[bytes]:
        """Return the lines that are new; what was there before must still be."""
        now = self.path.read_bytes() if self.path.exists() else b""
        assert now.startswith(self._known), f"{self.path.name} was changed where it should only grow"
        assert not now or now.endswith(b"\n"), f"{self.path.name} has half a line"
        new = now[len(self._known) :].split(b"\n")[:-1]
        self._known = now
        self.lines += new
        return new


@dataclass
class Checker:
    """Follows one window from its first message to its last.

    Attributes:
        workdir: Holds the one session of the window.
        size: Tokens of the window.
        summary_tokens: That a summary may take.
        counts: Takes what was looked at.
        fed: The messages so far; whoever feeds the window adds to it.
        pinned: Positions of those that were pinned.
    """

    workdir: Path
    size: int
    summary_tokens: int
    counts: Counts
    fed: list[Raw] = field(default_factory=list)
    pinned: frozenset[int] = frozenset()
    archived: int = 0
    shown: list[bytes] = field(default_factory=list)
    _files: dict[str, Grown] = field(default_factory=dict)
    _line_counts: dict[str, int] = field(default_factory=dict)
    _counted: dict[bytes, int] = field(default_factory=dict)
    _checked_stubs: dict[tuple[int, bytes], Path] = field(default_factory=dict)
    _parted: set[int] = field(default_factory=set)

    @property
    def directory(self) -> Path:
        """The directory of the session, whatever it is called."""
        (found,) = [path for path in (self.workdir / "sessions").iterdir() if not path.name.startswith(".")]
        return found

    def step(self, handed: Sequence[Raw], tokens: int, exceeding: Sequence[tuple[int, int]]) -> list[bytes]:
        """Check all that must hold when *handed* goes to the model, and return its messages as bytes.

        Args:
            handed: What `prepare` returned.
            tokens: What the window says that it takes.
            exceeding: What the window says does not fit.
        """
        self.counts.steps += 1
        shown = [bytes_of(message) for message in handed]
        before = self.archived
        self._check_archive()
        self._check_summaries(before)
        self._check_order(handed)
        if self.archived == before:
            assert shown[: len(self.shown)] == self.shown, "what was handed out has changed without a compression"
        self.shown = shown
        self._check_pairs(before)
        self._check_tokens(handed, shown, tokens, exceeding)
        self._check_window_on_disk(handed)
        return shown

    def _grown(self, name: str) -> Grown:
        return self._files.setdefault(name, Grown(self.directory / name))

    def _check_archive(self) -> None:
        """Every line is the message that was fed there, or that message with a stub for what its tool gave."""
        for line in self._grown("context.jsonl").read():
            self._check_same(json.loads(line), self.archived)
            self.archived += 1
        self._grown("transcript.md").read()

    def _check_summaries(self, before: int) -> None:
        """Summaries go on where the last one ended; each is within its budget, and each line it names exists."""
        end = before
        for line in self._grown("summaries.jsonl").read():
            summary = json.loads(line)
            self.counts.compressions += 1
            assert summary["n"] == len(self._grown("summaries.jsonl").lines)
            assert summary["messages"][0] == end, "a summary leaves messages out, or tells them twice"
            end = summary["messages"][1]
            assert summary["unverified"] == []
            self._check_budget(summary)
            named = {(found["path"], found["start"], found["end"]) for found in summary["pointers"]}
            body = summary["text"].split("]\n", 1)[1]
            for path, spans in MARK.findall(body):
                for start, _, stop in (span.partition("-") for span in spans.split(",")):
                    if (self.directory / path).is_file():  # else the user's own words look like a mark
                        assert (path, int(start), int(stop or start)) in named, "a mark is not among the pointers"
            for pointer in named:
                self._check_pointer(*pointer)
        assert end == self.archived, "what is archived and what is summarised differ"

    def _check_budget(self, summary: Raw) -> None:
        tokens = COUNTER.count(summary["text"])
        assert tokens == summary["tokens"] <= self.summary_tokens
        self.counts.most_summary_tokens = max(self.counts.most_summary_tokens, tokens)

    def _check_pointer(self, path: str, start: int, end: int) -> None:
        self.counts.pointers += 1
        if path == "transcript.md":
            lines = len(self._grown("transcript.md").lines)
        else:
            lines = self._line_counts.get(path, 0)
            if not lines:
                text = (self.directory / path).read_bytes().decode("utf-8", "surrogatepass")
                lines = self._line_counts[path] = len(text.removesuffix("\n").split("\n"))
        assert 1 <= start <= end <= lines, f"{path}:{start}-{end} of {lines} lines"

    def _check_order(self, handed: Sequence[Raw]) -> None:
        """What is handed out is what stays of the archived, the last summary, and all that was fed since."""
        staying = [
            self.fed[position]
            for position in range(self.archived)
            if self.fed[position]["role"] == "system" or position in self.pinned
        ]
        head = len(staying)
        assert list(handed[:head]) == staying
        summaries = self._grown("summaries.jsonl").lines
        if summaries:
            assert handed[head] == {"role": "user", "content": json.loads(summaries[-1])["text"]}
            head += 1
        kept = handed[head:]
        assert len(kept) == len(self.fed) - self.archived, "a message is lost, or there twice"
        for position, message in enumerate(kept, self.archived):
            self._check_same(message, position)

    def _check_same(self, found: Raw, position: int) -> None:
        """*found* is the message that was fed at *position*; of a tool's message the text may be in a file."""
        expected = self.fed[position]
        if found == expected:
            return
        if STORED.search(json.dumps(found)):
            assert self._with_hashes(found) == self._with_hashes(expected)
            return
        key = (position, bytes_of(found))
        if key in self._checked_stubs:
            assert self._checked_stubs[key].exists(), "a tool result is gone"
            return
        assert expected["role"] == "tool", f"message {position} was changed"
        assert {**found, "content": None} == {**expected, "content": None}
        stub, whole = text_of(found), text_of(expected)
        path = Path(WHOLE.findall(stub)[0])
        assert path.parent == self.directory
        assert path.read_bytes() == whole.encode("utf-8", "surrogatepass"), "not every byte of a result was kept"
        assert COUNTER.count(stub) < COUNTER.count(whole)
        self._checked_stubs[key] = path
        self.counts.stubs += 1

    def _with_hashes(self, message: Raw) -> str:
        """Return the message with the hash of each medium in its place, be it embedded or in a file."""

        def of_file(found: "re.Match[str]") -> str:
            return hashlib.sha256((self.workdir / found[1]).read_bytes()).hexdigest()

        def of_text(found: "re.Match[str]") -> str:
            return hashlib.sha256(base64.b64decode(found[1])).hexdigest()

        return STORED.sub(of_file, EMBEDDED.sub(of_text, json.dumps(message, sort_keys=True)))

    def _check_pairs(self, before: int) -> None:
        """No cut parts a call from a result that had come; of one that comes later, the caller is told."""
        for call, result in pairs(self.fed):
            if call < self.archived <= result:
                assert before == self.archived, f"the cut at {self.archived} parts {call} from {result}"
                if result not in self._parted:
                    self._parted.add(result)
                    self.counts.late_results += 1

    def _check_tokens(
        self, handed: Sequence[Raw], shown: Sequence[bytes], tokens: int, exceeding: Sequence[tuple[int, int]]
    ) -> None:
        """The window's running total is what one gets by adding up, and fits unless one message alone does not."""
        each = [self._count(message, spelled) for message, spelled in zip(handed, shown, strict=True)]
        assert sum(each) == tokens
        assert (tokens <= self.size) == (not exceeding)
        if tokens <= self.size:
            return
        self.counts.exceeding_steps += 1
        kept = len(self.fed) - self.archived
        head = sum(each[: len(each) - kept])
        assert max(each[len(each) - kept :]) > self.size - head, "over the limit, and no message is to blame"

    def _count(self, message: Raw, spelled: bytes) -> int:
        if spelled not in self._counted:
            self._counted[spelled] = count_message(detect(message).view(message), COUNTER)
        return self._counted[spelled]

    def _check_window_on_disk(self, handed: Sequence[Raw]) -> None:
        """What another process would go on with is what was handed out."""
        lines = (self.directory / "window.jsonl").read_bytes().split(b"\n")[:-1]
        assert len(lines) == len(handed)
        for line, message in zip(lines, handed, strict=True):
            on_disk = json.loads(line)
            assert on_disk == message or self._with_hashes(on_disk) == self._with_hashes(message)


def text_of(message: Raw) -> str:
    """Return the text of a message, of whatever blocks it consists."""
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def outcome(directory: Path) -> list[bytes]:
    """Return every file of a session whose bytes follow from what was fed, with its name, without times.

    A file with facts may hold times, so its hash in ``summaries.jsonl`` is left out; the file itself is not.
    """
    paths = sorted(path for path in directory.iterdir() if path.suffix in {".jsonl", ".md", ".txt"})
    return [
        path.name.encode() + b"\n" + FACTS_HASH.sub(rb"\1", TIME.sub(b"", path.read_bytes()))
        for path in paths
        if path.name != "journal.jsonl"
    ]
