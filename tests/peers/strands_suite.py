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
from unittest.mock import Mock

import pytest
from strands.hooks import HookRegistry

from buoyline.integrations import strands as ours
from buoyline.integrations.strands import managers as manager_module

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
    """Replace the plugin, too."""
    storage()
    exchange("ContextOffloader", OFFLOADER)
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

    manager_module.session_of = lambda *_: "strands"  # type: ignore[attr-defined]
    manager_module.workspace_of = lambda *_: None  # type: ignore[attr-defined]
    follow = ours.Archiving._follow

    async def followed(self: Any, agent: Any) -> Any:
        agent.system_prompt, agent.tool_registry = "", Mock(get_all_tool_specs=list)
        if isinstance(agent.model, Mock) and not isinstance(agent.model.context_window_limit, int):
            agent.model.context_window_limit = 200_000
        return await follow(self, agent)

    ours.Archiving._follow = followed  # type: ignore[method-assign]
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
