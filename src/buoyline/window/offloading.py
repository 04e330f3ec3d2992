"""Which content of a message goes to a file, and what stands for it. Each result is decided once, when it is added."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from buoyline.compression import ContextConfig
from buoyline.messages import Json, Media, Opaque, Text, ToolCall, ToolResult
from buoyline.messages.jsonl import is_array, is_object
from buoyline.messages.model import ResultPart, join_texts, text_in
from buoyline.messages.registry import dialect_named
from buoyline.offloader import StoredResult, ToolRule
from buoyline.offloader.protocol import StoredFile
from buoyline.offloader.stub import (
    LEAST_STUB_TOKENS,
    WORTH_OFFLOADING_TOKENS,
    bare_stub,
    blocks_to_offload,
    is_smaller,
    is_stub,
    is_too_large,
    reread_limit,
    stub_of,
)
from buoyline.offloader.transcript import reference_line_for
from buoyline.tokens import TextCounter
from buoyline.tokens.counter import count_result
from buoyline.window.context import OWN, SURROGATES, Entry, loaded
from buoyline.window.events import ResultOffloaded
from buoyline.workspace import layout
from buoyline.workspace.session import Session

_OUR_FILES: Final = re.compile(rf"tool_result-|tool_call-|{re.escape(layout.TRANSCRIPT)}")
_LONG_ARGUMENT_CHARS: Final = 400
"""A shorter argument is no longer than the line that would name its file."""

CallOf = Callable[[str], ToolCall | None]
"""Returns the newest call of an id."""


@dataclass(slots=True)
class Offloading:
    """Stores what is too large, and returns messages with stubs.

    Attributes:
        own_tools: Names of tools of ours, whose results stay whole: they are small, and an agent that has to look up
            its own lookups goes in circles.
        shown: The files of results whose stubs a caller got and has not added yet, by the stubs' texts.
    """

    session: Session
    config: ContextConfig
    size: int
    counter: TextCounter
    own_tools: Collection[str]
    shown: dict[str, tuple[StoredFile, ...]] = field(default_factory=dict[str, tuple[StoredFile, ...]])

    def decided(self, entry: Entry, call_of: CallOf, turn_tokens: int) -> Entry:
        """Return *entry* with stubs for results above their limit, or above what *turn_tokens* leave of the turn's."""
        left = self.config.turn_limit(self.size) - turn_tokens
        for number, result in enumerate(entry.message.results):
            call, rule, is_kept = self._rule(result, call_of)
            most, room, is_always = rule.limit or self.config.tool_result_limit, left, rule.offload == "always"
            if call is not None and _OUR_FILES.search(call.arguments):
                # The agent asked for what is stored already: another stub would lead it in circles.
                most = room = reread_limit(self.size, self.config.tool_result_limit)
                is_always = False
            if files := self.shown.pop(result.text, None):
                entry = replace(entry, stored={**entry.stored, number: files})
            is_large = is_too_large(result, most, self.counter)
            tokens = most + 1 if is_large else count_result(result, self.counter)
            is_due = is_large or is_always or (tokens > room and tokens > 2 * LEAST_STUB_TOKENS)
            if is_due and not is_kept and tokens > WORTH_OFFLOADING_TOKENS:
                wanted = min(self.config.fitting_preview(most), most if is_large else tokens // 2)
                stub_tokens = min(wanted, room) if room >= min(wanted, LEAST_STUB_TOKENS) else 1
                limit = max(most if is_large else min(most, tokens // 2), stub_tokens)
                entry = self.offloaded(entry, number, stub_tokens, limit, result.name or (call.name if call else ""))
                tokens = count_result(entry.message.results[number], self.counter)
            left -= tokens
        return entry

    def by_hand(self, entry: Entry) -> Entry:
        """Return *entry* with its results, and its own content, offloaded above the tokens of a stub."""
        limit = self.config.preview_tokens
        for number in (*range(len(entry.message.results)), OWN):
            if is_too_large(_whole(entry, number), limit, self.counter):
                entry = self.offloaded(entry, number, limit, limit)
        return entry

    def offloaded(self, entry: Entry, number: int, stub_tokens: int, limit: int, tool: str = "") -> Entry:
        """Store a result whole, and put a stub in place of its largest parts, so that it takes at most *limit*.

        A stub that is no smaller than what it replaces is not used.
        """
        whole = _whole(entry, number)
        if number in entry.stored or not any(_may_leave(part) for part in whole.parts):
            return entry
        stored = self._stored(whole)
        lines = [_line_for(part, stored, at) for at, part in enumerate(whole.parts)]
        chosen = blocks_to_offload(whole.parts, lines, limit, stub_tokens, self.counter)
        found = {at: lines[at] or "" for at in chosen if text_in(whole.parts[at]) is None}
        if texts := sorted(chosen - found.keys()):
            shown = stub_of(self.session.results.source(stored), stored, stub_tokens, self.counter)
            written = SURROGATES.sub("\ufffd", shown)
            if is_smaller(written, join_texts([text_in(whole.parts[at]) or "" for at in texts]), self.counter):
                found |= {**dict.fromkeys(texts, ""), texts[0]: written}
        return self._replaced(entry, number, found, stored.files, tool) if found else entry

    def truncated(self, entry: Entry, number: int, write: Callable[[str, str], str]) -> Entry:
        """Return *entry* with a text in place of all texts of a result, made of these and the path of the whole."""
        whole = entry.message.results[number]
        files = entry.stored.get(number) or self._stored(whole).files
        texts = [at for at, part in enumerate(whole.parts) if text_in(part) is not None]
        written = write(whole.text, self.session.path_of(files[0].name))
        if len(written) >= len(whole.text):
            return entry
        return self._replaced(entry, number, {**dict.fromkeys(texts, ""), texts[0]: written}, files)

    # Making a context fit.

    def is_kept(self, entry: Entry, call_of: CallOf) -> bool:
        """Return whether a rule keeps a result of *entry* as long as the context fits."""
        return any(self._rule(result, call_of)[2] for result in entry.message.results)

    def shrunk(self, entry: Entry, step: int) -> Entry:
        """Return *entry* smaller: by stubs, then without long arguments, then by bare stubs, also of small results."""
        limit = self.config.preview_tokens if step == 0 else WORTH_OFFLOADING_TOKENS
        for number, result in enumerate(entry.message.results if step != 1 else ()):
            if number not in entry.stored and is_too_large(result, limit, self.counter):
                entry = self.offloaded(entry, number, limit if step == 0 else 1, limit)
            elif number in entry.stored and step == 2:  # noqa: PLR2004 - the last step
                files = entry.stored[number]
                place = f"[Tool result offloaded: the whole is in {self.session.path_of(files[0].name)}]"
                texts = {at: part.text for at, part in enumerate(result.parts) if isinstance(part, Text)}
                bare = {at: bare_stub(text) if is_stub(text) else place for at, text in texts.items()}
                found = {at: text for at, text in bare.items() if is_smaller(text, texts[at], self.counter)}
                entry = self._replaced(entry, number, found, files) if found else entry
        return self.without_arguments(entry) if step == 1 else entry

    def without_images(self, entry: Entry) -> Entry:
        """Return *entry* with lines that name the files of its images."""
        for number in (*range(len(entry.message.results)), OWN):
            whole = _whole(entry, number)
            parts = enumerate(whole.parts)
            images = [(at, part) for at, part in parts if isinstance(part, Media) and part.kind == "image"]
            if images:
                stored = self._stored(whole)
                found = {at: _line_for(part, stored, at) or f"[image: {part.source}]" for at, part in images}
                entry = self._replaced(entry, number, found, entry.stored.get(number, stored.files))
        return entry

    def without_arguments(self, entry: Entry) -> Entry:
        """Return *entry* with lines in place of long arguments of calls above the limit of a result."""
        for call in entry.message.calls:
            if not self.counter.exceeds(call.arguments, self.config.tool_result_limit):
                continue
            text = self.session.redaction.text(call.arguments)
            name = layout.arguments_name(call.call_id, sha256(text.encode("utf-8", "replace")).hexdigest())
            file = self.session.results.store_text(name, text)
            dialect, shown = dialect_named(entry.dialect), _shortened(text, self.session.path_of(name))
            native = dialect.from_json(_with_arguments(dialect.to_json(entry.native), call, shown))
            stored = {**entry.stored, OWN: (*entry.stored.get(OWN, ()), file)}
            entry = replace(entry.with_native(native, dialect.view(native), self.counter), stored=stored)
        return entry

    def _rule(self, result: ToolResult, call_of: CallOf) -> tuple[ToolCall | None, ToolRule, bool]:
        """Return the call of a result, the rule for its tool, and whether it stays whole."""
        call = call_of(result.call_id)
        tool = result.name or (call.name if call else "")
        rule = self.config.rule_for(tool)
        is_kept = tool in self.own_tools or rule.offload == "never"
        return call, rule, is_kept

    def _stored(self, whole: ToolResult) -> StoredResult:
        return self.session.results.store(self.session.redaction.result(whole))

    def _replaced(
        self, entry: Entry, number: int, found: Mapping[int, str], files: tuple[StoredFile, ...], tool: str = ""
    ) -> Entry:
        """Put texts in place of parts of a result, or of the message's own content; an empty text drops its part."""
        whole, parts = _whole(entry, number), entry.message.parts
        places = [at for at, part in enumerate(parts) if number != OWN or isinstance(part, _CONTENT)]
        count = len(parts) if number == OWN else len(whole.parts)
        texts = {places[at] if number == OWN else at: text for at, text in found.items()}
        blocks = [texts.get(at, at) for at in range(count)]
        changed = entry.with_blocks(number, [block for block in blocks if block != ""], files, self.counter)
        shown = "\n".join(text for _, text in sorted(found.items()) if text)
        stub_tokens, path = self.counter.count(shown), self.session.path_of(files[0].name)
        tokens = entry.tokens - changed.tokens + stub_tokens
        event = ResultOffloaded(entry.number, whole.call_id, tool, path, tokens, stub_tokens, shown)
        return replace(changed, events=(*entry.events, event))


_CONTENT: Final = (Text, Json, Media, Opaque)


def _whole(entry: Entry, number: int) -> ToolResult:
    """Return a result of *entry*, or its own content as if it were one."""
    if number != OWN:
        return entry.message.results[number]
    parts = tuple(part for part in entry.message.parts if isinstance(part, _CONTENT))
    return ToolResult(f"message-{entry.number}", entry.message.role, parts)


def _may_leave(part: ResultPart) -> bool:
    return bool(text_in(part)) or (isinstance(part, Media) and part.payload is not None)


def _line_for(part: ResultPart, stored: StoredResult, at: int) -> str | None:
    kept = stored.parts[at] if at < len(stored.parts) else None
    is_named = isinstance(part, Media) and kept is not None and kept.kind == part.kind and bool(kept.reference)
    return reference_line_for(kept) if is_named and kept is not None else None


# Arguments of calls. Each dialect has them under one of three keys, in an object that names the call.

_ARGUMENT_KEYS: Final = frozenset({"arguments", "args", "input"})
_CALL_ID_KEYS: Final = ("id", "call_id", "tool_call_id", "toolUseId")


def _shortened(arguments: str, path: str) -> dict[str, Any]:
    """Return arguments with a line in place of each long value."""
    found = loaded(arguments)
    shown = dict(found) if is_object(found) else {"arguments": arguments}
    for name, value in shown.items():
        chars = len(value if isinstance(value, str) else json.dumps(value))
        if chars > _LONG_ARGUMENT_CHARS:
            shown[name] = f"[offloaded: {chars:,} characters are in {path}]"
    return shown


def _with_arguments(value: Any, call: ToolCall, arguments: Mapping[str, Any], *, is_of_call: bool = False) -> Any:
    """Return a message's JSON value with other arguments of one call."""
    if is_array(value):
        return [_with_arguments(inner, call, arguments) for inner in value]
    if not is_object(value):
        return value
    is_of_call = is_of_call or any(call.call_id == value.get(key) for key in _CALL_ID_KEYS)
    is_of_call = is_of_call or (call.name == value.get("name") and value.get("args") == loaded(call.arguments))  # no id
    made = dict(value)
    for key, inner in value.items():
        if key in _ARGUMENT_KEYS and is_of_call:
            made[key] = json.dumps(arguments, ensure_ascii=False) if isinstance(inner, str) else dict(arguments)
        else:
            made[key] = _with_arguments(inner, call, arguments, is_of_call=is_of_call and key == "function")
    return made
