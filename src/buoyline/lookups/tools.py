"""The lookups as tools for an agent: `read`, `grep` and `search`."""

import asyncio
import copy
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.errors import BuoylineError, ConfigError, NotFoundError, storage_error
from buoyline.lookups.answer import LEAST_TOKENS, Answer, Counter
from buoyline.lookups.grep import grep
from buoyline.lookups.read import read
from buoyline.lookups.search import search
from buoyline.lookups.sources import Sources
from buoyline.previews.source import visible
from buoyline.tokens.o200k import counter_of
from buoyline.workspace import layout
from buoyline.workspace.workspace import Workspace

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DIGITS = re.compile(r"-?[0-9]{1,15}")
_MAX_ERROR_CHARS = 600


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool for a model, in a form that every framework can use.

    Attributes:
        name: ``[a-zA-Z0-9_-]{1,64}``, which every provider accepts.
        description: For the model.
        parameters: JSON Schema of the arguments, an object. The tool's own copy of plain dicts and lists, since
            frameworks check for a dict, copy it, pickle it, and some make it strict in place.
        call: Takes the arguments by name and returns text for the model. An error is an answer as well: the model can
            correct its call, and no exception ends the run.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[..., Coroutine[Any, Any, str]]

    def openai(self) -> dict[str, Any]:
        """Return the definition for ``tools`` of chat completions.

        Source: OpenAI API reference, ``POST /chat/completions``, ``tools``.
        """
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def anthropic(self) -> dict[str, Any]:
        """Return the definition for ``tools`` of messages.

        Source: Anthropic API reference, ``POST /v1/messages``, ``tools``.
        """
        return {"name": self.name, "description": self.description, "input_schema": dict(self.parameters)}


# A model reads these with every request, so they say only what it must know before its first call. Answers say that
# they are data and how to go on.
_READ = "Read lines of a file, a citation, or transcript.md:-60 (its end). Path . lists files."
_GREP = (
    "Find lines by RE2 pattern, such as (?i)error. path: file or *.txt (default: all offloaded). last: newest first."
)
_SEARCH = "Find offloaded passages by words, names, ids."

_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool}
_LOOKUPS: tuple[tuple[Callable[..., Answer], str, Mapping[str, str]], ...] = (
    (read, _READ, {"path": "string", "start": "integer", "end": "integer"}),
    (
        grep,
        _GREP,
        {"pattern": "string", "path": "string", "context": "integer", "last": "boolean", "start": "integer"},
    ),
    (search, _SEARCH, {"query": "string", "path": "string", "start": "integer"}),
)
"""Each lookup with its description and the types of its arguments, of which the first is required."""


def lookup_tools(
    workspace: Workspace,
    session_id: str | None = None,
    *,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    prefix: str = "",
) -> list[Tool]:
    """Make the tools with which an agent finds what was archived or offloaded.

    They write nothing. A call runs in a thread, so the event loop goes on, and always answers with text: one line says
    what is wrong with a call. No answer needs offloading.

    *session_id* is the agent's session: its files are found by their bare names, and nothing else is reached but blobs
    in ``data/`` by their whole name, which only an agent that has seen them knows. None reaches all of them.
    *max_tokens* bounds each answer; *counter* counts them, None is the default counter. *prefix* begins the names of
    the tools, for an agent that has others of these names.

    Returns:
        `read`, `grep` and `search`, in this order.

    Raises:
        ConfigError: *workspace* is no workspace, *max_tokens* is under 200, *counter* cannot count, or a name with
            *prefix* is none that providers accept.
        InvalidNameError: *session_id* cannot be the id of a session.
    """
    Sources(workspace, None)
    if max_tokens < LEAST_TOKENS:
        raise ConfigError("max_tokens", f"{max_tokens} is too small for an answer; give {LEAST_TOKENS} or more")
    if session_id is not None:
        layout.session_directory(session_id)
    limits = {"max_tokens": max_tokens, "counter": counter_of(counter)}

    def tool(lookup: Callable[..., Answer], description: str, types: Mapping[str, str]) -> Tool:
        name = f"{prefix}{lookup.__name__}"
        if not _NAME.fullmatch(name):
            raise ConfigError("prefix", f"{name[:80]!r} is no name of a tool; use letters, digits, _ and -")
        properties = {argument: {"type": kind} for argument, kind in types.items()}
        parameters = {"type": "object", "properties": properties, "required": [next(iter(types))]}

        def answer(arguments: Mapping[str, Any]) -> str:
            try:
                return lookup(workspace, **_checked(name, types, arguments), **limits, session=session_id).text
            except BuoylineError as error:
                if isinstance(error, NotFoundError) and error.kind == "session":
                    return "[Nothing was archived or offloaded in this session yet.]\n"
                return _error_line(error, workspace)
            except OSError as error:
                return _error_line(storage_error(error), workspace)

        async def call(**arguments: Any) -> str:
            return await asyncio.to_thread(answer, arguments)

        return Tool(name, description, copy.deepcopy(parameters), call)

    return [tool(*each) for each in _LOOKUPS]


def _checked(tool: str, types: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return *arguments* without those that are null; a number may come as text."""
    given = {name: value for name, value in arguments.items() if value is not None}
    required = next(iter(types))
    for name in given:
        if name not in types:
            raise ConfigError(tool, f"has no argument {name[:80]!r}; it takes {', '.join(types)}")
    if required not in given:
        raise ConfigError(required, f"is missing; {tool} needs it")
    for name, value in given.items():
        kind = types[name]
        if kind == "integer" and isinstance(value, str) and _DIGITS.fullmatch(value):
            given[name] = int(value)
        elif not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "boolean"):
            raise ConfigError(name, f"must be {kind}, not {type(value).__name__}")
    return given


def _error_line(error: BuoylineError, workspace: Workspace) -> str:
    """Return an error for the model: one line of bounded length, with the workdir as the agent sees it."""
    text = visible(str(error).replace(workspace.disk.path(""), workspace.roots[0])).replace("\n", "\\n")
    if len(text) > _MAX_ERROR_CHARS:  # the end says what to do
        text = f"{text[: _MAX_ERROR_CHARS // 2]} ... {text[-_MAX_ERROR_CHARS // 2 :]}"
    return f"Error: {text}\n"
