"""A scripted model for Google ADK, which checks each request, and an app whose agent has a verbose tool.

As a program it is killed in the middle of a run: `python tests/google_adk_model.py FOLDER`.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.artifacts import InMemoryArtifactService
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.models.registry import LLMRegistry
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.utils.streaming_utils import StreamingResponseAggregator
from google.genai import types
from google.genai.errors import ClientError
from pydantic import Field, PrivateAttr
from verbose_runs import WINDOW, output, tokens

from buoyline.integrations.google_adk import BuoylinePlugin
from buoyline.window import Event as WindowEvent
from buoyline.window import HistoryForked

SESSION = "yard.jo.s1.builder"
SIGNATURE = bytes(range(256))
TOO_LONG = ClientError(400, {"error": {"message": "The input token count (12001) exceeds the maximum (12000)."}})


def log_in(folder: Path) -> Path:
    return folder / "workspace" / "sessions" / SESSION / "context.jsonl"


def results_of(events: Sequence[Event]) -> list[Any]:
    parts = [part for event in events if event.content for part in event.content.parts or []]
    return [(part.function_response.response or {})["result"] for part in parts if part.function_response]


def build(n: int) -> str:
    """Run a step of the build."""
    return output(n)


def text(words: str, **fields: Any) -> types.Part:
    return types.Part(text=words, **fields)


def call(tool: str, call_id: str | None = None, **arguments: Any) -> types.Part:
    function_call = types.FunctionCall(id=call_id, name=tool, args=arguments)
    return types.Part(function_call=function_call, thought_signature=SIGNATURE)


def script(first: int, end: int) -> list[list[types.Part]]:
    """Return what the model answers: calls alone, in pairs, after a thought or a text; then a lookup, and the end."""
    steps, n = list[list[types.Part]](), first
    while n < end:
        numbers = range(n, min(n + 1 + (n % 5 == 0), end))
        said = [text(f"Step {n}.", thought=n % 2 == 0)] if n % 3 == 0 else []
        steps.append([*said, *(call("build", n=at) for at in numbers)])
        n = numbers.stop
    return [*steps, [call("grep", pattern="SECRET-3-")], [text("Done.")]]


class CheckedModel(BaseLlm):
    """Answers with the steps, each of parts or an error, as Gemini's client does; `requests` and `sizes` are sent."""

    requests: list[list[types.Content]] = Field(default_factory=list[list[types.Content]])
    sizes: list[int] = Field(default_factory=list[int])
    _steps: list[Any] = PrivateAttr()

    def __init__(self, steps: Sequence[Any]) -> None:
        super().__init__(model="checked")
        self._steps = [*steps]

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - as ADK calls it
    ) -> AsyncGenerator[LlmResponse, None]:
        contents, config = llm_request.contents, llm_request.config
        check(contents)
        sent = [one.model_dump(mode="json", exclude_none=True, exclude={"labels"}) for one in (config, *contents)]
        self.requests.append(contents)
        self.sizes.append(tokens(sent))
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        chunks = [_response([part], self.sizes[-1]) for part in step] if stream else [_response(step, self.sizes[-1])]
        if not stream:
            yield LlmResponse.create(chunks[0])
            return
        aggregator = StreamingResponseAggregator()
        for chunk in chunks:
            async for response in aggregator.process_response(chunk):
                yield response
        if (whole := aggregator.close()) is not None:
            yield whole


def _response(parts: Sequence[types.Part], size: int) -> types.GenerateContentResponse:
    content = types.Content(role="model", parts=[part.model_copy(deep=True) for part in parts])
    candidate = types.Candidate(content=content, finish_reason=types.FinishReason.STOP)
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=size, candidates_token_count=50)
    return types.GenerateContentResponse(candidates=[candidate], usage_metadata=usage)


def check(contents: Sequence[types.Content]) -> None:
    """Assert what Gemini demands: the results of each content's calls are in the next one, in order, and no others."""
    assert contents[0].role == "user"
    asked = list[tuple[Any, Any]]()
    for content in contents:
        parts = content.parts or []
        assert [(result.name, result.id) for part in parts if (result := part.function_response)] == asked
        asked = [(one.name, one.id) for part in parts if (one := part.function_call)]
        assert content.role == "model" or not asked
    assert asked == []


class Run:
    """An app of one agent in a folder, as a user makes it."""

    def __init__(self, folder: Path, steps: Sequence[Any], *, tools: Sequence[Any] = (), **agent: Any) -> None:
        self.events = list[WindowEvent]()
        self.plugin = BuoylinePlugin(folder / "workspace", size=WINDOW, on_event=self.events.append)
        self.model, tools = CheckedModel(steps), [build, *tools, *self.plugin.tools]
        fields = {"name": "builder", "instruction": "You build.", "model": self.model, "tools": tools, **agent}
        app = App(name="yard", root_agent=LlmAgent(**fields), plugins=[self.plugin])
        self.sessions = SqliteSessionService(str(folder / "sessions.db"))
        services: Any = {"session_service": self.sessions, "artifact_service": InMemoryArtifactService()}
        self.runner = Runner(app=app, auto_create_session=True, **services)

    async def __call__(self, words: str = "Build all.", *, user: str = "jo", stream: bool = False) -> list[Event]:
        message = types.Content(role="user", parts=[text(words)])
        config = RunConfig.model_validate({"max_llm_calls": 200, "streaming_mode": "sse" if stream else None})
        events = self.runner.run_async(user_id=user, session_id="s1", new_message=message, run_config=config)
        return [event async for event in events]

    async def history(self, user: str = "jo") -> list[types.Content]:
        """Return what ADK has kept."""
        session = await self.sessions.get_session(app_name="yard", user_id=user, session_id="s1")
        assert session is not None
        return [event.content for event in session.events if event.content]

    async def added(self, session: str = SESSION) -> int:
        """Return how many messages buoyline has kept."""
        async with self.plugin.pool.of(session) as window:
            return window.added

    @property
    def forks(self) -> list[WindowEvent]:
        return [event for event in self.events if isinstance(event, HistoryForked)]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each model that is named call the agent's first tool and then end."""

    class FirstTool(BaseLlm):
        async def generate_content_async(
            self,
            llm_request: LlmRequest,
            stream: bool = False,  # noqa: FBT001, FBT002 - as ADK calls it
        ) -> AsyncGenerator[LlmResponse, None]:
            newest = (llm_request.contents[-1].parts or [text("")])[0]
            answer = text("Step 4711 fails: the disk is full.") if newest.function_response else None
            answer = answer or call(next(iter(llm_request.tools_dict)))
            yield LlmResponse(content=types.Content(role="model", parts=[answer]))

    monkeypatch.setattr(LLMRegistry, "new_llm", lambda name: FirstTool(model=name))


if __name__ == "__main__":

    def kill() -> None:
        """End the process."""
        os._exit(9)

    asyncio.run(Run(Path(sys.argv[1]), [*script(0, 8)[:-2], [call("kill")]], tools=[kill])())
