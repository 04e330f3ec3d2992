"""`StrandsModelSummarizer`: a model of Strands writes the summary."""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from strands.event_loop.streaming import process_stream

from buoyline.compression import CallableSummarizer, SummaryRequest
from buoyline.compression.summarizers.prompt import prompt_for

if TYPE_CHECKING:
    from strands.models import Model
    from strands.types.content import Message

_UNKNOWN_WINDOW_TOKENS: Final = 32_000
"""The window of a model that does not report one: nearly all have as much."""

_OTHER_TOKENS: Final = 4_096
"""Besides the fields of the summary: signs of JSON, and the model's reasoning before it writes."""


class StrandsModelSummarizer(CallableSummarizer):
    """Asks *model* once, with the transcript and its line numbers, for *timeout_s* at most.

    JSON with the fields of the summary is best; any other text is taken as it is. If the model fails, the extractive
    summarizer takes over.
    """

    def __init__(self, model: "Model", *, timeout_s: float = 120.0) -> None:
        """Ask any *model* of Strands. Raises `ConfigError` if *timeout_s* cannot work."""
        super().__init__(self._text, name=type(model).__name__, timeout_s=timeout_s)
        self._model = model

    async def _text(self, request: SummaryRequest) -> str:
        window = self._model.context_window_limit or _UNKNOWN_WINDOW_TOKENS
        answer_tokens = min(request.max_tokens, window // 4)
        room = max(window - answer_tokens - min(_OTHER_TOKENS, window // 8), 1)
        prompt = await asyncio.to_thread(  # counts all that is summarized
            prompt_for, request, max_tokens=room, answer_tokens=answer_tokens, spell_schema=True
        )
        asked: list[Message] = [{"role": "user", "content": [{"text": prompt.user}]}]
        answer = ""
        async for event in process_stream(self._model.stream(asked, tool_specs=None, system_prompt=prompt.system)):
            if "stop" in event:
                answer = text_of(cast("Any", event["stop"])[1])
        return answer


def text_of(message: "Message") -> str:
    """Return the texts of *message*, line by line."""
    return "\n".join(block["text"] for block in message["content"] if "text" in block)
