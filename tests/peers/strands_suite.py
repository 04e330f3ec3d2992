"""Strands' own tests of its context offloader and its conversation managers, run on ours.

    pip download --no-deps --no-binary :all: strands-agents==1.62.0 && tar xzf strands_agents-1.62.0.tar.gz
    python tests/peers/strands_suite.py strands_agents-1.62.0 [storage | plugin | managers]

No line of a test is changed. Each function below says which parts it replaces besides the classes. The tests for S3 are
omitted. Exits with pytest's status: 1 as long as a test fails.
"""

import asyncio
import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from strands.hooks import HookRegistry

from buoyline.integrations import strands as ours
from buoyline.integrations.strands import conversation, lookups, results
from buoyline.integrations.strands import plugin as offloader_plugin
from buoyline.window import offloading

OFFLOADER = "strands.vended_plugins.context_offloader"
MANAGERS = "strands.agent.conversation_manager"
AGENT = "tests/strands/agent"


def exchange(name: str, theirs: str, exchanged: Any = None) -> None:
    """Replace Strands' class *name* by ours, or by *exchanged*, in the package *theirs* and below it."""
    for module in [importlib.import_module(theirs), *map(sys.modules.get, [*sys.modules])]:
        if module is not None and module.__name__.startswith(theirs) and hasattr(module, name):
            setattr(module, name, exchanged or getattr(ours, name))


def storage() -> list[str]:
    """Replace the two storages."""
    exchange("FileStorage", OFFLOADER)
    exchange("InMemoryStorage", OFFLOADER)
    return ["tests/strands/vended_plugins/context_offloader/test_storage.py"]


def plugin() -> list[str]:
    """Replace the plugin, too.

    Its hooks and its tool get the names with which the tests call them. The tests' agents are doubles without a session
    and a window, so each has the session of the storages and 200,000 tokens. Most of their results have 200 characters,
    fewer than any stub of ours, so the size check is off.
    """
    storage()

    class Plugin(ours.ContextOffloader):
        _handle_tool_result = ours.ContextOffloader._after_tool_call
        _on_before_model_call = ours.ContextOffloader._before_model_call

        async def retrieve_offloaded_content(self, tool_context: Any, **given: Any) -> Any:
            attached = self._attachment_of(tool_context.agent)
            asked: lookups.WorkspaceTool = self._retrieval(attached.results, 200_000, list)
            content = await asked._answer(given)
            is_text = len(content) == 1 and "text" in content[0]
            return content[0]["text"] if is_text else {"status": "success", "content": content}

    exchange("ContextOffloader", OFFLOADER, Plugin)
    for module in (offloading, results):
        module.is_smaller = lambda *_: True  # type: ignore[attr-defined]
    offloader_plugin.session_of = lambda *_: "strands"  # type: ignore[attr-defined]
    offloader_plugin.window_of = lambda agent: 200_000  # noqa: ARG005 - called by its name
    return ["tests/strands/vended_plugins/context_offloader/test_plugin.py"]


def managers() -> list[str]:
    """Replace the managers; the sliding window has no notice.

    Synchronous callbacks before a model call run to completion, as an agent awaits them. The tests' agents are
    doubles without a session and tools, so each has a session, and no tools.
    """
    sliding = functools.partial(ours.SlidingWindowConversationManager, notice=False)
    exchange("NullConversationManager", MANAGERS)
    exchange("SummarizingConversationManager", MANAGERS)
    exchange("SlidingWindowConversationManager", MANAGERS, sliding)

    def invoke(self: HookRegistry, event: Any) -> Any:
        return asyncio.run(self.invoke_callbacks_async(event))

    conversation.session_of = lambda *_: "strands"  # type: ignore[attr-defined]
    conversation._tools_of = lambda agent: []  # noqa: ARG005 - called by its name
    HookRegistry.invoke_callbacks = invoke  # type: ignore[method-assign]
    names = ("test_conversation_manager", "test_summarizing_conversation_manager", "test_pin_message")
    return [f"{AGENT}/{name}.py" for name in names]


class Fixtures:
    """The fixtures of Strands' conftest.py that the suites need; its other parts need boto3."""

    @pytest.fixture(scope="session")
    def alist(self) -> Any:
        async def collected(items: Any) -> list[Any]:
            return [item async for item in items]

        return collected


def main() -> int:
    """Run one suite in the source distribution that the first argument names, and return pytest's status."""
    source = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(source))
    suite = {"storage": storage, "plugin": plugin, "managers": managers}[sys.argv[2] if sys.argv[2:] else "storage"]
    paths = [str(source / path) for path in suite()]
    options = ["-q", "--tb=line", "--noconftest", "-o", "addopts=", "-o", "asyncio_mode=auto", "-k", "not TestS3"]
    return int(pytest.main([*paths, f"--rootdir={source}", *options], plugins=[Fixtures()]))


if __name__ == "__main__":
    sys.exit(main())
