"""A scripted model for Strands' own agent: it answers what it is told to, and remembers what it was asked."""

import copy
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from strands.models import Model

Block: TypeAlias = dict[str, Any]
Answer: TypeAlias = "str | Sequence[Block] | Exception | Callable[[list[dict[str, Any]]], Answer]"
"""What one call answers: text, content blocks, an error to raise, or a function of the messages that gives one."""


def call(name: str, tool_input: object = None, call_id: str = "call_1") -> Block:
    """Return the block with which a model calls a tool."""
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": {} if tool_input is None else tool_input}}


class ScriptedModel(Model):
    """Gives *answers* one by one, the last one for ever; `requests` are copies of the messages of each call."""

    def __init__(
        self, answers: Iterable[Answer], *, context_window_limit: int = 200_000, usage_tokens: int | None = None
    ) -> None:
        """Answer from *answers*; *usage_tokens* is the input that each answer claims to have cost, else a count."""
        self.answers = list(answers)
        self.requests: list[list[dict[str, Any]]] = []
        self.tool_specs: list[Any] = []
        self.system_prompts: list[str | None] = []
        self.settings: list[dict[str, Any]] = []
        self.usage_tokens = usage_tokens
        self.config: dict[str, Any] = {"context_window_limit": context_window_limit}

    def update_config(self, **model_config: Any) -> None:
        self.config |= model_config

    def get_config(self) -> dict[str, Any]:
        return self.config

    def structured_output(
        self, output_model: Any, prompt: Any, system_prompt: str | None = None, **kwargs: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **settings: Any
    ) -> AsyncIterable[Any]:
        self.requests.append(copy.deepcopy(messages))
        self.tool_specs.append(tool_specs)
        self.system_prompts.append(system_prompt)
        self.settings.append(settings)
        answer: Any = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        while callable(answer):
            answer = answer(self.requests[-1])
        if isinstance(answer, Exception):
            raise answer
        blocks = [{"text": answer}] if isinstance(answer, str) else list(answer)
        tokens = await self.count_tokens(messages) if self.usage_tokens is None else self.usage_tokens
        for event in _events(blocks, tokens):
            yield event


def _events(blocks: list[Block], tokens: int) -> Iterable[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    for block in blocks:
        use = block.get("toolUse")
        if use is None:
            yield {"contentBlockStart": {"start": {}}}
            for delta in _deltas(block):
                yield {"contentBlockDelta": {"delta": delta}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": use["name"], "toolUseId": use["toolUseId"]}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(use["input"])}}}}
        yield {"contentBlockStop": {}}
    is_call = any("toolUse" in block for block in blocks)
    yield {"messageStop": {"stopReason": "tool_use" if is_call else "end_turn"}}
    usage = {"inputTokens": tokens, "outputTokens": 10, "totalTokens": tokens + 10}
    yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def _deltas(block: Block) -> Iterable[Block]:
    if "reasoningContent" not in block:
        yield {"text": block["text"]}
        return
    for key, value in block["reasoningContent"]["reasoningText"].items():
        yield {"reasoningContent": {key: value}}
