"""Whatever a document says, and whatever was said: a window under it can be sent, fits, loses nothing, and resumes."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from estimates import Estimates
from hypothesis import example, given, reject
from hypothesis import strategies as st
from window_forms import FORMS, Form

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.compression import ContextConfig
from buoyline.compression.plan import pair_spans
from buoyline.errors import ContextOverflowError
from buoyline.management import ContextManagement
from buoyline.management.context import ContextMessage
from buoyline.messages import Message, spell
from buoyline.messages.dialect import OPENING
from buoyline.messages.model import Note
from buoyline.messages.registry import detect, dialect_named
from buoyline.tokens.messages import count_message

SESSION = "s1"
COUNTER = Estimates()
CALL_IDS = ("", "a", "b", "c")

counts = st.integers(1, 12)
activations = st.fixed_dictionaries(
    {},
    optional={
        "message_count_exceed": counts,
        "tokens_exceed": st.integers(1, 400),
        "tokens_exceed_ratio": st.floats(0.01, 1),
    },
)
configs: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "SlidingWindowManager": {"max_messages": counts, "notice": st.booleans()},
    "SummarizationManager": {
        "summary_ratio": st.floats(0.1, 0.8),
        "preserve_recent_messages": st.integers(0, 8),
        "summarization_model_id": st.sampled_from(["", "small"]),
    },
    "ToolsOutputTruncateManager": {"max_output_length": st.integers(1, 300)},
    "ToolResultMaskManager": {"keep_recent_results": st.integers(0, 3), "min_tokens": st.integers(1, 40)},
}


def entry_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    config = st.fixed_dictionaries({}, optional=configs[kind])
    return st.fixed_dictionaries({"type": st.just(kind), "config": config, "activation": activations})


entries = st.lists(st.sampled_from(sorted(configs)).flatmap(entry_of), min_size=1, max_size=3)
hooks = st.dictionaries(st.sampled_from(["pre_llm", "post_tool"]), entries, max_size=2)
texts = st.sampled_from(["short", "some words " * 8, "line\n" * 60])
IMAGE = {"url": "data:image/png;base64,iVBORw0KGgo="}


def openai_call(call_ids: Sequence[str]) -> dict[str, Any]:
    function = {"name": "read", "arguments": "{}"}
    made = [{"id": call_id, "type": "function", "function": function} for call_id in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def openai_result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


id_lists = st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=3)
openai_messages = st.one_of(
    texts.map(lambda text: {"role": "user", "content": text}),
    texts.map(lambda text: {"role": "assistant", "content": text}),
    st.just({"role": "system", "content": "be good"}),
    st.just({"role": "user", "content": [{"type": "image_url", "image_url": IMAGE}]}),
    id_lists.map(openai_call),
    st.builds(openai_result, st.sampled_from(CALL_IDS), texts),
)


def openai_group(call_ids: Sequence[str], text: str) -> list[dict[str, Any]]:
    return [openai_call(call_ids), *(openai_result(call_id, text) for call_id in call_ids)]


def flat(groups: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    # Fresh objects: the very same one twice in a conversation could not be told apart below.
    return [json.loads(spell(message)) for group in groups for message in group]


openai_groups = st.builds(openai_group, id_lists, texts)
conversations = st.lists(openai_messages.map(lambda message: [message]) | openai_groups, min_size=1, max_size=10).map(
    flat
)


def orphans(messages: Sequence[Message]) -> int:
    """Count the results that answer no call before them."""
    waiting: list[str] = []
    found = 0
    for message in messages:
        waiting.extend(call.call_id for call in message.calls)
        for result in message.results:
            if result.call_id in waiting:
                waiting.remove(result.call_id)
            else:
                found += 1
    return found


def unanswered(messages: Sequence[Message]) -> int:
    """Count the calls without a result behind them."""
    calls = sum(len(message.calls) for message in messages)
    return calls - (sum(len(message.results) for message in messages) - orphans(messages))


def view(message: dict[str, Any]) -> Message:
    return detect(message).view(message)


def spoken_by_user(messages: Sequence[Message]) -> list[int]:
    """Return the positions of what a user has said, ascending: a hint reads as the user's, and nobody has said it."""
    return [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and not all(isinstance(part, Note) for part in message.parts)
    ]


def late_pairs(originals: Sequence[Message]) -> set[tuple[int, int]]:
    """Return the pairs whose result comes after the user or the model has spoken again: nobody waits for that."""
    spoken = {at for at, message in enumerate(originals) if message.role == "assistant"} | set(
        spoken_by_user(originals)
    )
    return {(start, end) for start, end in pair_spans(originals) if any(start < at < end for at in spoken)}


def assert_pairs_are_whole(
    standing: Sequence[ContextMessage], originals: Sequence[Message], late: set[tuple[int, int]]
) -> None:
    """A call stands with its result, or neither does."""
    indexes = {one.index for one in standing}
    for start, end in set(pair_spans(originals)) - late:
        assert (start in indexes) == (end in indexes), (start, end)


def assert_whole(shown: Message, original: Message, workspace: MemoryWorkspace) -> None:
    """Either the very text of each result stands there, or a stored file holds it."""
    for mine, theirs in zip(shown.results, original.results, strict=True):
        if mine.text != theirs.text:
            stored = asyncio.run(workspace.missing(SESSION, [theirs.text]))
            assert stored == []


@dataclass
class Run:
    """A conversation through a window under a document; at some messages another window goes on.

    Attributes:
        management: The document.
        conversation: What is fed.
        size: Tokens of the window.
        stops: Positions behind which the window is given up, and resumed.
        handed: What each step handed out, as text.
        left: What did not fit, at each step.
    """

    management: ContextManagement
    conversation: list[Any]
    size: int
    stops: frozenset[int] = frozenset()
    handed: list[list[str]] = field(default_factory=list)
    workspace: MemoryWorkspace = field(default_factory=lambda: MemoryWorkspace(evict_after_turns=None))

    async def go(self) -> None:
        self.window = ContextWindow(
            session_id=SESSION,
            offloader=self.workspace,
            size=self.size,
            counter=COUNTER,
            management=self.management,
            config=ContextConfig(tool_result_limit=60, preview_tokens=30),
        )
        for position, message in enumerate(self.conversation):
            await self.window.add(message)
            if view(message).role != "assistant":
                await self._step()
            else:
                await self.window.save()
            if position in self.stops:
                await self._resume()
        await self._step()
        try:
            await self.window.recover_from_overflow(OverflowError("too long"))
        except ContextOverflowError as error:
            self.handed.append([type(error).__name__])
        self.handed.append(spelled(self.window.messages))

    async def refusal(self) -> ContextOverflowError | None:
        """Feed the conversation; return the error of a window that is too small for what is pinned."""
        try:
            await self.go()
        except ContextOverflowError as error:
            return error
        return None

    async def _step(self) -> None:
        messages = await self.window.prepare()
        self.handed.append(spelled(messages))
        views = [view(message) for message in messages]
        tokens = sum(count_message(one, COUNTER) for one in views)
        # The line before the model's words is not counted, and Bedrock's neighbors of one role share the frame of one.
        tokens -= sum(count_message(one, COUNTER) for one in views[:1] if one.text == OPENING)
        assert tokens <= self.window.tokens
        assert tokens == self.window.tokens or detect(messages[0]).name == "bedrock"
        assert tokens <= self.size or self.window.exceeding()

    async def _resume(self) -> None:
        before = self.window
        self.window = await ContextWindow.resume(self.workspace, SESSION, counter=COUNTER)
        assert spelled(self.window.messages) == spelled(before.messages)
        assert self.window.tokens == before.tokens
        assert self.window.management == self.management


def spelled(messages: Sequence[Any]) -> list[str]:
    """Return what *messages* say; AgentScope stamps the time on some blocks of what comes back from disk."""
    return [said(view(message)) for message in messages]


def said(message: Message) -> str:
    calls = [(call.call_id, call.name, call.arguments) for call in message.calls]
    results = [(result.call_id, result.text, len(result.parts)) for result in message.results]
    return repr((message.role, len(message.parts), message.text, calls, results))


def in_form(form: Form, turns: Sequence[tuple[list[str], str]]) -> list[Any]:
    """Return calls with their results, and words of the user where there are no calls, in the form of a dialect."""
    found: list[Any] = []
    for call_ids, text in turns:
        if call_ids:
            # Two results of one id in a message would be one here.
            answered = form.answering({call_id: [text] for call_id in dict.fromkeys(call_ids)})
            found += [form.calling(*dict.fromkeys(call_ids)), *answered]
        else:
            found.append(form.user(text))
    return found


BEDROCK_NEIGHBORS = in_form(next(form for form in FORMS if form.name == "bedrock"), [([""], "short"), ([], "short")])
SUMMARIZING = {"pre_llm": [{"type": "SummarizationManager", "config": {"preserve_recent_messages": 0}}]}
SILENT = {
    "pre_llm": [
        {"type": "SummarizationManager", "config": {"preserve_recent_messages": 0}},
        {"type": "SlidingWindowManager", "config": {"max_messages": 1, "notice": False}},
    ]
}
ENDING_WITH_A_CALL = [
    {"role": "assistant", "content": "short"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "", "name": "read", "input": {}}]},
]

turns = st.lists(st.tuples(st.lists(st.sampled_from(CALL_IDS), max_size=3), texts), min_size=1, max_size=10)
any_dialect = conversations | st.builds(in_form, st.sampled_from(FORMS), turns)


@given(hooks, any_dialect, st.integers(300, 3_000))
@example(
    {"pre_llm": [{"type": "SummarizationManager", "config": {"preserve_recent_messages": 0}}]}, BEDROCK_NEIGHBORS, 300
)
@example(SILENT, ENDING_WITH_A_CALL, 300)
def test_any_document_leaves_a_window_that_fits_and_can_be_sent_and_an_archive_that_has_the_rest(
    document: dict[str, Any], conversation: list[Any], size: int
) -> None:
    run = Run(ContextManagement.read({"hooks": document}), conversation, size)
    refused = asyncio.run(run.refusal())
    if refused is not None:
        # A call was pinned before its results came, and all of them together are larger than the window.
        assert refused.tokens > refused.max_tokens == size
        reject()
    context = run.window._engine.compaction.view()  # pyright: ignore[reportPrivateUsage] - indexes are shown nowhere else
    standing = list(context.all_messages())
    views = [one.message for one in standing]
    originals = [view(message) for message in conversation]

    assert context.messages
    ours = [one for one in standing if not one.is_ours]
    late = late_pairs(originals)
    late_results = sum(len(originals[at].results) for at in {result for _, result in late})
    late_calls = sum(len(originals[at].calls) for at in {call for call, _ in late})
    assert orphans(views) <= orphans(originals) + late_results
    assert unanswered(views) <= unanswered(originals) + late_calls
    assert_pairs_are_whole(ours, originals, late)

    indexes = {one.index for one in ours}
    assert {at for at, message in enumerate(originals) if message.role == "system"} <= indexes
    assert set(spoken_by_user(originals)[-1:]) <= indexes
    assert [one.index for one in context.messages] == list(range(context.messages[0].index, len(conversation)))

    left = context.messages[0].index
    archived = asyncio.run(run.workspace.load_messages(SESSION, 0, left)) if left else []
    assert len(archived) == left
    for (name, value), original in zip(archived, conversation, strict=False):
        assert_whole(dialect_named(name).view(value), view(original), run.workspace)
    for one in ours:
        assert_whole(one.message, originals[one.index], run.workspace)


@given(hooks, any_dialect, st.integers(300, 3_000), st.sets(st.integers(0, 9), min_size=1))
def test_a_window_that_was_resumed_goes_on_as_if_it_had_never_stopped(
    document: dict[str, Any], conversation: list[Any], size: int, stops: set[int]
) -> None:
    management = ContextManagement.read({"hooks": document})
    whole, parts = Run(management, conversation, size), Run(management, conversation, size, frozenset(stops))
    asyncio.run(whole.go())
    asyncio.run(parts.go())
    assert parts.handed == whole.handed
