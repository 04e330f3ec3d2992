"""The compressor of before, which wants an offloader, behind what a window has: messages, lines and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

from buoyline.compression import Compressor, ContextConfig, Summarizer, Summary
from buoyline.compression.compressor import MessageRange
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.context.entries import Entry
from buoyline.offloader import Abilities, Offloader, StoredResult
from buoyline.store.state import Rendered
from buoyline.tokens import TextCounter


@dataclass(frozen=True, slots=True)
class Leaving:
    """Messages that leave a context; they are in the transcript.

    Attributes:
        natives: As they are on disk.
        texts: Their lines in the transcript.
        files: Stored results by the text of their stubs.
        max_tokens: Of the summary.
        tokens_before: Of the whole context.
    """

    entries: Sequence[Entry]
    natives: Sequence[Any]
    texts: Sequence[Sequence[str]]
    rendered: Rendered
    transcript: str
    files: Mapping[str, StoredResult]
    max_tokens: int
    tokens_before: int
    previous: Summary | None

    @property
    def span(self) -> tuple[int, int]:
        """The number of the first message, and the one behind the last."""
        return self.entries[0].number, self.entries[-1].number + 1


@dataclass(frozen=True, slots=True)
class _Archived:
    """Stands for an offloader: what the compressor reads of it is in memory."""

    texts: Sequence[Sequence[str]]

    def abilities(self) -> Abilities:
        return Abilities(transcript=self)

    async def transcript_lines(self, session_id: str, first: int, end: int) -> Sequence[Sequence[str]]:
        del session_id, first, end
        return self.texts


async def summarized(
    leaving: Leaving,
    *,
    summarizer: Summarizer | SummaryFunction | None,
    config: ContextConfig,
    counter: TextCounter,
    focus: str,
    use_model: bool,
) -> Summary:
    """Return the summary of messages that are archived. Raises what the summarizer raises, except `SummaryError`."""
    offloader = cast("Offloader", _Archived(leaving.texts))
    compressor = Compressor(offloader, config=config, counter=counter, summarizer=summarizer)
    (first, end), lines, tokens = leaving.span, leaving.rendered.lines, sum(entry.tokens for entry in leaving.entries)
    dialects = {entry.dialect for entry in leaving.entries}
    only = dialects.pop() if len(dialects) == 1 else None
    places = tuple((line, behind - 1) for line, behind in pairwise(lines))
    name = leaving.transcript.rpartition("/")[2]
    made = await compressor.summarize(
        MessageRange("", first, leaving.natives, tokens, dialect=only, stubs=leaving.files),
        ArchiveLocation(first, end, leaving.transcript, leaving.transcript, name, places),
        previous=None if leaving.previous is None else leaving.previous.draft,
        max_tokens=leaving.max_tokens,
        focus=focus,
        use_model=use_model,
    )
    return replace(made, messages=(first, end))
