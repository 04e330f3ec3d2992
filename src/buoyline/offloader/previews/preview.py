"""Previews of texts of any size."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from buoyline.offloader.lines import count_lines
from buoyline.offloader.previews.composition import Budget, choice, composed, whole
from buoyline.offloader.previews.finding import UNLIKE, Digest, Finding
from buoyline.offloader.previews.lines import Block, blocks_of, excerpts_at
from buoyline.offloader.previews.survey import Survey, kinds_of
from buoyline.offloader.previews.unlike import MAX_LINES, odd_kinds
from buoyline.offloader.source import Source, TextSource
from buoyline.tokens import TextCounter

_MOST_CHARS_PER_TOKEN = 128
# What is read line by line or as a document is bounded: 100 MB of it would take half a minute.
_DOCUMENT_CHARS = 16_000_000
_HELD_CHARS = 4_000_000


def preview(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Show what a text is, what is wrong or odd in it, its head and its tail.

    Args:
        text: The whole text; no more of it is counted than what is shown takes, or nearly.
        max_tokens: For the whole preview, line numbers and the mark of what is left out included.
        counter: Counts them.

    Returns:
        All lines as ``17: ...`` where they fit. Else rows that say what the text is, lines with their own numbers,
        cut where they are too long (``17:245: ...`` begins with the 245th character), and a row that says how many
        lines are left out. ``""`` where not even a part of the first line fits.
    """
    return preview_of(TextSource(text), max_tokens, counter)


def preview_of(source: Source, max_tokens: int, counter: TextCounter, *, before: str = "") -> str:
    """Show a text that is read in pieces; see `preview`.

    Args:
        source: The text; it is read three times at most.
        max_tokens: For *before* and the preview together.
        counter: See `preview`.
        before: What stands before the preview: texts take together not quite what they take apart.
    """
    budget = Budget(max_tokens, counter, before)
    if source.size_bytes <= max_tokens * _MOST_CHARS_PER_TOKEN:
        text = "".join(source.blocks())
        lines = excerpts_at(
            source, frozenset((number, 0) for number in range(1, min(count_lines(text), max_tokens) + 1))
        )
        shown = whole(lines, count_lines(text), budget)
        if shown:
            return shown
    reading = _Reading()
    for block in blocks_of(source):
        reading.take(block)
    digest = reading.digest() + Digest(findings=tuple(reading.odd_kinds(source)))
    chosen = choice(digest, reading.survey.lines, reading.chars, max_tokens)
    return composed(chosen, excerpts_at(source, chosen.places), budget)


@dataclass(slots=True)
class _Reading:
    """What is kept of a text while it is read."""

    survey: Survey = field(default_factory=Survey)
    texts: list[str] = field(default_factory=list[str])
    chars: int = 0
    lines: int = 0
    is_whole: bool = True

    def take(self, block: Block) -> None:
        """Survey the block, and hold it while that is not too much; lines that are cut are no document."""
        self.survey.read(block.text.encode("utf-8", "surrogatepass"))
        self.chars += len(block.text) + block.hidden_chars
        self.lines += block.size
        if self.is_whole:
            self.texts.append(block.text)
            most = _DOCUMENT_CHARS if self.texts[0].lstrip()[:1] in {"{", "["} else _HELD_CHARS
            if self.chars > most or block.hidden_chars:
                self.is_whole = False
                self.texts = ["\n".join(self.texts)[:_HELD_CHARS]]

    def digest(self) -> Digest:
        """Say what has come to light."""
        # The readers' patterns take 15 ms to compile: a program that only appends shall not wait for them.
        from buoyline.offloader.previews.kinds import digest_of  # noqa: PLC0415

        return digest_of("\n".join(self.texts), self.survey, is_whole=self.is_whole)

    def odd_kinds(self, source: Source) -> Iterator[Finding]:
        """Yield the lines of a long text whose kind is odd, beyond those that were looked at one by one."""
        if self.survey.lines <= MAX_LINES or self.survey.is_full:
            return
        odd = set(odd_kinds(self.survey.kinds))
        for block in blocks_of(source) if odd else ():
            kinds = kinds_of(block.text.encode("utf-8", "surrogatepass"))
            for kind in odd.intersection(kinds):
                yield Finding(block.first + kinds.index(kind), 80.0, note=UNLIKE)
