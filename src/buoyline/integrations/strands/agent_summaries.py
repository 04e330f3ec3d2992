"""Summaries by a model of Strands, or by an agent of its own: asked for the summary's fields, never trusted."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field, create_model
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import CallableSummarizer, Draft, Summarizer, SummaryRequest
from buoyline.compression.summarizers.prompting import Prompt, prompt_for, schema_of
from buoyline.errors import SummaryError
from buoyline.messages import is_object

if TYPE_CHECKING:
    from strands import Agent
    from strands.models import Model

UNKNOWN_WINDOW: Final = 32_000
"""Tokens taken for the window of a model that does not say: what nearly all have."""

_ANSWER_TOKENS: Final = 4_096
"""Beside the fields: signs of JSON, and what a model thinks before it writes."""

_SHARES: Final = (1.0, 0.6, 0.36)
"""Of the room, for a request and for what follows where the model says that it is too large."""

_TYPES: Final[Mapping[object, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool}


class StrandsModelSummarizer:
    """Lets a model of Strands write the summary, through its structured output.

    The model sees the transcript with the numbers of its lines, and the summary that is brought up to date. What it
    cites and claims is checked by the `Compressor`, and the extractive summariser takes over where it fails.
    """

    def __init__(self, model: "Model", *, max_attempts: int = 2, timeout_s: float = 120.0) -> None:
        """Ask *model* up to *max_attempts* times, each time for *timeout_s* at most.

        Raises:
            ConfigError: A bound cannot work.
        """
        self._model = model
        self._asking = CallableSummarizer(
            self._answer, name=_name_of(model), max_attempts=max_attempts, timeout_s=timeout_s
        )

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: There was none that can be used.
        """
        return await self._asking.summarize(request)

    async def _answer(self, request: SummaryRequest) -> Mapping[str, object]:
        form = form_of(request)
        for prompt in _prompts(request, self._model):
            try:
                return await self._fields(form, prompt)
            except ContextWindowOverflowException:
                continue
        raise SummaryError(self._asking.name, "the model takes no request that is large enough")

    async def _fields(self, form: type[BaseModel], prompt: Prompt) -> Mapping[str, object]:
        messages: Any = [{"role": "user", "content": [{"text": prompt.user}]}]
        found: object = None
        async for event in self._model.structured_output(form, messages, system_prompt=prompt.system):
            found = event.get("output", found)
        if not isinstance(found, form):
            raise SummaryError(self._asking.name, "the model gave no structured output")
        return found.model_dump()


class AgentSummarizer:
    """Lets an agent write the summary; it may use its tools, and its own system prompt holds.

    Its history is as it was afterwards.
    """

    def __init__(self, agent: "Agent", *, max_attempts: int = 2, timeout_s: float = 300.0) -> None:
        """Ask *agent* up to *max_attempts* times, each time for *timeout_s* at most.

        Raises:
            ConfigError: A bound cannot work.
        """
        self._agent = agent
        self._asking = CallableSummarizer(self._answer, name=agent.name, max_attempts=max_attempts, timeout_s=timeout_s)

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the agent's summary.

        Raises:
            SummaryError: There was none that can be used.
        """
        return await self._asking.summarize(request)

    async def _answer(self, request: SummaryRequest) -> Mapping[str, object]:
        form = form_of(request)
        for prompt in _prompts(request, self._agent.model):
            before = list(self._agent.messages)
            try:
                self._agent.messages[:] = []
                text = f"{prompt.system}\n\n{prompt.user}"
                answer = await self._agent.invoke_async(text, structured_output_model=form)
            except ContextWindowOverflowException:
                continue
            finally:
                self._agent.messages[:] = before
            if not isinstance(answer.structured_output, form):
                raise SummaryError(self._asking.name, "the agent gave no structured output")
            return answer.structured_output.model_dump()
        raise SummaryError(self._asking.name, "the agent takes no request that is large enough")


def form_of(request: SummaryRequest) -> type[BaseModel]:
    """Return the pydantic model that an answer to *request* has, as its JSON Schema says."""
    properties = schema_of(request).get("properties")
    described: Mapping[str, object] = properties if is_object(properties) else {}
    fields: dict[str, Any] = {}
    for name in request.fields:
        said = described.get(name)
        facts: Mapping[str, object] = said if is_object(said) else {}
        kind = _TYPES.get(facts.get("type"), Any)
        fields[name] = (kind, Field(description=str(facts.get("description", ""))))
    return create_model("Summary", __doc__="The summary of a conversation.", **fields)


def _prompts(request: SummaryRequest, model: "Model") -> Sequence[Prompt]:
    """Return the prompts to try, each smaller than the one before."""
    window = model.context_window_limit or UNKNOWN_WINDOW
    answer = min(request.max_tokens, window // 4)
    room = max(window - answer - min(_ANSWER_TOKENS, window // 8) - len(json.dumps(schema_of(request))) // 2, 1)
    return [
        prompt_for(request, max_tokens=int(share * room), answer_tokens=answer, spell_schema=False) for share in _SHARES
    ]


def _name_of(model: "Model") -> str:
    config = model.get_config()
    name = config.get("model_id") if is_object(config) else getattr(config, "model_id", None)
    return name if isinstance(name, str) and name else type(model).__name__


if TYPE_CHECKING:
    _model_conforms: type[Summarizer] = StrandsModelSummarizer
    _agent_conforms: type[Summarizer] = AgentSummarizer
