"""Redaction: what a hook takes out is nowhere on disk, in no form; and where it fails, nothing is stored."""

import asyncio
import base64
import json
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import MessageError, RedactionError
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.testing.conversation import (
    agentscope_messages,
    anthropic_messages,
    long_conversation,
    openai_messages,
    result,
    said,
)
from buoyline.workspace.redaction import Redaction

SECRET = 'sk-"\u6f22\\8f3a\U0001f98a+quay/'
"""Quotes, backslashes, characters that JSON may escape, of one and of two UTF-16 units."""

HIDDEN = "[redacted]"
Calls = list[tuple[str, Callable[[Any], Awaitable[object]]]]


def redact(text: str) -> str:
    return text.replace(SECRET, HIDDEN)


def fail(text: str) -> str:
    message = f"no entry for {text}"
    raise KeyError(message)


def b64(text: str, shift: int = 0) -> str:
    return base64.b64encode((" " * shift + text).encode()).decode("ascii")


def forms_of(secret: str) -> set[bytes]:
    """Return how *secret* may look in a file: plain, escaped once and twice, and in base64 at each of three offsets."""
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)}
    escaped |= {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in escaped for ascii_only in (False, True)}
    in_base64 = {b64(secret, shift)[4:-8] for shift in range(3)}
    return {text.encode() for text in {secret, *escaped, *in_base64}}


FORMS = forms_of(SECRET)


def leaks(workdir: Path) -> list[str]:
    """Return each file that shows the secret in its content or in its name, unfinished ones as well."""
    found = []
    for path in sorted(workdir.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        if any(form in content or form in path.name.encode() for form in FORMS):
            found.append(str(path))
    return found


def tree_of(workdir: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(workdir)): path.read_bytes() if path.is_file() else None
        for path in sorted(workdir.rglob("*"))
        if ".locks/" not in str(path)
    }


def call(call_id: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}}


def document(payload: str, media_type: str = "text/plain") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": payload}
    return {"role": "user", "content": [{"type": "document", "source": source}]}


def data_url(payload: str, head: str = "text/csv") -> dict[str, Any]:
    file = {"file_data": f"data:{head};base64,{payload}", "filename": "x"}
    return {"role": "user", "content": [{"type": "file", "file": file}]}


def messages_with(secret: str) -> list[dict[str, Any]]:
    """Return messages of both dialects with *secret* wherever one can hide it."""
    holder = {"password": secret, secret: [{"deep": secret}], "again": json.dumps({"inner": secret})}
    escaped = "".join(f"\\u{int.from_bytes(unit, 'big'):04x}" for unit in _utf16_units(secret))
    return [
        said(f"use {secret}."),
        {"role": "user", "content": "hi", "name": secret, secret: {"custom": [secret]}},
        {"role": "system", "content": [{"type": "text", "text": secret}, {"type": secret, "x": secret}]},
        {"role": "assistant", "content": None, "tool_calls": [call(secret, json.dumps(holder))]},
        {"role": "assistant", "content": None, "tool_calls": [call("c", json.dumps(holder, ensure_ascii=False))]},
        {"role": "assistant", "content": None, "tool_calls": [call("c", f'{{"x": "{escaped}"}}')]},
        {"role": "assistant", "content": None, "tool_calls": [call("c", f'{{"x": "{escaped}", "x": "last"}}')]},
        {"role": "assistant", "content": None, "tool_calls": [call("c", f'{{broken "{escaped}')]},
        {"role": "tool", "tool_call_id": secret, "content": json.dumps(json.dumps(holder))},
        data_url(b64(f"a,{secret}\n")),
        data_url(b64("a"), f"text/plain;name={secret}"),
        document(b64(secret)),
        document(base64.encodebytes(secret.encode() * 9).decode()),
        document(b64(json.dumps(holder)).rstrip("="), "application/json"),
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": secret, "name": secret, "input": {secret: holder}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": secret, "content": [{"type": "text", "text": secret}]},
                {"type": "tool_result", "tool_use_id": "x", "content": json.dumps(holder)},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": secret, "signature": secret}, {"type": "text", "text": "ok"}],
        },
    ]


def _utf16_units(text: str) -> list[bytes]:
    content = text.encode("utf-16-be")
    return [content[start : start + 2] for start in range(0, len(content), 2)]


def calls_with(secret: str) -> Calls:
    """Return every public method that writes, given *secret* in everything that it takes."""
    messages = messages_with(secret)
    block = document(b64(secret))["content"][0]["source"]
    settings_ = {"system": secret, "tools": [{"name": secret, secret: 1}], "n": 1, "more": {1: secret}}
    summary = {"fields": {"current_state": secret, secret: [secret]}, "text": f"{secret}\n"}
    tool_result = ToolResult(secret, secret, (Text(f"{secret}\n"), Text(json.dumps({secret: secret}) + "x" * 2_000)))

    async def stubbed(workspace: Any) -> None:
        stored = await workspace.store_result("s", tool_result)
        await workspace.record_stub("s", f"stub: {secret}", stored)
        found = await workspace.load_stubs("s", [f"stub: {secret}", secret])
        assert found == {f"stub: {secret}": stored}

    return [
        ("start", lambda w: w.start_window("s", settings_, writer=f"w {secret}")),
        ("result", lambda w: w.store_result("s", tool_result)),
        ("stub", stubbed),
        ("extend", lambda w: w.extend_window("s", messages, [0], writer=f"w {secret}")),
        ("archive", lambda w: w.archive("s", messages, batch_id=secret)),
        ("summary", lambda w: w.append_summary("s", summary)),
        ("replace", lambda w: w.replace_window("s", messages, [secret], 1, [0], writer=f"w {secret}")),
        ("claim", lambda w: w.claim_window("s", writer=secret)),
        ("block", lambda w: w.offload_data_block(block)),
        ("context", lambda w: w.offload_context("t", messages)),
        ("tool result", lambda w: w.offload_tool_result("t", messages[8])),
    ]


CALL_NAMES = [name for name, _ in calls_with("")]
each_call = pytest.mark.parametrize("name", CALL_NAMES)


def call_named(name: str) -> Callable[[Any], Awaitable[object]]:
    return dict(calls_with(SECRET))[name]


async def test_a_secret_planted_everywhere_is_in_no_file_in_no_form(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    for _, write in calls_with(SECRET):
        await write(workspace)
    assert leaks(tmp_path) == []
    texts = [path.read_text("utf-8", "replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(HIDDEN in text for text in texts) > 8


@each_call
async def test_a_hook_that_fails_leaves_the_tree_as_it_was(tmp_path: Path, name: str) -> None:
    failing = LocalWorkspace(tmp_path / "w", redact=fail)
    with pytest.raises(RedactionError) as caught:
        await call_named(name)(failing)
    assert not (tmp_path / "w").exists()
    assert isinstance(caught.value.__cause__, KeyError)
    workspace = LocalWorkspace(tmp_path / "w", redact=redact)
    for write in ("start", "result"):
        await call_named(write)(workspace)
    before = tree_of(tmp_path)
    with pytest.raises(RedactionError):
        await call_named(name)(failing)
    assert tree_of(tmp_path) == before


@each_call
async def test_the_error_of_a_hook_names_its_kind_and_nothing_of_what_it_was_given(tmp_path: Path, name: str) -> None:
    with pytest.raises(RedactionError, match="raised KeyError; nothing was stored") as caught:
        await call_named(name)(LocalWorkspace(tmp_path, redact=fail))
    assert SECRET not in repr(caught.value)
    assert SECRET not in str(caught.value)


async def test_an_error_about_a_message_does_not_quote_what_the_hook_would_take_out(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    for bad in ({"role": SECRET, "content": "a"}, {SECRET: 1}, {"role": "tool", "content": {"x": SECRET}}):
        for write in (workspace.archive("s", [said("a"), bad]), workspace.offload_tool_result("s", bad)):
            with pytest.raises(MessageError) as caught:
                await write
            shown = "".join(traceback.format_exception(caught.value))
            assert SECRET not in str(caught.value)
            assert repr(SECRET)[1:-1] not in shown
    with pytest.raises(MessageError, match="message 1"):
        await workspace.archive("s", [said("a"), {"role": SECRET, "content": "a"}])


async def test_a_repeated_call_is_known_by_what_was_stored(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    first = [await workspace.archive("s", messages_with(SECRET), batch_id=SECRET) for _ in range(2)]
    assert first[0] == first[1]
    other = await workspace.archive("s", messages_with(SECRET), batch_id=f"{SECRET}2")
    assert other.first == len(first[0].lines)
    stored = [await workspace.store_result("s", result(SECRET, SECRET)) for _ in range(2)]
    assert stored[0] == stored[1]
    assert Path(stored[0].reference).read_text("utf-8") == HIDDEN


async def test_a_stub_is_known_in_the_transcript_and_after_a_restart(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    stored = await workspace.store_result("s", result("c", f"{SECRET}\nmore\n"))
    await workspace.record_stub("s", f"stub with {SECRET}", stored)
    batch = await workspace.archive("s", [{"role": "tool", "tool_call_id": "c", "content": f"stub with {SECRET}"}])
    assert "[offloaded: 2 lines in tool_result-c.txt]" in Path(batch.transcript).read_text("utf-8")
    again = LocalWorkspace(tmp_path, redact=redact)
    for text in (f"stub with {SECRET}", f"stub with {HIDDEN}"):
        assert await again.load_stubs("s", [text]) == {text: stored}


async def test_what_was_taken_out_is_not_missing(tmp_path: Path) -> None:
    """A claim that is checked against the archive is compared as it would have been stored."""
    workspace = LocalWorkspace(tmp_path, redact=redact)
    await workspace.archive("s", [said(f"the key is {SECRET}")])
    strings = [f"key is {SECRET}", f"lock is {SECRET}", "key is"]
    assert await workspace.missing("s", strings) == [strings[1]]


async def test_neither_payloads_nor_references_to_them_go_through_the_hook_for_texts(tmp_path: Path) -> None:
    seen: list[str] = []

    def note(text: str) -> str:
        seen.append(text)
        return text

    workspace = LocalWorkspace(tmp_path, redact=note)
    await workspace.archive("s", [*openai_messages(), *anthropic_messages(), *agentscope_messages()])
    picture = openai_messages()[1]["content"][1]
    referring = await workspace.offload_data_block(picture)
    await workspace.archive("s", [{"role": "user", "content": [referring]}])
    assert seen
    assert [text for text in seen if "workspace:///" in text or len(text) > 100] == []


async def test_a_payload_is_named_by_the_hash_of_what_its_hook_leaves(tmp_path: Path) -> None:
    seen: list[tuple[bytes, str]] = []

    def blank(payload: bytes, media_type: str) -> bytes:
        seen.append((payload, media_type))
        return b"blank"

    workspace = LocalWorkspace(tmp_path, redact_payload=blank)
    await workspace.archive("s", [document(b64("one"), "image/png"), data_url(b64("two"))])
    await workspace.start_window("t", {})
    await workspace.extend_window("t", [document(b64("one"), "image/png")], [])
    block = document(b64("three"), "application/pdf")["content"][0]["source"]
    assert (await workspace.offload_data_block(block))["data"].endswith(".pdf")
    assert seen[:2] == [(b"one", "image/png"), (b"two", "text/csv")]
    assert {path.read_bytes() for path in (tmp_path / "data").iterdir()} == {b"blank"}
    state = await workspace.load_window("t")
    assert state.messages == (("anthropic", document(b64("blank"), "image/png")),)
    assert (await workspace.load_messages("s", 0, 1))[0][1] == document(b64("blank"), "image/png")
    assert block["data"] == b64("three")


async def test_arguments_stay_json_where_a_secret_was_hidden_by_escapes() -> None:
    arguments = json.dumps({"a": SECRET, "n": 1.5, "more": json.dumps([SECRET])})
    redacted = Redaction(redact).text(arguments)
    assert json.loads(redacted) == {"a": HIDDEN, "n": 1.5, "more": json.dumps([HIDDEN], separators=(",", ":"))}


leaves = st.sampled_from([SECRET, f"a {SECRET} b", json.dumps({"k": SECRET}), json.dumps(json.dumps(SECRET)), "x", ""])
keys = st.sampled_from(["text", "data", "format", "type", "url", "x", SECRET, f"{SECRET}2"])
values: st.SearchStrategy[Any] = st.recursive(
    leaves | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
media_types = st.sampled_from(["text/plain", "text/html; charset=utf-8", "application/json", "image/svg+xml"])
documents = st.builds(lambda text, kind: document(b64(text), kind), leaves.filter(bool), media_types)
openai = st.one_of(
    st.builds(said, leaves),
    st.builds(lambda text, extra: {"role": "user", "content": text, "extra": extra}, leaves, values),
    st.builds(
        lambda call_id, arguments: {
            "role": "assistant",
            "content": None,
            "tool_calls": [call(call_id, json.dumps(arguments))],
        },
        leaves,
        values,
    ),
    st.builds(lambda call_id, text: {"role": "tool", "tool_call_id": call_id, "content": text}, leaves, leaves),
    st.builds(lambda text: data_url(b64(text)), leaves.filter(bool)),
)
anthropic = st.one_of(
    documents,
    st.builds(
        lambda call_id, value: {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": call_id, "name": "x", "input": {"v": value}}],
        },
        leaves,
        values,
    ),
    st.builds(
        lambda call_id, text: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}],
        },
        leaves,
        leaves,
    ),
)


@given(st.lists(openai | anthropic, min_size=1, max_size=4), values, leaves)
@settings(max_examples=60)
def test_whatever_is_written_wherever_the_secret_stands_it_is_in_no_file(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any], value: Any, text: str
) -> None:
    workdir = tmp_path_factory.mktemp("w")

    async def run() -> None:
        workspace = LocalWorkspace(workdir, durability="off", redact=redact)
        await workspace.start_window("s", {"value": value}, writer=text)
        await workspace.extend_window("s", messages, [])
        await workspace.record_stub("s", text, await workspace.store_result("s", result(text, text)))
        await workspace.archive("s", messages, batch_id=text)
        await workspace.append_summary("s", {"value": value})
        await workspace.replace_window("s", messages, ["summary"], 0, [])
        await workspace.close()

    asyncio.run(run())
    assert leaks(workdir) == []


async def test_a_window_over_a_workspace_that_redacts_is_compressed_and_resumed(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    window = ContextWindow(offloader=workspace, session_id="s", size=4_000, system=f"never say {SECRET}")
    for message in long_conversation(8):
        await window.add({**message, "content": f"{message['content'] or ''} {SECRET}"})
        await window.prepare()
    await window.save()
    assert leaks(tmp_path) == []
    resumed = await ContextWindow.resume(LocalWorkspace(tmp_path, redact=redact), "s")
    assert SECRET not in json.dumps(await resumed.prepare(), ensure_ascii=False)
    await resumed.add(said(SECRET))
    await resumed.prepare()
    assert leaks(tmp_path) == []


def called(call_id: str, command: str, output: str) -> list[dict[str, Any]]:
    """Return an assistant message that runs *command*, and what it printed."""
    call = {"id": call_id, "type": "function", "function": {"name": "run", "arguments": json.dumps({"cmd": command})}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


@pytest.mark.parametrize("limit", range(200, 230))
async def test_no_preview_and_no_summary_cuts_a_secret_in_two_and_shows_a_half(tmp_path: Path, limit: int) -> None:
    secret, halves = "sk-live-0123456789-abcdefghij", ("sk-live", "abcdefghij")
    config = ContextConfig(tool_result_limit=limit + 1, preview_tokens=limit)
    workspace = LocalWorkspace(tmp_path, durability="off", redact=lambda text: text.replace(secret, HIDDEN))
    window = ContextWindow(offloader=workspace, session_id="s", size=3_000, config=config)
    for number in range(12):
        for message in (said(f"{secret} " * 30), *called(f"c{number}", f"run {secret}", f"{number} {secret} " * 90)):
            await window.add(message)
        shown = json.dumps(await window.prepare())
    assert len(await workspace.load_summaries("s")) > 0
    assert "offloaded" in shown
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files for half in halves if half in path.read_text("utf-8")] == []
    assert verify(workspace).findings == ()


async def test_a_workspace_in_memory_keeps_what_the_hooks_leave() -> None:
    workspace = MemoryWorkspace(redact=redact)
    for _, write in calls_with(SECRET):
        await write(workspace)
    held = [bytes(file.content) for file in workspace._tree._files.values()]
    assert any(b"workspace:///data/" in content for content in held)
    assert all(form not in content for form in FORMS for content in held)
    failing = MemoryWorkspace(redact=fail)
    for name, write in calls_with(SECRET):
        with pytest.raises(RedactionError):
            await write(failing)
        assert (name, failing.session_ids(), failing._tree.names("data")) == (name, [], [])
