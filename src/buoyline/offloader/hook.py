"""Offloading a single tool result without a window: for hooks around a tool call, proxies and scripts."""

from dataclasses import replace

from buoyline.messages import Message, ToolResult
from buoyline.offloader.policy import is_smaller, is_too_large
from buoyline.offloader.protocol import Offloader, StoredResult, abilities_of
from buoyline.offloader.stub import stub
from buoyline.offloader.transcript import reference_line_for
from buoyline.tokens import TextCounter, default_counter


async def stub_for(
    offloader: Offloader,
    session_id: str,
    result: ToolResult,
    *,
    max_tokens: int = 1_000,
    counter: TextCounter | None = None,
    retrieval_tool: str = "",
) -> str:
    """Store a tool result and return the text that an agent sees in its place.

    A `ContextWindow` does this for you. Use the function if the framework calls you once for each tool result and
    keeps the messages itself. A window that resumes the session knows the stub.

    Args:
        offloader: The workspace that keeps the result, or any other offloader.
        session_id: The session that the result belongs to.
        result: The whole result.
        max_tokens: The most that the text takes. Only the notice with the path is never cut.
        counter: Counts tokens; by default o200k.
        retrieval_tool: The name of the tool that reads offloaded results, if the agent has one.

    Returns:
        The text of *result* itself if it fits or if a stub would not be smaller. Then nothing is stored, unless it has
        images or other media. Otherwise its stub, then one line for each of its media.

    Raises:
        RedactionError: A redaction hook failed; nothing was stored.
        StorageError: The file system refused.

    Example:
        >>> import asyncio
        >>> from buoyline.messages import Text, ToolResult
        >>> from buoyline.workspace import MemoryWorkspace
        >>> log = "".join(f"line {number}: ok" + chr(10) for number in range(5_000))
        >>> result = ToolResult("call-1", "bash", (Text(log),))
        >>> print(asyncio.run(stub_for(MemoryWorkspace(), "s1", result, max_tokens=200)).partition("]")[0])
        [Tool result offloaded: 5,000 lines, about 34,000 tokens
    """
    counter = counter or default_counter()
    if not is_too_large(result, max_tokens, counter) and len(result.texts) == len(result.parts):
        return result.text
    abilities = abilities_of(offloader)
    if abilities.results is None:
        reference = await offloader.offload_tool_result(session_id, result if result.native is None else result.native)
        return _shown(result, StoredResult(reference, "", "", 0), max_tokens, counter, retrieval_tool)
    stored = await abilities.results.store_result(session_id, result)
    if abilities.redactor is not None:
        # The lines of the preview are those of the stored file, and a cut must not show half of a secret.
        (message,) = await abilities.redactor.redacted([Message("tool", (replace(result, native=None),))])
        (result,) = message.results
    shown = _shown(result, stored, max_tokens, counter, retrieval_tool)
    if shown != result.text:
        await abilities.results.record_stub(session_id, shown, stored)
    return shown


def _shown(result: ToolResult, stored: StoredResult, max_tokens: int, counter: TextCounter, retrieval_tool: str) -> str:
    media = [reference_line_for(part) for part in stored.parts if part.kind not in {"text", "json"} and part.reference]
    text_tokens = max(max_tokens - sum(counter.count(f"\n{line}") for line in media), 1)
    text = result.text
    if counter.exceeds(text, text_tokens):
        short = stub(text, stored, text_tokens, counter, retrieval_tool)
        text = short if is_smaller(short, text, counter) else text
    return "\n".join(filter(None, [text, *media]))
