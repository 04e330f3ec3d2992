"""`Dialect`, the contract that one framework's message form fulfils, and tools for reading native messages."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from buoyline.errors import MessageError
from buoyline.messages import parts
from buoyline.messages.jsonl import is_object, model_fields, with_changed
from buoyline.messages.model import (
    CachePoint,
    Losses,
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
from buoyline.messages.parts import document_text

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
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
        """Read *message*, native or the JSON value that `to_json` writes, into one part for each block.

        Raises:
            MessageError: It is not a message of this dialect.
        """

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterable[Any]:
        """Yield messages that hold *turns*, in order.

        They have only parts that `holds` has allowed. *losses* records what changes nevertheless.

        Raises:
            MessageError: No message can be made in this form.
        """
        del turns, losses
        raise MessageError(f"the dialect {self.name} reads messages, and writes none")

    def holds(self, part: Part, role: Role) -> bool:
        """Return whether `write` has a place for *part*, a text, reasoning, media or a result, in a turn of *role*.

        If not, a line of text replaces media, a failed result loses its mark, and texts and reasoning are left out. By
        default that is so for all media, reasoning and marks.
        """
        del role
        return not (isinstance(part, Media | Reasoning) or (isinstance(part, ToolResult) and part.is_error))

    def in_turns(self, messages: Sequence[Any], opening: str = OPENING) -> Sequence[Any]:
        """Return the messages at the beginning of a context as the provider takes them.

        By default, *opening* comes before the model's words as the user's if roles alternate.
        """
        if self.alternates_roles and messages and self.view(messages[0]).role == "assistant":
            return [self.user_message(opening), *messages]
        return messages

    def joined(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return *messages* with neighbors of one role in one, if roles alternate; the others are the same objects."""
        return messages

    def handed_out(self, message: Any) -> Sequence[Any]:
        """Return what a request has of *message*: it alone, or the items in it."""
        return (message,)

    def grouped(self, items: Sequence[Any], is_known: Callable[[Any], bool] = bool) -> Sequence[Any]:
        """Return the messages whose items, or which themselves, are *items*: the reverse of `handed_out`.

        A message that *is_known* keeps its items, whatever comes after them. By default the longest is taken.
        """
        del is_known
        return [piece for item in items for piece in self.split(item)]

    def split(self, message: Any) -> Sequence[Any]:
        """Return the messages that *message* is split into, as some of it may outlast the rest in a context.

        A message of role ``system`` outlasts all others, and so does the newest with a `Compaction`.
        """
        return (message,)

    def result_in(self, block: object) -> ToolResult | None:
        """Read *block* if it is a tool result without a message, as a tool may return it; None if it is not."""
        del block
        return None

    def detects_result(self, tool_result: object) -> bool:
        """Return whether *tool_result*, message or block, is one tool result of this form."""
        return self.result_in(tool_result) is not None or self.detects(tool_result)

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own JSON value as its framework writes it; it may share parts with *message*."""
        return dict(plain_fields(message))

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the message whose JSON form is *value*, which `to_json` returned or which was read from disk."""
        return dict(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th tool result consists of the blocks ``results[n]``.

        The block of a part that is named by its number stays the very same object, as does all else in the message.
        """
        del message, results
        raise MessageError(f"the dialect {self.name} needs with_results, so that stubs can replace results")

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*, numbered as the parts of its view are."""
        del message, blocks
        raise MessageError(f"the dialect {self.name} needs with_content, so that stubs can replace content")

    def user_message(self, text: str) -> Any:
        """Return a new user message that says *text*."""
        return self._written(Message("user", (Text(text),)))

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> Any:
        """Return a new message with the result *text* of the call *call_id* of the tool *name*."""
        return self._written(Message("tool", (ToolResult(call_id, name, (Text(text),)),)))

    def _written(self, view: Message) -> Any:
        losses = Losses(self.name)
        (message,) = self.write(turns_of(view, losses, self), losses)
        return message


class ObjectDialect(Dialect):
    """A form of a framework's own objects, read and changed as the JSON values that `to_json` makes of them.

    A subclass imports its framework within `to_json` and `from_json` alone, so the command line reads the sessions of a
    framework that is not installed.
    """

    @abstractmethod
    def read(self, value: Mapping[str, Any]) -> Message:
        """Read the JSON value of a message; see `Dialect.view`."""

    def view(self, message: Any) -> Message:
        """Read *message*; see `Dialect.view`."""
        return self.read(self.value_of(message))

    def value_of(self, message: Any) -> Mapping[str, Any]:
        """Return the JSON value of *message*, which may be one already."""
        return message if is_object(message) else self.to_json(message)


class BlockDialect(Dialect):
    """A form with a role and blocks as content, in which results are blocks of the user's messages."""

    alternates_roles = True
    has_system_messages = False
    text_type = "text"
    """The type of a block of text; empty if blocks name none."""

    @abstractmethod
    def part(self, block: Any) -> Part:
        """Read one block of a message."""

    @abstractmethod
    def is_result(self, block: Any) -> bool:
        """Return whether *block* holds a tool result."""

    def result_in(self, block: object) -> ToolResult | None:
        """Read the block of a result; see `Dialect.result_in`."""
        return self.view({"role": "user", "content": [block]}).results[0] if self.is_result(block) else None

    def view(self, message: Any) -> Message:
        """Read *message*; one that holds only tool results reads as role ``tool``. See `Dialect.view`."""
        found = plain_fields(message)
        role, read = role_of(found), tuple(map(self.part, parts.blocks_of(found.get("content"))))
        return Message(speaker_of(role, read), read)

    def joined(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return *messages* with neighbors of one role in one; see `Dialect.joined`."""
        made: list[Any] = []
        for role, group in groupby(messages, key=lambda message: own_fields(message)["role"]):
            first, *others = group
            content = [block for one in (first, *others) for block in parts.blocks_of(own_fields(one).get("content"))]
            made.append({"role": role, "content": content} if others else first)
        return made

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th result has other content; see `Dialect.with_results`."""
        found = own_fields(message)
        content = list(parts.blocks_of(found.get("content")))
        places = [place for place, block in enumerate(content) if self.is_result(block)]
        for number, blocks in results.items():
            content[places[number]] = self.with_output(content[places[number]], blocks)
        return {**found, "content": content}

    def with_output(self, block: Any, blocks: Blocks) -> Any:
        """Return a copy of a result's *block* whose content consists of *blocks*."""
        return self.with_content(block, blocks)

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; see `Dialect.with_content`."""
        found = own_fields(message)
        return {**found, "content": parts.rebuilt(found.get("content"), blocks, self.text_type)}


def speaker_of(role: Role, read: Iterable[Part]) -> Role:
    """Return ``tool`` if the parts *read*, without cache points, are results only, else *role*."""
    said = [part for part in read if not isinstance(part, CachePoint)]
    return "tool" if said and all(isinstance(part, ToolResult) for part in said) else role


def turns_of(view: Message, losses: Losses, target: Dialect) -> list[Turn]:
    """Split message ``losses.message`` into turns: the tools', the model's, the notes', and those of its speaker.

    They hold what *target* does. A message that says nothing is one turn without parts. Notes between results wait for
    the last of them.
    """
    runs: list[tuple[Role, list[Part]]] = []
    notes: list[Part] = []
    for part in view.parts:
        speaker: Role = view.role
        if isinstance(part, ToolResult):
            speaker = "tool"
        elif isinstance(part, ToolCall | Reasoning):
            speaker = "assistant"
        kept = _kept(part, speaker, losses, target)
        if kept is None:
            continue
        if isinstance(part, Note) and view.role != "user":
            notes.append(kept)
            continue
        if notes and speaker != "tool":
            runs.append(("user", notes))
            notes = []
        if runs and runs[-1][0] == speaker:
            runs[-1][1].append(kept)
        else:
            runs.append((speaker, [kept]))
    if notes:
        runs.append(("user", notes))
    return [
        Turn(speaker, tuple(run), view.name if speaker == view.role != "tool" else "", losses.message)
        for speaker, run in runs or [(view.role, list[Part]())]
    ]


def _kept(part: Any, role: Role, losses: Losses, target: Dialect) -> Any:  # noqa: PLR0911 - one for each kind
    """Return *part* as a turn of *role* holds it for *target*; None if it says nothing there."""
    match part:
        case CachePoint():
            return None
        case Opaque():
            return losses.foreign(part.kind)
        case Text():
            return Text(part.text) if target.holds(part, role) else None
        case Media() if not target.holds(part, role):
            return parts.joined([part.name], document_text(part)) or losses.left_out(part)
        case ToolResult():
            if not target.holds(part, role):
                losses.note("mark of a failed result", "its text alone says so")
                part = replace(part, is_error=False)
            inner = (_kept(one, role, losses, target) for one in part.parts)
            return replace(part, parts=tuple(one for one in inner if one is not None))
        case Reasoning() if not (part.text or part.signature or part.hidden):
            return None
        case Reasoning() if part.sealed_by or not target.holds(part, role):
            losses.note("reasoning" if part.text else "hidden reasoning")
            shown = Reasoning(part.text)
            return shown if part.text and target.holds(shown, role) else None
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

    An agent loop that copies ``response.content`` or ``message.tool_calls`` into a dict of its own leaves models in it.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model, or holds a model with a
            value without a JSON form.
    """
    found = own_fields(message)
    is_plain = found is not message or "pydantic" not in sys.modules
    plain: Mapping[str, Any] = found if is_plain else with_changed(found, _without_model)
    return plain


def _without_model(value: object) -> object:
    is_plain = isinstance(value, (str, dict, list, int, float))
    found = None if is_plain else model_fields(value)
    return value if found is None else found


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
