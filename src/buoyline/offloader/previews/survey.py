r"""Lines of any text: the trouble they speak of, each kind once, and the lines that are unlike all others.

Two lines are of one kind when they differ in their digits alone. Texts are surveyed in blocks of about a megabyte, so
that one of any size needs little memory, and a block in calls that work on all of it at once: a loop over the lines of
100 MB would take longer than a person waits.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from buoyline.offloader.previews import signals
from buoyline.offloader.previews.finding import MOST_TROUBLES, MUST_SHOW, Finding

_DIGITS = b"0123456789"
_OTHERS = 3
_MAX_KINDS = 50_000
_MAX_COUNTED_LINES = 3_000_000
# Judging a line takes 20 to 40 microseconds: so many in all, then so many a block and of its others the worst alone.
_MAX_TROUBLES = 10_000
_MAX_TROUBLES_PER_BLOCK = 2_000
_MAX_LINE_BYTES = 4_000
_VERDICT_LINES = 40
_BEFORE_TROUBLE = 200
_SUSPECT = 60.0


@dataclass(slots=True)
class _Trouble:
    """A kind of lines that speak of trouble."""

    number: int
    weight: float
    column: int
    word: str
    count: int = 1
    others: list[int] = field(default_factory=list[int])

    @property
    def sort(self) -> str:
        """What lines of its sort have in common, however they differ: the word of trouble that they were found by."""
        return signals.sort_of(self.word)

    def again(self, number: int, count: int = 1) -> None:
        """Take *count* more lines of the kind, of which the last has this number; the very last is always known."""
        self.count += count
        if len(self.others) < _OTHERS:
            self.others.append(number)
        else:
            self.others[-1] = number


@dataclass(slots=True)
class Survey:
    """What is known of the lines of a text.

    Attributes:
        lines: How many there are.
        kinds: How many lines there are of each kind; a kind is a line without its digits. Not all of them where
            `is_full`.
        is_full: There were more kinds than are told apart.
        verdict: The number of the last line that says how a run ended; 0 where none does.
    """

    lines: int = 0
    kinds: Counter[bytes] = field(default_factory=Counter[bytes])
    is_full: bool = False
    verdict: int = 0
    _troubles: dict[bytes, _Trouble] = field(default_factory=dict[bytes, _Trouble])
    _looked_at: int = 0

    def read(self, block: bytes) -> None:
        r"""Take the next lines, UTF-8, with ``\n`` between them."""
        keys = kinds_of(block)
        self._find_troubles(block, keys)
        self._find_verdict(block, len(keys))
        if not self.is_full:
            self.kinds.update(keys)
            self.is_full = len(self.kinds) > _MAX_KINDS or self.lines > _MAX_COUNTED_LINES
        self.lines += len(keys)

    def troubles(self) -> list[Finding]:
        """Return a finding for each kind of line that speaks of trouble, and one for the verdict."""
        troubles = sorted(self._troubles.values(), key=lambda trouble: trouble.number)
        last = max((trouble.number for trouble in troubles if trouble.weight >= MUST_SHOW), default=0)
        found, alike = list[Finding](), Counter[str]()
        for trouble in troubles:
            weight, others = _settled_weight(trouble), tuple(trouble.others)
            is_report = trouble.weight >= MUST_SHOW
            # Of fifty messages of a compiler the first few say what the others do: another sort comes first.
            if is_report and trouble.number != last:
                weight -= min(alike[trouble.sort], 6) / 2
                alike[trouble.sort] += 1
            word = trouble.word if is_report else ""
            found.append(Finding(trouble.number, weight, trouble.column, trouble.count, others, word=word))
        return [*found, Finding(self.verdict, 98.0)] if self.verdict else found

    def _find_troubles(self, block: bytes, keys: Sequence[bytes]) -> None:
        seen, last = Counter[bytes](), dict[bytes, int]()
        number, position = 0, 0
        for start in self._candidates(block):
            number += block.count(b"\n", position, start)
            position = start
            key = keys[number]
            seen[key] += 1
            if seen[key] <= _OTHERS:
                self._note(key, block, start, self.lines + number + 1)
            else:
                last[key] = number
        for key in last.keys() & self._troubles.keys():
            self._troubles[key].again(self.lines + last[key] + 1, seen[key] - _OTHERS)

    def _candidates(self, block: bytes) -> Iterator[int]:
        start = count = 0
        for start in signals.candidates(block):
            yield start
            count += 1
            if count >= _MAX_TROUBLES_PER_BLOCK and count + self._looked_at >= _MAX_TROUBLES:
                yield from islice(signals.worst(block, start), _MAX_TROUBLES_PER_BLOCK)
                break
        self._looked_at += count

    def _find_verdict(self, block: bytes, count: int) -> None:
        end, bare = len(block), 0
        for place in range(count, max(count - _VERDICT_LINES, 0), -1):
            start = block.rfind(b"\n", 0, end) + 1
            line = _line(block, start)
            if signals.is_verdict(line):
                if not signals.is_bare(line):
                    self.verdict = self.lines + place
                    return
                bare = bare or self.lines + place
            end = start - 1
        self.verdict = bare or self.verdict

    def _note(self, key: bytes, block: bytes, found: int, number: int) -> None:
        known = self._troubles.get(key)
        if known is not None and known.weight > _SUSPECT:
            known.again(number)
            return
        line = block.rfind(b"\n", 0, found) + 1
        start = max(line, found - _BEFORE_TROUBLE)
        text = _line(block, start)
        weight = signals.weight_of(text)
        column = len(block[line:start].decode("utf-8", "replace")) + signals.column_of(text)
        if not weight:
            return
        if len(self._troubles) >= MOST_TROUBLES:
            lightest = min(self._troubles, key=lambda key: (self._troubles[key].weight, -self._troubles[key].number))
            if self._troubles[lightest].weight >= weight:
                return
            del self._troubles[lightest]
        self._troubles[key] = _Trouble(number, weight, column, signals.word_in(_line(block, found)))


def kinds_of(block: bytes) -> list[bytes]:
    """Return the kind of each line of *block*."""
    return block.translate(None, _DIGITS).split(b"\n")


def _line(block: bytes, start: int) -> str:
    end = block.find(b"\n", start, start + _MAX_LINE_BYTES)
    line = block[start : start + _MAX_LINE_BYTES if end < 0 else end]
    return line.decode("utf-8", "replace").removesuffix("\r")


def _settled_weight(trouble: _Trouble) -> float:
    """Return the weight of a kind: what is said a thousand times is worth less than what is said once."""
    return trouble.weight - min(len(str(trouble.count)) - 1, 3)
