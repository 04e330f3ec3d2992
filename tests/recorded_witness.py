"""Looks from outside at what agents ask their models for, and at what is on disk then.

It shares no code with what it checks, but for the counters of a single text and of a single message, which have tests
of their own.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from recorded_talk import Step

from buoyline import LocalWorkspace
from buoyline.maintenance.verify import verify
from buoyline.messages.registry import dialect_named
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message

SESSION = "s1"

REFUSALS = 0.1
"""Share of the requests of more than half a window that the provider refuses as too long."""

_STANDING = 800
"""Tokens that a summary and a notice may take, which stand in each request as well."""

COUNTER = default_counter()

TIME = re.compile("<current-time>.*?</current-time>")
"""What AgentScope says of the hour."""

Item: TypeAlias = tuple[str, ...]
"""Something that was said: its kind, by what it is known, and last its text."""


@dataclass
class Counts:
    """What was looked at, so that a test can tell that it tested anything."""

    replays: int = 0
    steps: int = 0
    restarts: int = 0
    left: int = 0
    replaced: int = 0
    verified: int = 0
    too_large: int = 0
    summaries: int = 0
    refused: int = 0


@dataclass
class Witness:
    """Knows what was said, and looks at each request and at the files of the session.

    Attributes:
        root: Holds all that is on disk; the workspace is ``w`` within.
        size: Tokens of the window.
        counts: Takes what was looked at.
        said: All that was said so far, in order.
        words: What the user said last.
        newest: What the model answered last, with calls to which the results stay: whatever a document says.
    """

    root: Path
    size: int
    counts: Counts
    said: list[Item] = field(default_factory=list)
    words: str = ""
    newest: Step | None = None
    asked: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=partial(random.Random, 7))  # noqa: S311 - repeatable
    refused: int = 0
    files: dict[Path, str] = field(default_factory=dict)
    archived: list[Item] = field(default_factory=list)
    _read: int = 0
    _counted: dict[str, int] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return self.root / "w" / "sessions" / SESSION

    def count(self, dialect: str, native: Any, spelled: str) -> int:
        """Return our count of a message, which is spelled so."""
        if spelled not in self._counted:
            self._counted[spelled] = count_message(dialect_named(dialect).view(native), COUNTER)
        return self._counted[spelled]

    @property
    def lasting(self) -> list[str]:
        """What of the user's words is in each request: the newest, and the first, which some documents pin."""
        return list(dict.fromkeys([self.said[0][-1], self.words]))

    def archive(self, items_of: Callable[[dict[str, Any]], Iterator[Item]]) -> list[Item]:
        """Return what is in the archive, of which nothing may change any more."""
        path = self.directory / "context.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            assert not new or new.endswith(b"\n"), "half a line"
            self._read += len(new)
            for line in new.splitlines():
                self._same(items := list(items_of(json.loads(line))), len(self.archived))
                self.archived += items
        return self.archived

    def whole(self, standing: Sequence[Item]) -> None:
        """Archive and context together are all that was said, each once and in order."""
        self._same(standing, len(self.archived))
        assert len(self.archived) + len(standing) == len(self.said), "something is missing at the end"

    def _same(self, found: Sequence[Item], start: int) -> None:
        for at, item in enumerate(found, start):
            assert at < len(self.said), f"{item} was never said"
            expected = self.said[at]
            assert item[:-1] == expected[:-1], f"{at}: {item[:-1]} where {expected[:-1]} was said"
            if item[-1] != expected[-1]:
                assert item[0] == "result", f"{at}: {item} is not {expected}"
                assert self._is_kept(item[-1], expected[-1]), f"not every byte of result {at} is kept: {item}"

    def _is_kept(self, shown: str, whole: str) -> bool:
        self.counts.replaced += 1
        for path in self.directory.glob("tool_result-*.txt"):
            if path not in self.files:
                self.files[path] = path.read_bytes().decode("utf-8", "surrogatepass")
        named = shown.replace(".view.txt", ".txt")  # a view of a file breaks its lines
        return any(path.name in named and text == whole for path, text in self.files.items())

    def fits(self, tokens: int, least: int) -> None:
        """The request fits, unless what has to be in it alone does not."""
        self.counts.steps += 1
        if least > 0.85 * self.size:
            self.counts.too_large += 1
        else:
            assert tokens <= self.size, f"{tokens:,} of {self.size:,} tokens, of which {least:,} have to be there"

    def is_refused(self, tokens: int, least: int) -> bool:
        """Tell whether the provider refuses a request; the next one has to be a tenth smaller."""
        if self.refused:
            assert tokens <= 0.95 * self.refused, f"{tokens:,} tokens after {self.refused:,} were refused"
            self.refused = 0
        elif tokens > max(self.size / 2, (least + _STANDING) / 0.85) and self.chance.random() < REFUSALS:
            self.refused = tokens
            self.counts.refused += 1
        return bool(self.refused)

    def sound(self) -> None:
        self.counts.verified += 1
        found = [finding for finding in verify(LocalWorkspace(self.root / "w")).findings if finding.severity != "note"]
        assert found == [], found

    def spelled(self, request: Any) -> str:
        return TIME.sub("", json.dumps(request, ensure_ascii=False, sort_keys=True))


def paired(messages: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
    """Each message is its calls and its results: what is called is answered by the very next messages.

    Raises:
        AssertionError: A call has no result there, or a result no call.
    """
    waiting = Counter[str]()
    for calls, results in messages:
        if results:
            assert not Counter(results) - waiting, f"results {results} of no call"
            waiting -= Counter(results)
        if calls or not results:
            assert not waiting, f"calls {waiting} without results"
            waiting = Counter(calls)
    assert not waiting, f"calls {waiting} without results"
