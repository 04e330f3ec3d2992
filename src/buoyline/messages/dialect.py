"""`Dialect`, the contract that one framework's message form fulfils, and tools for reading native messages."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, model_fields, parse, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Base64,
    CachePoint,
    Media,
    Message,
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

_SCALARS = (str, int, float, type(None))

OPENING: Final = "[The oldest messages of this conversation are no longer in the context.]"
"""Comes before the model's words if a provider wants the user's first."""

Blocks: TypeAlias = Sequence[str | int]
"""The blocks of new content: the number of a block that stays the very same object, or a new text."""


class Dialect(ABC):
    """One framework's message form: it recognises, shows, rewrites and converts the framework's messages.

    A dialect holds no state and never changes a native message: a changed message is a new one of the same kind.
    A subclass sets `name` and implements `detects`, `view` and `write`. It overrides `read` if messages hold more than
    their view, and `with_results` and `with_content` if they hold more than `write` can express.
    """

    name: str
    alternates_roles = False
    """The user, including the tools, and the model have to take turns."""
    has_system_messages = True
    """A system message is one of the messages; otherwise it is sent beside them."""
    has_cache_points = False
    names_results = False
    """A result names its tool."""
    model_sends_media = False
    names_media = False
    """Other media than documents have names, too."""

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

    @abstractmethod
    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterable[Any]:
        """Yield the message that holds *turns*, which `joins` accepted as one group, or several messages.

        There is at least one turn. *losses* records the values that this form cannot express.
        """

    def read(self, message: Any, losses: Losses) -> Sequence[Turn]:
        """Read *message*, number ``losses.message`` of a conversation, whole; see `turns_of`.

        *losses* records the values that turns cannot express.

        Raises:
            MessageError: It is not a message of this dialect.
        """
        found = self.view(message)
        return turns_of(found.role, found.parts, losses, found.name)

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """Return whether *turn* belongs into one message with the turns before it.

        By default the turns of one role do if roles alternate; the user and the tools are one role then.
        """
        return self.alternates_roles and (group[-1].role == "assistant") == (turn.role == "assistant")

    def in_turns(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return the messages at the beginning of a context as the provider takes them.

        By default, a line of the user's comes before the model's words if roles alternate.
        """
        if self.alternates_roles and self.view(messages[0]).role == "assistant":
            return [self.user_message(OPENING), *messages]
        return messages

    def refuses_media(self, media: Media) -> str | None:
        """Return why this form cannot hold *media*, ``""`` for no special reason; None if it can.

        A line of text replaces refused media. The default refuses all.
        """
        del media
        return ""

    def refuses_reasoning(self, reasoning: Reasoning) -> str | None:
        """Return why this form cannot hold *reasoning*, ``""`` for no special reason; None if it can.

        Refused reasoning is left out. The default refuses all.
        """
        del reasoning
        return ""

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
        written = list(self.write(turns_of(view.role, view.parts, losses, view.name), losses))
        if len(written) != 1 or losses.found:
            lost = losses.found[0].what if losses.found else f"it is {len(written)} messages"
            raise MessageError(
                f"the dialect {self.name} cannot write the message whole ({lost}); "
                "let it implement with_results and with_content"
            )
        return written[0]


def speaker_of(role: Role, parts: Collection[Part]) -> Role:
    """Return ``tool`` if *parts* are results only, else *role*."""
    return "tool" if parts and all(isinstance(part, ToolResult) for part in parts) else role


def turns_of(
    role: Role, parts: Iterable[Part], losses: Losses, name: str = "", metadata: Mapping[str, Any] | None = None
) -> list[Turn]:
    """Split the parts of message ``losses.message`` into turns: the tools', the model's, and those of *role*.

    A cache point belongs to the part before it. A message without parts is one turn without any. The metadata goes with
    the first turn. Empty texts are left out, since several providers refuse them; a line of text replaces an `Opaque`.
    """
    runs: list[tuple[Role, list[Part]]] = []
    for part in parts:
        kept = _kept(part, losses)
        if kept is None:
            continue
        speaker: Role = (
            "tool" if isinstance(kept, ToolResult) else "assistant" if isinstance(kept, ToolCall | Reasoning) else role
        )
        if runs and (runs[-1][0] == speaker or isinstance(kept, CachePoint)):
            runs[-1][1].append(kept)
        else:
            runs.append((speaker, [kept]))
    turns: list[Turn] = []
    for speaker, run in runs or [(role, list[Part]())]:
        named = name if speaker == role != "tool" else ""
        turns.append(Turn(speaker, tuple(run), named, {} if turns else metadata or {}, losses.message))
    return turns


def _kept(part: Part, losses: Losses) -> Part | None:
    """Return *part* as a turn holds it; None if it says nothing."""
    match part:
        case Text():
            return part if part.text else None
        case Reasoning():
            return part if part.text or part.signature or part.hidden else None
        case Opaque():
            return losses.foreign(part.kind)
        case ToolResult() if any(isinstance(inner, Opaque) or inner == Text("") for inner in part.parts):
            inner = (losses.foreign(one.kind) if isinstance(one, Opaque) else one for one in part.parts)
            return replace(part, parts=tuple(one for one in inner if one != Text("")))
        case _:
            return part


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

    An agent loop that copies ``response.content`` or ``message.tool_calls`` into a dict of its own leaves models
    anywhere in it.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model, or holds a model beside a
            value without a JSON form.
    """
    found = own_fields(message)
    if found is message and _holds_model(found):  # the fields of a model are JSON values already
        plain: dict[str, Any] = parse(spell(found))
        return plain
    return found


def _holds_model(value: object) -> bool:
    """Return whether *value* holds a model; not recursive, since arguments of tools nest arbitrarily deep."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic import BaseModel  # noqa: PLC0415 - as in `model_fields`

    seen: set[int] = set()
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, _SCALARS) or id(inner) in seen:
            continue
        if isinstance(inner, BaseModel):
            return True
        seen.add(id(inner))
        if isinstance(inner, Mapping):
            waiting.extend(cast("Mapping[object, object]", inner).values())
        elif is_array(inner):
            waiting.extend(inner)
    return False


def role_of(message: Mapping[str, Any]) -> Role:
    """Return the role of *message*.

    Raises:
        MessageError: It has no role, or an unknown one.
    """
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
