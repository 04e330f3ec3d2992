"""All that buoyline needs of AgentScope's agents and messages, with the types that AgentScope leaves open."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import groupby, pairwise
from typing import Any, Final, Literal, NamedTuple

from agentscope.agent import Agent
from agentscope.message import HintBlock, Msg, TextBlock, ToolCallBlock

from buoyline.compression.plan import legal_cuts
from buoyline.errors import ConfigError
from buoyline.messages import Message
from buoyline.messages.jsonl import is_object
from buoyline.offloader.stub import is_stub

_WINDOW_SHARE: Final = 0.5
"""Of the model's window, for one result: AgentScope's default limit of 50,000 tokens exceeds many windows."""


async def model_input(agent: Agent) -> dict[str, Any]:
    """Return ``messages`` and ``tools`` of the next model call, as AgentScope builds them.

    AgentScope has no public name for this, and its own count of the context depends on it.

    Raises:
        ConfigError: This AgentScope has no such method; see docs/agentscope.md.
    """
    # A private name of AgentScope, as of 2.0.10: the trigger compares what this returns with the window.
    prepare: Callable[[], Awaitable[dict[str, Any]]] | None = getattr(agent, "_prepare_model_input", None)
    if prepare is None:
        found = (
            f"AgentScope {version('agentscope')} has no Agent._prepare_model_input, on which the count of tokens rests"
        )
        raise ConfigError("agentscope", f"{found}; install agentscope 2.0.10, or a newer buoyline")
    return await prepare()


async def tokens_of(agent: Agent, messages: Sequence[Msg], tools: Sequence[Any] | None = None) -> int:
    """Return the tokens of *messages* and *tools* by the count of the agent's model."""
    model: Any = agent.model
    tokens: int = await model.count_tokens(list(messages), None if tools is None else list(tools))
    return tokens


def message_of(role: Literal["user", "assistant", "system"], content: str | Sequence[Any], name: str = "") -> Msg:
    """Return a new message of text or blocks; without a *name*, the speaker has that of the role."""
    blocks: list[Any] = [TextBlock(text=content)] if isinstance(content, str) else list(content)
    return Msg(name=name or role, role=role, content=blocks)


def result_limit_of(agent: Agent) -> int:
    """Return how many tokens one result may take, by the agent's own count."""
    return min(agent.context_config.tool_result_limit, int(_WINDOW_SHARE * agent.model.context_size))


def focus_of(instructions: HintBlock | None) -> str:
    """Return in words what a summary keeps above all."""
    if instructions is None:
        return ""
    hint = instructions.hint
    return hint if isinstance(hint, str) else "\n".join(block.text for block in hint if isinstance(block, TextBlock))


async def forget_reads(agent: Agent) -> None:
    """Have AgentScope's file tools forget files whose reading is archived, as its own compression does."""
    paths: set[str] = set()
    for block in (block for message in agent.state.context for block in message.content):
        if isinstance(block, ToolCallBlock) and block.name == "Read":
            with suppress(ValueError):
                arguments: object = json.loads(block.input)
                path = arguments.get("file_path") if is_object(arguments) else None
                paths |= {path} if isinstance(path, str) else set()
    await agent.state.tool_context.clean_file_cache(reserved_file_paths=paths)


# Requests that a provider refuses as too long.
#
# AgentScope passes on the errors of each provider's client. They have no class in common, so an error is recognized by
# its status and its words. Source: the answers of OpenAI, Anthropic, Google, DashScope, xAI, Mistral, vLLM and
# llama.cpp.

_STATUSES: Final = frozenset({None, 400, 413, 422})
"""Of requests that may be too long. Too many tokens in a minute, for example, are 429."""

_TOO_LARGE: Final = 413

_WORDS: Final = (
    "context length",
    "context_length",
    "context window",
    "context size",
    "context limit",
    "maximum context",
    "maximum prompt length",
    "model maximum",
    "max_model_len",
    "too many tokens",
    "too many total text bytes",
    "prompt is too long",
    "input is too long",
    "input token count",
    "range of input length",
)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the clients of OpenAI, Anthropic, Google and others put on their errors."""
    for name in ("status_code", "code", "status"):
        found: Any = getattr(error, name, None)
        if isinstance(found, int):
            return found
    return None


def is_overflow(error: BaseException) -> bool:
    """Return whether the provider has refused a request as too long."""
    status, said = status_of(error), str(error).casefold()
    return status == _TOO_LARGE or (status in _STATUSES and any(words in said for words in _WORDS))


# The pieces of an agent's context, of which the oldest are archived.
#
# AgentScope collects a whole reply, all its rounds of calls and results, in one message that grows. So a context may
# be two messages of which the second takes all tokens. A piece is a message; of an assistant's message it is all that
# the model said and called at once, one result, or one hint. The boundaries do not depend on when a context is cut.
# Like AgentScope's own cut, a cut inside a message makes two messages with one id.


_ALONE: Final = frozenset({"tool_result", "hint"})
"""Blocks that are a piece each; all others come from the model, several at a time."""


class Piece(NamedTuple):
    """Blocks of a message, from *start* to before *stop*, that are archived together.

    *changed* replaces these blocks; None: they are unchanged.
    """

    message: Msg
    start: int
    stop: int
    changed: Msg | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the message."""
        return self.start == 0 and self.stop == len(self.message.content)

    @property
    def blocks(self) -> list[Any]:
        """The blocks themselves."""
        return self.message.content[self.start : self.stop]

    @property
    def native(self) -> Msg:
        """The message itself if it is whole, or a message of the same id with these blocks."""
        if self.changed is not None:
            return self.changed
        return self.message if self.is_whole else with_content(self.message, self.blocks)

    @property
    def key(self) -> tuple[str, str]:
        """The ids of the message and of the first block: they identify the piece, whatever is archived before it."""
        blocks = self.message.content if self.message.role == "assistant" else []
        return self.message.id, blocks[self.start].id if self.start < len(blocks) else ""


def with_content(message: Msg, content: Sequence[Any]) -> Msg:
    """Return a message like *message* with other content; its blocks are the very objects."""
    return message.model_copy(update={"content": list(content)})


def beginning(
    context: Sequence[Msg], archived: Sequence[Mapping[str, Any]], *, is_redacted: bool = False
) -> list[Piece]:
    """Return the pieces that *context* begins with, as *archived* cuts them, up to the first that it does not have.

    Args:
        context: The messages of an agent.
        archived: JSON of archived messages that the context should begin with. Blocks are known by their ids.
        is_redacted: The archive does not hold all texts word for word, so they are not compared.
    """
    pieces: list[Piece] = []
    at = start = 0
    for value in archived:
        if at == len(context):
            break
        message, blocks = context[at], value["content"]
        stop = start + len(blocks)
        mine = [(block.type, block.id) for block in message.content[start:stop]]
        if message.id != value["id"] or mine != [(block["type"], block["id"]) for block in blocks]:
            break
        if (not blocks and message.content) or (not is_redacted and _is_edited(message, blocks)):
            break
        pieces.append(Piece(message, start, stop))
        at, start = (at + 1, 0) if stop == len(message.content) else (at, stop)
    return pieces


def _is_edited(message: Msg, archived: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the user's words were edited since they were *archived*; a stub may be in their place."""
    if message.role != "user":
        return False
    pairs = zip(message.content, archived, strict=False)
    said = ((mine.text, str(theirs["text"])) for mine, theirs in pairs if isinstance(mine, TextBlock))
    return any(mine != theirs and not is_stub(mine) and not is_stub(theirs) for mine, theirs in said)


def pieces_of(context: Sequence[Msg], known: Sequence[Piece] = ()) -> list[Piece]:
    """Cut *context* into pieces, in order, of which the first ones are *known*."""
    at = sum(piece.stop == len(piece.message.content) for piece in known)
    start = known[-1].stop if known and known[-1].stop < len(known[-1].message.content) else 0
    pieces = list(known)
    for message in context[at:]:
        pieces += _cut(message, start)
        start = 0
    return pieces


def _cut(message: Msg, start: int) -> list[Piece]:
    """Cut the blocks of *message* from *start* on into pieces."""
    content = message.content
    cuts = [start]
    if message.role == "assistant":
        alone = [block.type in _ALONE for block in content]
        cuts += [at for at in range(start + 1, len(content)) if alone[at] or alone[at - 1]]
    return [Piece(message, *ends) for ends in pairwise([*cuts, len(content)])]


def messages_of(pieces: Sequence[Piece]) -> list[Msg]:
    """Join pieces to messages; a whole message is the very object."""
    messages: list[Msg] = []
    for _, group in groupby(pieces, key=lambda piece: id(piece.message)):
        parts = list(group)
        message = parts[0].message
        if all(part.changed is None for part in parts):
            messages.append(Piece(message, parts[0].start, parts[-1].stop).native)
        else:
            messages.append(with_content(message, [block for part in parts for block in part.native.content]))
    return messages


def added_since(context: Sequence[Msg], pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that a tool or a user has added to *context* since it was cut into *pieces*."""
    if not pieces:
        return pieces_of(context)
    last = pieces[-1]
    at = max((number for number, message in enumerate(context) if message is last.message), default=len(context))
    grown = [] if at == len(context) or last.stop >= len(last.message.content) else _cut(last.message, last.stop)
    return [*grown, *pieces_of(context[at + 1 :])]


def last_cut(views: Sequence[Message], at_most: int) -> int:
    """Return how many of the oldest pieces may be archived, *at_most* so many; 0 if none may."""
    return max((legal for legal in legal_cuts(views) if legal <= at_most), default=0)
