"""The lookups as tools for an agent: `read`, `grep`, `search`; and the words of ``retrieve_offloaded_content``."""

import asyncio
import copy
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from buoyline.errors import BuoylineError, ConfigError, NotFoundError, storage_error
from buoyline.lookups.answer import Answer, Counter, shown_path
from buoyline.lookups.grep import grep
from buoyline.lookups.read import read
from buoyline.lookups.search import search
from buoyline.lookups.sources import require_workspace
from buoyline.offloader import ToolRule
from buoyline.tokens.o200k import counter_of
from buoyline.workspace import ReadableWorkspace, layout

SessionId: TypeAlias = str | Callable[[], str] | None

_MAX_ERROR_CHARS = 600
_DIGITS = re.compile(r"-?[0-9]{1,15}")
_KINDS: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


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


LOOKUP_RULES: Mapping[str, ToolRule] = MappingProxyType(
    dict.fromkeys(
        ("read", "grep", "search", "retrieve_offloaded_content"),
        ToolRule(offload="never"),
    )
)
"""Rules for `ContextConfig.tool_rules` that keep the answers of these tools in the context: they are small, and an
agent that has to look up its own lookups would go in circles."""

# A model reads these with every request, so they say only what it must know before its first call. Answers say that
# they are data and how to go on.
_READ = 'Read lines of a file, "summary 3" or transcript.md:-60 (its end).'
_GREP = (
    "Find lines by RE2 pattern, such as (?i)error. path: file or *.txt (default: all offloaded). last: newest first."
)
_SEARCH = "Find offloaded passages by words, names, ids."

_LEAST_TOKENS = 200
_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_FLAG = {"type": "boolean"}
_LIST = {"type": "array", "items": _TEXT}


def _schema(required: Sequence[str], **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    own = {name: dict(schema) for name, schema in properties.items()}  # a framework may change one in place
    return {"type": "object", "properties": own, "required": [*required]}


_READ_PARAMETERS = _schema(["path"], path=_TEXT, start=_INTEGER, end=_INTEGER)
_GREP_PARAMETERS = _schema(["pattern"], pattern=_TEXT, path=_TEXT, context=_INTEGER, last=_FLAG, after=_TEXT)
_SEARCH_PARAMETERS = _schema(["query"], query=_TEXT, path=_TEXT, start=_INTEGER)
_SEVERAL: Mapping[str, Any] = {"path": {"anyOf": [_TEXT, _LIST]}}
"""What `grep` and `search` accept instead of the schema: several paths at once."""


def lookup_tools(
    workspace: ReadableWorkspace,
    session_id: SessionId = None,
    *,
    max_tokens: int = 2_000,
    timeout_s: float = 30.0,
    counter: Counter | None = None,
) -> list[Tool]:
    """Make the tools with which an agent finds what was archived or offloaded, and other files of the workspace.

    They read regular files of the workspace only and write nothing. A call runs in a thread, so the event loop goes on,
    and always answers with text: one line says what is wrong with a call. No answer needs offloading.

    *session_id* is the agent's session: its files are found by their bare names, and nothing else is reached but blobs
    in ``data/`` by their whole name, which only an agent that has seen their reference knows. A function is called,
    without an argument, at each call of a tool and returns the session of that call. None reaches every session.

    *max_tokens* bounds each answer. After *timeout_s* seconds a search ends
    with the hits so far. *counter* counts tokens; None is the default counter.

    Returns:
        `read`, `grep` and `search`, in this order.

    Raises:
        ConfigError: *workspace* is no workspace, *max_tokens* is under 200, too small for an answer, or *counter*
            cannot count.
        InvalidNameError: *session_id* cannot be the id of a session.
    """
    require_workspace(workspace)
    if max_tokens < _LEAST_TOKENS:
        raise ConfigError("max_tokens", f"{max_tokens} is too small for an answer; give {_LEAST_TOKENS} or more")
    if session_id is not None and not callable(session_id):
        layout.session_directories(session_id)
    limits = {"max_tokens": max_tokens, "counter": counter_of(counter)}
    timed = {**limits, "timeout_s": timeout_s}

    def tool(
        lookup: Callable[..., Answer], description: str, parameters: Mapping[str, Any], limits: Mapping[str, Any]
    ) -> Tool:
        name = lookup.__name__

        def answer(session: str | None, arguments: Mapping[str, Any]) -> str:
            try:
                given = _checked(name, parameters, arguments)
                return lookup(workspace, **given, **limits, session=session).text
            except BuoylineError as error:
                if isinstance(error, NotFoundError) and error.kind == "session":
                    return "[Nothing was archived or offloaded in this session yet.]\n"
                return _error_line(error, workspace)
            except OSError as error:
                return _error_line(storage_error(error), workspace)

        async def call(**arguments: Any) -> str:
            return await asyncio.to_thread(answer, _current(session_id), arguments)

        return Tool(name, description, copy.deepcopy(dict(parameters)), call)

    return [
        tool(read, _READ, _READ_PARAMETERS, limits),
        tool(grep, _GREP, _GREP_PARAMETERS, timed),
        tool(search, _SEARCH, _SEARCH_PARAMETERS, timed),
    ]


def _checked(tool: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    properties = {**parameters["properties"], **({} if tool == "read" else _SEVERAL)}
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in properties:
            raise ConfigError(tool, f"has no argument {name[:80]!r}; it takes {', '.join(properties)}")
    for name in parameters.get("required", ()):
        if name not in given:
            raise ConfigError(name, f"is missing; {tool} needs {', '.join(parameters['required'])}")
    return {name: _value(name, value, properties[name]) for name, value in given.items()}


def _value(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    allowed = schema.get("anyOf", (schema,))
    if isinstance(value, str) and _DIGITS.fullmatch(value) and all(kind["type"] == "integer" for kind in allowed):
        value = int(value)
    if not any(_is_of(value, kind) for kind in allowed):
        kinds = " or ".join(
            f"an array of {kind['items']['type']}s" if "items" in kind else kind["type"] for kind in allowed
        )
        raise ConfigError(name, f"must be {kinds}, not {type(value).__name__}")
    return value


def _is_of(value: Any, schema: Mapping[str, Any]) -> bool:
    kind = _KINDS[schema["type"]]
    is_right = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    return is_right and all(_is_of(item, schema["items"]) for item in (value if kind is list else ()))


def _shown(error: BuoylineError, workspace: ReadableWorkspace) -> str:
    """Return *error* with the workspace's root as the model knows it."""
    return str(error).replace(workspace.files.path(""), workspace.roots[0])


def _error_line(error: BuoylineError, workspace: ReadableWorkspace) -> str:
    """Return an error for the model on one line of bounded length: it may quote the whole call."""
    text = shown_path(_shown(error, workspace))
    if len(text) > _MAX_ERROR_CHARS:  # the end says what to do
        text = f"{text[: _MAX_ERROR_CHARS // 2]} ... {text[-_MAX_ERROR_CHARS // 2 :]}"
    return f"Error: {text}\n"


def _current(session_id: SessionId) -> str | None:
    """Return the session of a call. None means every session, so a function that returns it raises InvalidNameError."""
    if not callable(session_id):
        return session_id
    current = session_id()
    layout.session_directories(current)
    return current


RETRIEVAL_TOOL: Final = "retrieve_offloaded_content"
RETRIEVAL_DESCRIPTION: Final = """\
Retrieve offloaded content by the reference in its preview: the lines that match pattern (RE2), those of line_range \
(from 1), or the first ones (context_lines alone: how many); whole: all."""

RETRIEVAL_PARAMETERS: Final[Mapping[str, Any]] = MappingProxyType(
    _schema(
        ["reference"],
        reference=_TEXT,
        pattern=_TEXT,
        line_range=_schema(["start", "end"], start=_INTEGER, end=_INTEGER),
        context_lines=_INTEGER,
        whole=_FLAG,
    )
)


def retrieval_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model's call without those that are null.

    Raises:
        ConfigError: One is not documented; above all, a model cannot choose the session. Or ``whole`` is not a boolean.
    """
    known = RETRIEVAL_PARAMETERS["properties"]
    for name in arguments:
        if name not in known:
            raise ConfigError(RETRIEVAL_TOOL, f"takes {', '.join(known)}, not {name[:80]!r}")
    if arguments.get("reference") is None:
        raise ConfigError("reference", "is required; take it from the preview of the offloaded content")
    if not isinstance(arguments.get("whole") or False, bool):
        raise ConfigError("whole", f"must be true or false, not {str(arguments['whole'])[:80]!r}")
    return {name: value for name, value in arguments.items() if value is not None}
