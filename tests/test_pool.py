"""Windows of many sessions, as servers and integrations use them."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from window_lives import calling, result, said, user

from buoyline.errors import ConfigError
from buoyline.integrations import WindowPool, run_sync
from buoyline.window import ContextWindow, Event, HistoryForked


async def test_runs_of_one_session_wait_for_each_other_and_those_of_others_do_not(tmp_path: Path) -> None:
    pool, order = WindowPool(tmp_path), list[str]()

    async def run(session_id: str, name: str, wait: asyncio.Event) -> None:
        async with pool.of(session_id):
            order.append(name)
            await wait.wait()

    first, others = asyncio.Event(), asyncio.Event()
    others.set()
    runs = [asyncio.create_task(run("a", "first", first)), asyncio.create_task(run("b", "other", others))]
    await asyncio.wait([runs[1]])
    runs.append(asyncio.create_task(run("a", "second", others)))
    await asyncio.sleep(0.05)
    assert sorted(order) == ["first", "other"]
    first.set()
    await asyncio.gather(*runs)
    assert order[-1] == "second"


async def test_the_windows_used_last_stay_open_and_a_closed_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = list[str](), ContextWindow.open

    async def noting(workspace: Any, session_id: str, **settings: Any) -> ContextWindow:
        opened.append(session_id)
        return await real(workspace, session_id, **settings)

    monkeypatch.setattr(ContextWindow, "open", noting)
    pool = WindowPool(tmp_path, max_open=2)
    for session_id in ("a", "b", "a", "c", "a", "b"):
        assert await pool.request(session_id, [user(f"I am {session_id}.")]) == [user(f"I am {session_id}.")]
    assert opened == ["a", "b", "c", "b"]
    await pool.close()
    await pool.request("a", [user("I am a.")])
    assert opened[4:] == ["a"]


async def test_threads_with_loops_of_their_own_share_a_session(tmp_path: Path) -> None:
    events = list[Event]()
    pool = WindowPool(tmp_path, on_event=events.append)
    listed = [user("go"), calling("c1"), result("c1", "row\n" * 9_000)]
    requests = list[list[Any]]()
    threads = [threading.Thread(target=lambda: requests.append(run_sync(pool.request("s", listed)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(requests) == 8
    assert all(request == requests[0] for request in requests)
    assert not any(isinstance(event, HistoryForked) for event in events)


async def test_an_answer_is_on_disk_and_known_again_when_the_list_brings_it(tmp_path: Path) -> None:
    events = list[Event]()
    pool = WindowPool(tmp_path, prefix="wide_", on_event=events.append)
    await pool.request("s", [user("go")], system="Be brief.", tools=[{"name": "look"}])
    answer = calling("c1")
    await pool.add("s", [answer], {"no": "usage"})
    assert '"c1"' in (tmp_path / "sessions/s/context.jsonl").read_text()
    request = await pool.request("s", [user("go"), answer, result("c1", "row\n" * 9_000), said("done")])
    assert len(request) == 4
    assert not any(isinstance(event, HistoryForked) for event in events)
    assert [tool.name for tool in pool.lookups] == ["wide_read", "wide_grep", "wide_search"]
    assert "row" in await pool.look_up("s", "wide_grep", {"pattern": "row"})
    shorter = await pool.recover("s", request, ValueError("too long"))
    assert len(str(shorter)) < len(str(request))


async def test_a_session_that_another_process_goes_on_with_ends_no_request_of_another_one(tmp_path: Path) -> None:
    ours, theirs = WindowPool(tmp_path, max_open=1), WindowPool(tmp_path)
    await ours.request("s1", [user("go")])
    await ours.add("s1", [said("yes")], {"input_tokens": 9})
    async with ours.of("s1") as window:
        window.note_usage({"input_tokens": 9})
    await theirs.request("s1", [user("go"), said("yes"), user("more")])
    assert await ours.request("s2", [user("I am s2.")]) == [user("I am s2.")]
    assert len(await ours.request("s1", [user("go"), said("yes"), user("more"), said("done")])) == 4


def test_a_pool_of_no_windows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="0 is no number of windows"):
        WindowPool(tmp_path, max_open=0)
