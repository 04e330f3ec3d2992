"""`Dialect`, the contract that one framework's message form fulfils, and tools for reading native messages."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, TypeAlias, cast

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, model_fields, parse, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Base64,
    CachePoint,
    Media,
    Message,
    Note,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

OPENING: Final = "[The oldest messages of this conversation are no longer in the context.]"
"""Comes before the model's words if a provider wants the user's first."""

Blocks: TypeAlias = Sequence[str | int]
"""The blocks of new content: the number of a block that stays the very same object, or a new text."""


class Dialect(ABC):
    """One framework's message form: it recognises, shows, rewrites and converts the framework's messages.

    A dialect holds no state and never changes a native message: a changed message is a new one of the same kind.
    A subclass sets `name` and implements `detects` and `view`; `write`, if messages are converted to it or begun in it;
    and `with_results` and `with_content`, if messages hold more than `write` can express.
    """

    name: str
    alternates_roles = False
    """The user, including the tools, and the model have to take turns; the user begins."""
    has_system_messages = True
    """A system message is one of the messages; otherwise it is sent beside them."""

    @abstractmethod
    def detects(self, message: object) -> bool:
        """Return whether *message* has this form, as a native message or as the JSON value that `to_json` writes.

        A workspace detects the dialects of the messages that it reads from disk. This is cheap, looks at no payload
        and raises for no JSON value.
        """

    @abstractmethod
    def view(self, message: Any) -> Message:
        """Read *message* into one part for each block.

        Raises:
            MessageError: It is not a message of this dialect.
        """

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterable[Any]:
        """Yield messages that hold *turns*, in order; there is at least one turn.

        *losses* records the parts that this form cannot hold: text from `Losses.left_out` replaces media.

        Raises:
            MessageError: No message can be made in this form.
        """
        del turns, losses
        raise MessageError(f"the dialect {self.name} reads messages, and writes none")

    def in_turns(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return the messages at the beginning of a context as the provider takes them.

        By default, a line of the user's comes before the model's words if roles alternate.
        """
        if self.alternates_roles and self.view(messages[0]).role == "assistant":
            return [self.user_message(OPENING), *messages]
        return messages

    def handed_out(self, message: Any) -> Sequence[Any]:
        """Return what a request has of *message*: it alone, or the items in it."""
        return (message,)

    def grouped(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return the messages whose items, or which themselves, are *items*: the reverse of `handed_out`."""
        return items

    def detects_result(self, tool_result: object) -> bool:
        """Return whether *tool_result*, message or block, is one tool result of this form. As cheap as `detects`."""
        return self.detects(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a single tool result, message or block, as a view that holds just it.

        Raises:
            MessageError: It is not exactly one tool result of this dialect.
        """
        view = self.view(tool_result)
        if len(view.results) != 1:
            raise MessageError(f"expected one tool result, found {len(view.results)}")
        return view

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own JSON value as its framework writes it; it may share parts with *message*."""
        return dict(plain_fields(message))

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the message whose JSON form is *value*, which `to_json` returned or which was read from disk."""
        return dict(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th tool result consists of the blocks ``results[n]``.

        The block of a part that is named by its number stays the very same object, as does all else in the message.

        Raises:
            MessageError: `write` cannot express the whole message.
        """
        view, number, parts = self.view(message), -1, list[Part]()
        for part in view.parts:
            made = part
            if isinstance(part, ToolResult):
                number += 1
                if number in results:
                    inner = (Text(new) if isinstance(new, str) else part.parts[new] for new in results[number])
                    made = replace(part, parts=tuple(inner))
            parts.append(made)
        return self._written(replace(view, parts=tuple(parts)))

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy whose content consists of *blocks*, numbered as the parts of its view are.

        A call stays, even without its number, if the form keeps calls outside the content.

        Raises:
            MessageError: `write` cannot express the whole message.
        """
        view = self.view(message)
        parts = (Text(new) if isinstance(new, str) else view.parts[new] for new in blocks)
        return self._written(replace(view, parts=tuple(parts)))

    def user_message(self, text: str) -> Any:
        """Return a new user message that says *text*."""
        return self._written(Message("user", (Text(text),)))

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> Any:
        """Return a new message with the result *text* of the call *call_id* of the tool *name*."""
        return self._written(Message("tool", (ToolResult(call_id, name, (Text(text),)),)))

    def _written(self, view: Message) -> Any:
        losses = Losses(self.name)
        written = list(self.write(turns_of(view, losses), losses))
        if len(written) != 1 or losses.found:
            lost = losses.found[0].what if losses.found else f"it is {len(written)} messages"
            raise MessageError(
                f"the dialect {self.name} cannot write the message whole ({lost}); "
                "let it implement with_results and with_content"
            )
        return written[0]


def speaker_of(role: Role, parts: Collection[Part]) -> Role:
    """Return ``tool`` if *parts*, without cache points, are results only, else *role*."""
    said = [part for part in parts if not isinstance(part, CachePoint)]
    return "tool" if said and all(isinstance(part, ToolResult) for part in said) else role


def turns_of(view: Message, losses: Losses) -> list[Turn]:
    """Split message ``losses.message`` into turns: the tools', the model's, the notes', and those of its speaker.

    A message that says nothing is one turn without parts. Empty texts are left out, since several providers refuse
    them; a line of text replaces an `Opaque`. Notes between results wait for the last of them.
    """
    runs: list[tuple[Role, list[Part]]] = []
    notes: list[Part] = []
    for part in view.parts:
        kept = _kept(part, losses)
        if kept is None:
            continue
        if isinstance(kept, Note) and view.role != "user":
            notes.append(Text(kept.text))
            continue
        speaker: Role = view.role
        if isinstance(kept, ToolResult):
            speaker = "tool"
        elif isinstance(kept, ToolCall | Reasoning):
            speaker = "assistant"
        if notes and speaker != "tool":
            runs.append(("user", notes))
            notes = []
        if runs and runs[-1][0] == speaker:
            runs[-1][1].append(kept)
        else:
            runs.append((speaker, [kept]))
    if notes:
        runs.append(("user", notes))
    if any(speaker == "assistant" != view.role for speaker, _ in runs):
        losses.note(f"calls or reasoning of role {view.role!r}", "they are the model's there")
    return [
        Turn(speaker, tuple(run), view.name if speaker == view.role != "tool" else "", losses.message)
        for speaker, run in runs or [(view.role, list[Part]())]
    ]


def _kept(part: Part, losses: Losses) -> Part | None:
    """Return *part* as a turn holds it; None if it says nothing."""
    match part:
        case Text():
            return part if part.text else None
        case Reasoning():
            return part if part.text or part.signature or part.hidden else None
        case CachePoint():
            return None
        case Opaque():
            return losses.foreign(part.kind)
        case ToolResult() if any(isinstance(inner, Opaque) or inner == Text("") for inner in part.parts):
            inner = (losses.foreign(one.kind) if isinstance(one, Opaque) else one for one in part.parts)
            return replace(part, parts=tuple(one for one in inner if one != Text("")))
        case _:
            return part


def neighbors_joined(messages: Iterable[Any]) -> list[Any]:
    """Return *messages* with those of one role that are next to each other in one; the others are the same objects."""
    made: list[Any] = []
    for role, group in groupby(messages, key=lambda message: own_fields(message)["role"]):
        first, *others = group
        content = [block for one in (first, *others) for block in blocks_of(own_fields(one).get("content"))]
        made.append({"role": role, "content": content} if others else first)
    return made


# Native messages are dicts or pydantic models, as the providers' own packages give them.


def fields(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a dict or a pydantic model, or None for anything else.

    Raises:
        MessageError: A model's field has no JSON form.
    """
    return value if is_object(value) else model_fields(value)


def own_fields(message: object) -> Mapping[str, Any]:
    """Return the fields of *message*, whose values are its very objects, including models.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model.
    """
    found = fields(message)
    if found is None:
        raise MessageError(f"{type(message).__name__} is no message: expected an object with 'role' and 'content'")
    return found


def plain_fields(message: object) -> Mapping[str, Any]:
    """Return the fields of *message* as JSON values.

    An agent loop that copies ``response.content`` or ``message.tool_calls`` into a dict of its own leaves models in it.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model, or holds a model beside a
            value without a JSON form.
    """
    found = own_fields(message)
    if found is message and any(_holds_model(found.get(key)) for key in ("content", "tool_calls", "output")):
        plain: dict[str, Any] = parse(spell(found))
        return plain
    return found


def _holds_model(value: object, depth: int = 4) -> bool:
    """Return whether a model is in *value*: the content of a result in a block is the deepest place for one."""
    if "pydantic" not in sys.modules or not depth:
        return False
    from pydantic import BaseModel  # noqa: PLC0415 - as in `model_fields`

    if isinstance(value, BaseModel):
        return True
    inner = cast("Mapping[object, object]", value).values() if isinstance(value, Mapping) else value
    return (
        not isinstance(inner, str)
        and isinstance(inner, Iterable)
        and any(_holds_model(one, depth - 1) for one in cast("Iterable[object]", inner))
    )


def role_of(message: Mapping[str, Any]) -> Role:
    """Return the role of *message*.

    Raises:
        MessageError: It has no role, or an unknown one, or its content is where Gemini and pydantic-ai have it.
    """
    if message.get("parts") and message.get("content") is None:
        raise MessageError("'parts' without 'content' is not a form that is read here; convert the message")
    if not has_known_role(message):
        raise MessageError(f"role {message.get('role')!r} is not one of {', '.join(_ROLES)}")
    return _ROLES[message["role"]]


def has_known_role(message: Mapping[str, Any]) -> bool:
    """Return whether *message* has a role that `role_of` accepts."""
    role = message.get("role")
    return isinstance(role, str) and role in _ROLES


def blocks_of(content: object) -> Sequence[Any]:
    """Return *content* as a sequence of blocks: text becomes one block, None an empty sequence.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if content is None:
        return ()
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if is_array(content):
        return content
    raise MessageError(f"'content' must be text, a list of blocks or null, not {type(content).__name__}")


def rebuilt_content(content: object, blocks: Blocks, text_type: str = "text") -> Any:
    """Return *content* with *blocks* in place of its own. Text stays text if a single text replaces it.

    A new text becomes a block of *text_type*.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if len(blocks) == 1 and isinstance(blocks[0], str) and not is_array(content):
        return blocks[0]
    old = blocks_of(content)
    return [{"type": text_type, "text": block} if isinstance(block, str) else old[block] for block in blocks]


def text_or_empty(value: object) -> str:
    """Return *value* if it is text, else ``""``, as for a field that is null, missing or malformed."""
    return value if isinstance(value, str) else ""


def text_of(block: object) -> str | None:
    """Return the text of a text block or of bare text, or None for every other block."""
    if isinstance(block, str):
        return block
    if is_object(block) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def is_blank(part: Part) -> bool:
    """Return whether *part* is a text of white space, which several providers refuse."""
    return isinstance(part, Text) and not part.text.strip()


def kind_of(block: object) -> str:
    """Return the type that *block* names, which may be empty, or the Python type of a value that is no object."""
    return text_or_empty(block.get("type")) if is_object(block) else type(block).__name__


def simple_part(block: object) -> Text | Opaque:
    """Read a block as text if it is text, else carry it along as it is."""
    text = text_of(block)
    if text is not None:
        return Text(text)
    kind = block.get("type") if is_object(block) else None
    return Opaque(kind if isinstance(kind, str) else type(block).__name__, spell(block))


def media(
    kind: str,
    media_type: object,
    *,
    payload: object = None,
    start: int = 0,
    source: object = None,
    name: object = None,
) -> Media:
    """Return the part for a payload in base64 from *start* of *payload* on, or elsewhere under the URL or id *source*.

    The decoded size follows from the length of the base64 text, so a 10 MB image is not decoded to be seen.
    An archived message has a workspace reference in the payload's place; it becomes the source.
    """
    found, title = text_or_empty(media_type), text_or_empty(name)
    if isinstance(payload, str) and payload.startswith("workspace:///"):
        return Media(kind, found, 0, payload, title)
    if isinstance(payload, str):
        padding = 2 if payload.endswith("==") else 1 if payload.endswith("=") else 0
        size_bytes = max(0, (len(payload) - start) * 3 // 4 - padding)
        return Media(kind, found, size_bytes, name=title, payload=Base64(payload, start))
    return Media(kind, found, 0, text_or_empty(source), title)


def data_url(url: object) -> tuple[str, int] | None:
    """Return the media type of a base64 data URL and the start of its payload; None for every other value."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    comma = url.find(",")  # the payload behind it is not copied: it may have gigabytes
    head = url[: max(comma, 0)]
    if not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")].split(";")[0], comma + 1
