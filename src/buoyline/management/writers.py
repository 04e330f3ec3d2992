"""Who writes the summaries that documents ask for, how long they may be, and what is said of them then."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from buoyline.compression import Compressor, ContextConfig, Summary
from buoyline.management.steps import Done, Summarise

_SMALL_SUMMARY_TOKENS: Final = 400
"""A summary of half its source still makes room; below this it would hold its frame and not the task."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How one summary is to be written.

    Attributes:
        compressor: Has it written, and checks it.
        config: What it looks like.
        problems: What goes otherwise than the document says.
    """

    compressor: Compressor
    config: ContextConfig
    problems: tuple[str, ...] = ()

    def max_tokens(self, leaving_tokens: int, size: int) -> int:
        """Return what the summary of *leaving_tokens* may take in a window of *size*."""
        return min(self.config.summary_limit(size), max(leaving_tokens // 2, _SMALL_SUMMARY_TOKENS))

    def done(self, summary: Summary, messages: int, leaving_tokens: int, *, is_reduced: bool) -> Done:
        """Say what became of the step once *summary* stands for so many *messages*."""
        words = f"a summary of {summary.tokens:,} tokens stands for {messages:,} messages of {leaving_tokens:,}"
        problems = (*self.problems, summary.fell_back) if summary.fell_back else self.problems
        return Done(words, is_reduced=is_reduced, problems=problems)


@dataclass(frozen=True, slots=True)
class Writers:
    """Those who write summaries, by the ``summarization_model_id`` of documents.

    Attributes:
        usual: Writes where a document names nobody, or somebody who is not there.
        named: The others.
        config: What summaries look like where the document does not say it.
    """

    usual: Compressor
    named: Mapping[str, Compressor]
    config: ContextConfig

    def of(self, step: Summarise) -> Writing:
        """Return how the summary of *step* is to be written."""
        problems = () if not step.model or step.model in self.named else (f"no summariser is named {step.model!r}",)
        config = step.config or self.config
        config = replace(config, compression_prompt=step.prompt) if step.prompt else config
        return Writing(self.named.get(step.model, self.usual), config, problems)
