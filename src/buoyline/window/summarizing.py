"""What leaves a window, as a summarizer sees it: messages, their lines in the transcript, the files behind stubs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from buoyline.compression import Compressor, ContextConfig, Pointer, SourceMessage, Summarizer, Summary
from buoyline.compression.compressor import counted_file, excerpts_of
from buoyline.compression.render import Place
from buoyline.compression.summarizers.function import SummaryFunction
from buoyline.messages import Message
from buoyline.offloader import StoredResult
from buoyline.tokens import TextCounter
from buoyline.window.entries import Entry
from buoyline.workspace.state import Rendered


@dataclass(frozen=True, slots=True)
class Leaving:
    """Messages that leave a context; they are in the transcript.

    Attributes:
        views: The messages as they are on disk: what is redacted there is in no summary.
        texts: Their lines in the transcript.
        files: Stored results by the text of their stubs.
        max_tokens: Of the summary.
        room_tokens: What the window has room for.
        tokens_before: Of the whole context.
        redact: Takes out of a text what the workspace does not store.
    """

    entries: Sequence[Entry]
    views: Sequence[Message]
    texts: Sequence[Sequence[str]]
    files: Mapping[str, StoredResult]
    rendered: Rendered
    transcript: str
    max_tokens: int
    room_tokens: int
    tokens_before: int
    previous: Summary | None
    redact: Callable[[str], str]

    @property
    def span(self) -> tuple[int, int]:
        """The number of the first message, and the one behind the last."""
        return self.entries[0].number, self.entries[-1].number + 1


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
    (first, end), name, lines = leaving.span, leaving.transcript.rpartition("/")[2], leaving.rendered.lines
    parts = zip(leaving.entries, leaving.views, pairwise(lines), leaving.texts, strict=True)
    sources = [
        SourceMessage(entry.number, view, Pointer(name, start, behind - 1), excerpts_of(view, leaving.files), (*texts,))
        for entry, view, (start, behind), texts in parts
    ]
    results = {counted_file(stored): stored.lines for stored in leaving.files.values()}
    return await Compressor(config=config, counter=counter, summarizer=summarizer).summarize(
        sources,
        Place(0 if leaving.previous else first, end, leaving.transcript, name, lines[-1] - 1, results),
        previous=leaving.previous,
        max_tokens=leaving.max_tokens,
        room_tokens=leaving.room_tokens,
        source_tokens=sum(entry.tokens for entry in leaving.entries),
        focus=focus,
        use_model=use_model,
        redact=leaving.redact,
    )
