"""`Tool`: something that an agent may call, in a form that every framework can be given."""

import asyncio
import copy
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.errors import BuoylineError, ConfigError, storage_error
from buoyline.lookups.answer import shown_path

_MAX_ERROR_CHARS = 600
_DIGITS = re.compile(r"-?[0-9]{1,15}")
_KINDS: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool for a model: what the model is told of it, and what runs when it is called.

    Attributes:
        name: What the model calls it by: ``[a-zA-Z0-9_-]{1,64}``, which every provider takes.
        description: What it does and an example of its use, for the model.
        parameters: JSON Schema of the arguments, an object. The tool's own copy of plain dicts and lists, since
            frameworks check for a dict, copy it, pickle it, and some make it strict in place.
        call: Answers a call. It takes the arguments by name and returns text for the model. What goes wrong is
            an answer, too: a model can mend its call, and no exception ends the run.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[..., Coroutine[Any, Any, str]]

    def openai(self) -> dict[str, Any]:
        """Return the definition as chat completions take it in ``tools``.

        Source: OpenAI API reference, ``POST /chat/completions``, ``tools``.
        """
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def anthropic(self) -> dict[str, Any]:
        """Return the definition as messages take it in ``tools``.

        Source: Anthropic API reference, ``POST /v1/messages``, ``tools``.
        """
        return {"name": self.name, "description": self.description, "input_schema": dict(self.parameters)}


def tool_for(name: str, description: str, parameters: Mapping[str, Any], answer: Callable[..., str]) -> Tool:
    """Make a tool of a function that blocks.

    Args:
        name: What the model calls it by.
        description: For the model.
        parameters: JSON Schema of an object. Arguments are checked against types, ``required``, ``minimum`` and
            ``anyOf``; one that is null counts as absent, and a number in quotes as a number.
        answer: Takes the checked arguments by name; runs in a thread. Its `BuoylineError` becomes the answer.
    """

    def answered(arguments: Mapping[str, Any]) -> str:
        try:
            return answer(**_checked(name, parameters, arguments))
        except BuoylineError as error:
            return _told(error)
        except OSError as error:
            return _told(storage_error(error))

    async def call(**arguments: Any) -> str:
        return await asyncio.to_thread(answered, arguments)

    return Tool(name, description, copy.deepcopy(dict(parameters)), call)


def _told(error: BuoylineError) -> str:
    """Return what the model is told: one line, however much of its own call the error quotes."""
    text = shown_path(str(error))
    if len(text) > _MAX_ERROR_CHARS:  # what to do stands at the end
        text = f"{text[: _MAX_ERROR_CHARS // 2]} ... {text[-_MAX_ERROR_CHARS // 2 :]}"
    return f"Error: {text}\n"


def _checked(tool: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    properties = parameters["properties"]
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
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        raise ConfigError(name, f"must be {least} or more" + (f", at most {most}" if most is not None else ""))
    return value


def _is_of(value: Any, schema: Mapping[str, Any]) -> bool:
    kind = _KINDS[schema["type"]]
    is_right = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    return is_right and all(_is_of(item, schema["items"]) for item in (value if kind is list else ()))
