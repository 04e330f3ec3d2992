"""Summaries by a model of Strands, or by an agent: they are asked for the summary's fields, and never trusted.

Strands' own manager takes any text as a summary. So an answer without the fields is taken as it is, and the facts of
the messages with their citations are added.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel, Field, create_model
from strands.event_loop.streaming import process_stream
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import CallableSummarizer, Draft, Summarizer, SummaryRequest
from buoyline.compression.summarizers.prompts import Prompt, prompt_for, schema_of
from buoyline.errors import SummaryError
from buoyline.messages.jsonl import is_object

if TYPE_CHECKING:
    from strands import Agent
    from strands.models import Model
    from strands.types.content import Messages

UNKNOWN_WINDOW: Final = 32_000
"""The window of a model that does not report one: nearly all have as much."""

_ANSWER_TOKENS: Final = 4_096
"""Besides the fields: signs of JSON, and the model's reasoning before it writes."""

_SHARES: Final = (1.0, 0.6, 0.36)
"""Of the token budget: for a request, and for the next ones if the model refuses it as too large."""

_TYPES: Final[Mapping[object, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool}


class StrandsModelSummarizer:
    """Has a model of Strands write the summary, by its structured output, or in text if it has none.

    The model sees the transcript with line numbers, and the last summary. The `Compressor` checks its citations and
    claims. If the model fails, the extractive summarizer takes over.
    """

    def __init__(
        self,
        model: "Model",
        *,
        max_attempts: int = 2,
        timeout_s: float = 120.0,
    ) -> None:
        """Ask *model* up to *max_attempts* times, each time for *timeout_s* at most.

        Args:
            model: Any of Strands.
            max_attempts: Of a request.
            timeout_s: Of each request.

        Raises:
            ConfigError: A limit cannot work.
        """
        self._model = model
        self._asking = CallableSummarizer(
            self._answer, name=_name_of(model), max_attempts=max_attempts, timeout_s=timeout_s
        )

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: It wrote none that can be used.
        """
        return await self._asking.summarize(request)

    async def _answer(self, request: SummaryRequest) -> Mapping[str, object] | str:
        form = form_of(request)
        prompts = _prompts(request, self._model, spell_schema=False)
        for number, prompt in enumerate(prompts):
            try:
                fields = await self._fields(form, prompt)
            except ContextWindowOverflowException:
                continue
            except (NotImplementedError, ValueError):
                fields = None  # models raise these if they have no structured output, or answer in another form
            return await self._text(request, number) if fields is None else fields
        raise SummaryError(self._asking.name, "the model takes no request that is large enough")

    async def _fields(self, form: type[BaseModel], prompt: Prompt) -> Mapping[str, object] | None:
        found: object = None
        async for event in self._model.structured_output(form, _messages(prompt), system_prompt=prompt.system):
            found = event.get("output", found)
        return found.model_dump() if isinstance(found, form) else None

    async def _text(self, request: SummaryRequest, first: int) -> str:
        """Return the model's answer in text; *first* is the number of the first prompt to try."""
        for prompt in _prompts(request, self._model, spell_schema=True)[first:]:
            chunks = self._model.stream(_messages(prompt), tool_specs=None, system_prompt=prompt.system)
            try:
                return await _text_of(cast("AsyncIterator[dict[str, Any]]", process_stream(chunks)))
            except ContextWindowOverflowException:
                continue
        raise SummaryError(self._asking.name, "the model takes no request that is large enough")


class AgentSummarizer:
    """Has an agent write the summary, with its own tools and system prompt.

    Any text is a summary; JSON with the fields of the summary is best. The agent's history is not changed.
    """

    def __init__(self, agent: "Agent", *, max_attempts: int = 2, timeout_s: float = 300.0) -> None:
        """Ask *agent* up to *max_attempts* times, each time for *timeout_s* at most.

        Raises:
            ConfigError: A limit cannot work.
        """
        self._agent = agent
        self._asking = CallableSummarizer(self._answer, name=agent.name, max_attempts=max_attempts, timeout_s=timeout_s)

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the agent's summary.

        Raises:
            SummaryError: It wrote none that can be used.
        """
        return await self._asking.summarize(request)

    async def _answer(self, request: SummaryRequest) -> str:
        for prompt in _prompts(request, self._agent.model, spell_schema=True):
            before = list(self._agent.messages)
            try:
                self._agent.messages[:] = []
                return str(await self._agent.invoke_async(f"{prompt.system}\n\n{prompt.user}"))
            except ContextWindowOverflowException:
                continue
            finally:
                self._agent.messages[:] = before
        raise SummaryError(self._asking.name, "the agent takes no request that is large enough")


def form_of(request: SummaryRequest) -> type[BaseModel]:
    """Return a pydantic model of an answer to *request*, made from its JSON Schema."""
    properties = schema_of(request).get("properties")
    described: Mapping[str, object] = properties if is_object(properties) else {}
    fields: dict[str, Any] = {}
    for name in request.fields:
        said = described.get(name)
        facts: Mapping[str, object] = said if is_object(said) else {}
        kind = _TYPES.get(facts.get("type"), Any)
        fields[name] = (kind, Field(description=str(facts.get("description", ""))))
    return create_model("Summary", __doc__="The summary of a conversation.", **fields)


def _messages(prompt: Prompt) -> "Messages":
    return [{"role": "user", "content": [{"text": prompt.user}]}]


async def _text_of(events: "AsyncIterator[dict[str, Any]]") -> str:
    """Return the text of an answer."""
    texts: list[str] = []
    async for event in events:
        if (stop := event.get("stop")) is not None:
            texts += [block["text"] for block in stop[1]["content"] if "text" in block]
    return "\n".join(texts)


def _prompts(request: SummaryRequest, model: "Model", *, spell_schema: bool) -> Sequence[Prompt]:
    """Return the prompts to try, each smaller than the one before."""
    answer, room = _answer_tokens(request, model), _room(request, model)
    return [
        prompt_for(request, max_tokens=int(share * room), answer_tokens=answer, spell_schema=spell_schema)
        for share in _SHARES
    ]


def _answer_tokens(request: SummaryRequest, model: "Model") -> int:
    return min(request.max_tokens, _window_of(model) // 4)


def _room(request: SummaryRequest, model: "Model") -> int:
    """Return the most tokens of a request that the model can still answer."""
    window = _window_of(model)
    signs = min(_ANSWER_TOKENS, window // 8) + len(json.dumps(schema_of(request))) // 2
    return max(window - _answer_tokens(request, model) - signs, 1)


def _window_of(model: "Model") -> int:
    return model.context_window_limit or UNKNOWN_WINDOW


def _name_of(model: "Model") -> str:
    config = model.get_config()
    name = config.get("model_id") if is_object(config) else getattr(config, "model_id", None)
    return name if isinstance(name, str) and name else type(model).__name__


if TYPE_CHECKING:
    _model_conforms: type[Summarizer] = StrandsModelSummarizer
    _agent_conforms: type[Summarizer] = AgentSummarizer
