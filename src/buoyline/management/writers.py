"""Who writes the summaries that documents ask for, how long they may be, and what is said of them then."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from buoyline.compression import Compressor, ContextConfig, Summary
from buoyline.compression.budget import summary_budget_tokens
from buoyline.management.steps import Done, Summarise

_LEAST_SHARE_OF_WINDOW: Final = 16
"""Less than this part of a window may stay where it is."""


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

    def max_tokens(self, leaving_tokens: int, size: int, replaced_tokens: int = 0) -> int:
        """Return what the summary of *leaving_tokens* may take in a window of *size*, if it replaces another one."""
        return summary_budget_tokens(leaving_tokens, self.config.summary_limit(size), replaced_tokens=replaced_tokens)

    def done(self, summary: Summary, messages: int, leaving_tokens: int, *, is_reduced: bool) -> Done:
        """Say what became of the step once *summary* stands for so many *messages*."""
        words = f"a summary of {summary.tokens:,} tokens stands for {messages:,} messages of {leaving_tokens:,}"
        problems = (*self.problems, summary.fell_back) if summary.fell_back else self.problems
        return Done(words, is_reduced=is_reduced, problems=problems)

    def refused(self, messages: int, leaving_tokens: int, size: int, replaced_tokens: int) -> Done | None:
        """Say that so many *messages* stay if their summary may take as much as it replaces; None if it takes less.

        Ask before the messages are archived: what is archived but still in the context is never offloaded. In a window
        of a few hundred tokens none stay: there is no room for them.
        """
        source_tokens = leaving_tokens + replaced_tokens
        max_tokens = self.max_tokens(leaving_tokens, size, replaced_tokens)
        if source_tokens > min(max_tokens, size // _LEAST_SHARE_OF_WINDOW):
            return None
        words = f"{messages:,} messages of {leaving_tokens:,} tokens stay: their summary may take {max_tokens:,}"
        return Done(words, is_reduced=False, problems=self.problems)


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
