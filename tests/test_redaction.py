"""Redaction: what the hook of a workspace takes out is in no file and in no form; if it fails, nothing is stored."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from window_lives import calling, result, said, user

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.errors import RedactionError
from buoyline.maintenance.verify import verify

SECRET = 'sk-"\u6f22\\8f3a\U0001f98a+quay/'
"""Quotes, backslashes, characters that JSON may escape, of one and of two UTF-16 units."""

HIDDEN = "[redacted]"


def redact(text: str) -> str:
    return text.replace(SECRET, HIDDEN)


def fail(text: str) -> str:
    message = f"no entry for {text}"
    raise KeyError(message)


def forms_of(secret: str) -> set[bytes]:
    """Return how *secret* may look in a file: plain, escaped once and twice, and in base64 at each of three offsets."""
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)}
    escaped |= {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in escaped for ascii_only in (False, True)}
    in_base64 = {base64.b64encode((" " * shift + secret).encode()).decode("ascii")[4:-8] for shift in range(3)}
    return {text.encode() for text in {secret, *escaped, *in_base64}}


def leaks(workdir: Path, forms: set[bytes]) -> list[str]:
    """Return each file that shows one of *forms* in its content or in its name."""
    files = [path for path in workdir.rglob("*") if path.is_file()]
    return [str(path) for path in files for form in forms if form in path.read_bytes() or form in path.name.encode()]


def conversation() -> Iterator[dict[str, Any]]:
    picture = "data:text/plain;base64," + base64.b64encode(f"note {SECRET}".encode()).decode("ascii")
    parts = [{"type": "text", "text": SECRET}, {"type": "image_url", "image_url": {"url": picture}}]
    yield {"role": "user", "content": parts}
    for number in range(12):
        yield user(f"{SECRET} " * 30)
        yield calling(f"c{number}", arguments=json.dumps({"path": f"run {SECRET} in {number}"}))
        yield result(f"c{number}", json.dumps({"rows": [f"{number} {SECRET}"] * 90}))
        yield said(f"found {SECRET}")


async def test_a_secret_planted_everywhere_is_in_no_file_in_no_form(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    config = ContextConfig(tool_result_limit=400, preview_tokens=200)
    window = await ContextWindow.open(workspace, "s", size=6_000, config=config, system=f"keep {SECRET} safe")
    for message in conversation():
        await window.add(message)
        shown = json.dumps(await window.prepare())
    await workspace.offload_context("t", [*conversation()])
    await workspace.offload_tool_result("t", result("c1", SECRET))
    assert "offloaded" in shown
    assert (tmp_path / "sessions/s/summaries.jsonl").read_bytes()
    assert leaks(tmp_path, forms_of(SECRET)) == []
    assert leaks(tmp_path, {HIDDEN.encode()}) != []
    assert verify(workspace).findings == ()


async def test_a_window_over_a_workspace_that_redacts_is_opened_again(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    window = await ContextWindow.open(workspace, "s", size=100_000)
    for message in conversation():
        await window.add(message)
    other = await ContextWindow.open(LocalWorkspace(tmp_path, redact=redact), "s", size=100_000)
    assert len(other.messages) == len(window.messages)
    assert SECRET not in json.dumps(other.messages, ensure_ascii=False)
    await other.add(said(SECRET))
    assert leaks(tmp_path, forms_of(SECRET)) == []


async def test_a_hook_that_fails_leaves_the_tree_as_it_was(tmp_path: Path) -> None:
    await (await ContextWindow.open(LocalWorkspace(tmp_path), "s", size=100_000)).add(user("go"))
    workspace = LocalWorkspace(tmp_path, redact=fail)
    window = await ContextWindow.open(workspace, "s", size=100_000)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for write in (
        lambda: window.add(said(SECRET)),
        lambda: workspace.offload_context("s", [said(SECRET)]),
        lambda: workspace.offload_tool_result("s", result("c1", SECRET)),
    ):
        with pytest.raises(RedactionError, match=r"KeyError.*nothing was stored") as raised:
            await write()
        assert SECRET not in str(raised.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("limit", range(200, 220))
async def test_no_preview_and_no_summary_cuts_a_secret_in_two_and_shows_a_half(tmp_path: Path, limit: int) -> None:
    secret, halves = "sk-live-0123456789-abcdefghij", {b"sk-live", b"abcdefghij"}
    config = ContextConfig(tool_result_limit=limit + 1, preview_tokens=limit)
    workspace = LocalWorkspace(tmp_path, durability="off", redact=lambda text: text.replace(secret, HIDDEN))
    window = await ContextWindow.open(workspace, "s", size=3_000, config=config)
    for number in range(12):
        for message in (
            user(f"{secret} " * 30),
            calling(f"c{number}", arguments=json.dumps({"path": secret})),
            result(f"c{number}", f"{number} {secret} " * 90),
        ):
            await window.add(message)
        await window.prepare()
    assert (tmp_path / "sessions/s/summaries.jsonl").read_bytes()
    assert leaks(tmp_path, halves) == []


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
async def test_a_document_is_redacted_whatever_its_encoding(tmp_path: Path, encoding: str) -> None:
    document = base64.b64encode("café hunter2".encode(encoding)).decode("ascii")
    source = {"type": "base64", "media_type": "text/plain", "data": document}
    workspace = LocalWorkspace(tmp_path, redact=lambda text: text.replace("hunter2", HIDDEN))
    window = await ContextWindow.open(workspace, "s", size=100_000, dialect="anthropic")
    await window.add({"role": "user", "content": [{"type": "document", "source": source}]})
    (stored,) = (path for path in (tmp_path / "data").iterdir() if not path.name.startswith("."))
    assert stored.read_bytes().decode(encoding) == f"café {HIDDEN}"


async def test_arguments_that_leave_for_a_file_are_redacted_there(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=redact)
    window = await ContextWindow.open(workspace, "s", size=6_000)
    given = json.dumps({"path": "a.py", "content": f"{SECRET} and more words\n" * 1_000})
    await window.extend([user("write it"), calling("w1", arguments=given), result("w1", "written")])
    await window.prepare()
    assert [*tmp_path.rglob("tool_call-w1*")] != []
    assert leaks(tmp_path, forms_of(SECRET)) == []
