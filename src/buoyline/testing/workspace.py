"""Tests that every workspace must pass.

```python
class TestBucketWorkspace(WorkspaceConformance):
    @pytest.fixture
    def workspace(self) -> BucketWorkspace:
        return BucketWorkspace(...)

    def peek(self, workspace: BucketWorkspace, reference: str) -> str:
        return bucket.read(reference)
```

A workspace is an `Offloader` with abilities; run `OffloaderConformance` on it, too.
"""

from buoyline.errors import ConflictError, MessageError, NotFoundError, SessionExistsError, StaleWindowError
from buoyline.lookups import grep, read
from buoyline.lookups.calls import telling_argument
from buoyline.messages import Json, Media, Text, ToolResult
from buoyline.messages.model import text_in
from buoyline.messages.registry import detect
from buoyline.offloader import Offloader
from buoyline.previews.source import MAX_LINE_CHARS
from buoyline.testing.concurrency import SharingConformance
from buoyline.testing.conversation import (
    HOSTILE_IDS,
    HOSTILE_TEXTS,
    LONE_SURROGATES,
    agentscope_messages,
    anthropic_messages,
    contents,
    openai_messages,
    result,
    result_of_all_kinds,
    said,
)
from buoyline.testing.suite import (
    ALL,
    archive_of,
    loaded,
    raises,
    readable,
    results_of,
    summaries_of,
    transcript_of,
    windows_of,
)


class WorkspaceConformance(SharingConformance):
    """Inherit it in a test class with a fixture ``workspace`` that returns a new one for each test.

    A test is skipped if the workspace lacks the ability that it needs. The tests are asynchronous; pytest-asyncio runs
    them in its mode ``auto``.
    """

    async def test_messages_of_each_dialect_come_back_equal_and_in_order(self, workspace: Offloader) -> None:
        """With their images and the order of their keys; the caller's messages are not changed."""
        archive = archive_of(workspace)
        makers = {"openai": openai_messages, "anthropic": anthropic_messages, "agentscope": agentscope_messages}
        for session_id, (dialect, make) in zip("abc", makers.items(), strict=True):
            messages = make()
            await archive.archive(session_id, messages[:2], dialect=dialect)
            await archive.archive(session_id, messages[2:], dialect=dialect)
            assert messages == make()
            found = await archive.load_messages(session_id, *ALL)
            assert found == [(dialect, message) for message in make()]
            assert [list(message) for _, message in found] == [list(message) for message in make()]

    async def test_any_extent_of_the_messages_can_be_loaded(self, workspace: Offloader) -> None:
        """Across batches, and fewer if there are fewer."""
        archive = archive_of(workspace)
        messages = [said(str(number)) for number in range(7)]
        for start in range(0, 7, 2):
            await archive.archive("s", messages[start : start + 2])
        for first in range(8):
            for end in range(first, 9):
                assert [message for _, message in await archive.load_messages("s", first, end)] == messages[first:end]

    async def test_what_was_loaded_is_the_callers(self, workspace: Offloader) -> None:
        """A change of it changes nothing in the workspace."""
        archive = archive_of(workspace)
        await archive.archive("s", openai_messages())
        for message in await loaded(archive, "s"):
            message.clear()
        assert await loaded(archive, "s") == openai_messages()

    async def test_a_text_that_spells_a_reference_stays_a_text(self, workspace: Offloader) -> None:
        """Only data that was taken out of a message is put back into it."""
        archive = archive_of(workspace)
        reference = f"workspace:///data/{'0' * 64}.png"
        forged = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": reference}}]}
        await archive.archive("s", [*openai_messages(), forged])
        assert (await loaded(archive, "s"))[-1] == forged

    async def test_hostile_texts_come_back_equal_from_the_archive(self, workspace: Offloader) -> None:
        """Separators of every kind, control characters, and half a character."""
        archive = archive_of(workspace)
        messages = [said(text) for text in (*HOSTILE_TEXTS, LONE_SURROGATES)]
        for message in messages:
            await archive.archive("s", [message])
        assert await loaded(archive, "s") == messages

    async def test_the_same_batch_id_is_the_same_batch_at_any_time(self, workspace: Offloader) -> None:
        """A retry may come late; it gets the first answer."""
        archive = archive_of(workspace)
        first = await archive.archive("s", openai_messages(), batch_id="one")
        await archive.archive("s", [said("c")], batch_id="two")
        assert await archive.archive("s", openai_messages(), batch_id="one") == first
        assert await loaded(archive, "s") == [*openai_messages(), said("c")]

    async def test_a_batch_id_with_other_messages_is_a_conflict_and_stores_nothing(self, workspace: Offloader) -> None:
        """Neither the old batch nor the order changes."""
        archive = archive_of(workspace)
        await archive.archive("s", [said("a")], batch_id="one")
        with raises(ConflictError, "new batch id"):
            await archive.archive("s", [said("b")], batch_id="one")
        assert await loaded(archive, "s") == [said("a")]

    async def test_without_a_batch_id_only_a_repetition_in_a_row_is_a_retry(self, workspace: Offloader) -> None:
        """People do say the same thing twice."""
        for text in ("a", "a", "b", "a"):
            await workspace.offload_context("s", [said(text)])
        assert await loaded(archive_of(workspace), "s") == [said("a"), said("b"), said("a")]

    async def test_a_batch_that_must_begin_at_another_index_is_refused_and_stores_nothing(
        self, workspace: Offloader
    ) -> None:
        """Another writer has archived meanwhile. A repetition keeps its index."""
        archive = archive_of(workspace)
        with raises(StaleWindowError):
            await archive.archive("s", [said("a"), said("b")], batch_id="one", first=1)
        await archive.archive("s", [said("a"), said("b")], batch_id="one", first=0)
        for first in (0, 1, 3):
            with raises(StaleWindowError):
                await archive.archive("s", [said("c")], batch_id="two", first=first)
        await archive.archive("s", [said("c")], batch_id="two", first=2)
        await archive.archive("s", [said("a"), said("b")], batch_id="one", first=0)
        assert await loaded(archive, "s") == [said("a"), said("b"), said("c")]

    async def test_no_messages_change_nothing(self, workspace: Offloader) -> None:
        """The answer has the index of the next message."""
        archive = archive_of(workspace)
        await archive.archive("s", [said("a"), said("b")])
        empty = await archive.archive("s", [])
        assert (empty.first, empty.lines) == (2, ())
        assert await loaded(archive, "s") == [said("a"), said("b")]

    async def test_what_is_no_message_is_named_by_its_position_and_nothing_is_stored(
        self, workspace: Offloader
    ) -> None:
        """A batch is whole or absent."""
        archive = archive_of(workspace)
        await archive.archive("s", [said("a")])
        for bad in ({"no": "role"}, {"role": "user", "content": [{"type": "x", "n": float("nan")}]}):
            with raises(MessageError, "message 1"):
                await archive.archive("s", [said("b"), bad])
        assert await loaded(archive, "s") == [said("a")]

    async def test_line_ranges_lead_to_the_lines_of_each_message(self, workspace: Offloader) -> None:
        """They follow each other without a gap, and `locate` repeats the answer of `archive`."""
        archive = archive_of(workspace)
        messages = [said(f"needle-{number}-\n" + "line\n" * number) for number in range(6)]
        batches = [await archive.archive("s", messages[start : start + 2]) for start in (0, 2, 4)]
        located = await archive.locate("s", 0, 6)
        assert [batch.first for batch in batches] == [0, 2, 4]
        assert tuple(lines for batch in batches for lines in batch.lines) == located.lines
        text = self.peek(workspace, located.transcript).split("\n")
        expected_start = 1
        for number, (start, end) in enumerate(located.lines):
            assert start == expected_start <= end
            assert f"needle-{number}-" in "\n".join(text[start - 1 : end])
            expected_start = end + 1
        assert (await archive.locate("s", 1, 4)).lines == located.lines[1:4]

    async def test_a_transcript_shows_the_lines_of_each_message(self, workspace: Offloader) -> None:
        """The lines in its line ranges, across batches."""
        archive, reader = archive_of(workspace), transcript_of(workspace)
        for start in (0, 2, 4):
            await archive.archive("s", [said(f"needle-{number}-\n\u2028\n") for number in (start, start + 1)])
        located = await archive.locate("s", 1, 5)
        text = self.peek(workspace, located.transcript).split("\n")
        shown = await reader.transcript_lines("s", 1, 5)
        assert [list(lines) for lines in shown] == [text[start - 1 : end] for start, end in located.lines]

    async def test_lines_of_messages_that_are_not_archived_are_not_found(self, workspace: Offloader) -> None:
        """Fewer lines than messages would be worse."""
        archive = archive_of(workspace)
        await archive.archive("s", [said("a")])
        with raises(NotFoundError):
            await archive.locate("s", 0, 2)

    async def test_hostile_texts_come_back_equal_from_the_results(self, workspace: Offloader) -> None:
        """Each text to the last character, also half a character."""
        results = results_of(workspace)
        for number, text in enumerate((*HOSTILE_TEXTS, LONE_SURROGATES)):
            stored = await results.store_result("s", result(f"call_{number}", text))
            assert self.peek(workspace, stored.reference) == text

    async def test_a_result_with_a_long_line_has_a_view_with_short_ones(self, workspace: Offloader) -> None:
        """A result that is readable as it is has none."""
        results = results_of(workspace)
        long = await results.store_result("s", result("long", "word " * 1000))
        view = self.peek(workspace, long.view)
        assert max(map(len, view.split("\n"))) <= MAX_LINE_CHARS
        assert view.count("\n") == long.lines
        short = await results.store_result("s", result("short", "a\nb\n"))
        assert (short.view, short.lines) == ("", 2)

    async def test_one_call_id_with_other_content_keeps_both_and_with_the_same_is_one(
        self, workspace: Offloader
    ) -> None:
        """Ids repeat in real sessions; in some, all are empty."""
        results = results_of(workspace)
        for call_id in ("same", "", *HOSTILE_IDS[:3]):
            stored = [await results.store_result("s", result(call_id, text)) for text in ("one", "two", "one", "two")]
            assert stored[:2] == stored[2:]
            assert [self.peek(workspace, found.reference) for found in stored[:2]] == ["one", "two"]

    async def test_a_result_comes_back_with_every_kind_of_block(self, workspace: Offloader) -> None:
        """In the tool's order, with the bytes of its images and documents; its file has only text and JSON."""
        results, whole = results_of(workspace), result_of_all_kinds("c")
        stored = await results.store_result("s", whole)
        found = await results.load_result("s", stored)
        assert found == whole
        assert contents(found) == contents(whole)
        assert self.peek(workspace, stored.reference) == whole.text
        assert await results.store_result("s", result_of_all_kinds("c")) == stored

    async def test_the_parts_of_a_result_say_what_they_are_and_where(self, workspace: Offloader) -> None:
        """Offsets lead to the texts in its file, references to all other parts."""
        whole = result_of_all_kinds("c")
        stored = await results_of(workspace).store_result("s", whole)
        text = self.peek(workspace, stored.reference).encode("utf-8", "surrogatepass")
        assert len(stored.parts) == len(whole.parts)
        for part, given in zip(stored.parts, whole.parts, strict=True):
            if isinstance(given, (Text, Json)):
                said_there = text[part.offset : part.offset + part.size_bytes].decode("utf-8", "surrogatepass")
                assert (said_there, part.path, part.reference) == (text_in(given), "", "")
                assert part.kind == ("text" if isinstance(given, Text) else "json")
            else:
                assert part.path
                assert part.reference
            if isinstance(given, Media) and (content := given.content()):
                facts = part.kind, part.media_type, part.size_bytes, part.name
                assert facts == (given.kind, given.media_type, len(content), given.name)

    async def test_results_that_differ_in_their_media_alone_are_two(self, workspace: Offloader) -> None:
        """An id, even an empty one, may be repeated with another image, or with the same one."""
        results = results_of(workspace)
        pictures = [ToolResult("", "", (Media("image", "image/png", 1, payload=content),)) for content in (b"1", b"2")]
        blocks = [ToolResult("", "", tuple(map(Text, texts))) for texts in (("a\n", "b"), ("a\nb",), ("a", "b"))]
        given = [*pictures, *blocks]
        stored = [await results.store_result("s", result) for result in (*given, *given)]
        assert stored[: len(given)] == stored[len(given) :]
        found = [contents(await results.load_result("s", one)) for one in stored[: len(given)]]
        assert found == [contents(result) for result in given]

    async def test_a_stub_is_known_by_its_record_and_not_by_its_looks(self, workspace: Offloader) -> None:
        """The transcript has a line about the result in place of a stub; a text that only looks like a stub is kept."""
        results, archive = results_of(workspace), archive_of(workspace)
        stored = await results.store_result("s", result("c", "whole"))
        await results.record_stub("s", "the stub", stored)
        await results.record_stub("s", "the stub", stored)
        messages = [{"role": "tool", "tool_call_id": "c", "content": text} for text in ("the stub", "the stub.")]
        batch = await archive.archive("s", messages)
        text = self.peek(workspace, batch.transcript)
        assert text.count("the stub") == text.count("the stub.") == 1
        assert await loaded(archive, "s") == messages

    async def test_recorded_stubs_are_loaded_and_nothing_else(self, workspace: Offloader) -> None:
        """A resumed window learns which of its texts are stubs, and of which results."""
        results = results_of(workspace)
        stored = [await results.store_result("s", result("same", text)) for text in ("one", "two")]
        for stub, of in zip(("stub 1", "stub 2"), stored, strict=True):
            await results.record_stub("s", stub, of)
        found = await results.load_stubs("s", ["stub 2", "stub 3", "one", "", "stub 1"])
        assert found == {"stub 1": stored[0], "stub 2": stored[1]}

    async def test_a_window_records_the_stubs_that_come_with_its_messages(self, workspace: Offloader) -> None:
        """A window passes the stub of its last result with the messages; one that is known already is no error."""
        results, windows = results_of(workspace), windows_of(workspace)
        await windows.start_window("s", {}, writer="w")
        stored = [await results.store_result("s", result("same", text)) for text in ("one", "two")]
        late = list(zip(("stub 1", "stub 2"), stored, strict=True))
        await windows.extend_window("s", [said("a")], [], stubs=late[:1], writer="w")
        await windows.replace_window("s", [said("b")], [], 0, [], stubs=late, writer="w")
        assert await results.load_stubs("s", ["stub 2", "stub 3", "stub 1"]) == dict(late)

    async def test_what_is_missing_is_what_neither_archive_nor_results_hold(self, workspace: Offloader) -> None:
        """In the order of the question."""
        archive = archive_of(workspace)
        await archive.archive("s", [said("alpha")])
        await results_of(workspace).store_result("s", result("c", "beta"))
        assert await archive.missing("s", ["gamma", "alpha", "beta", "delta"]) == ["gamma", "delta"]
        assert await archive.missing("s", []) == []

    async def test_summaries_are_numbered_and_come_back_in_order(self, workspace: Offloader) -> None:
        """With any number and text of their own."""
        summaries = summaries_of(workspace)
        texts = (*HOSTILE_TEXTS, LONE_SURROGATES)
        numbers = [await summaries.append_summary("s", {"n": 0, "text": text}) for text in texts]
        assert numbers == list(range(1, len(texts) + 1))
        assert await summaries.load_summaries("s") == [
            {"n": number, "text": text} for number, text in enumerate(texts, 1)
        ]

    async def test_the_newest_summary_comes_back_with_its_facts(self, workspace: Offloader) -> None:
        """However many there were: the next summary chooses from all of them."""
        summaries = summaries_of(workspace)
        for number in range(1, 5):
            items = [{"text": f"{number} {at} {text}"} for at, text in enumerate(HOSTILE_TEXTS * 9)]
            facts = {"items": items, "work": {"plan": [number]}}
            assert await summaries.append_summary("s", {"text": f"summary {number}", **facts}) == number
            found = await summaries.load_summaries("s")
            assert found[-1] == {"n": number, "text": f"summary {number}", **facts}
            assert [summary["text"] for summary in found] == [f"summary {at}" for at in range(1, number + 1)]

    async def test_lookups_lead_to_the_end_of_a_session(self, workspace: Offloader) -> None:
        """`grep` shows the newest hits first, and `read` the last lines."""
        reader = readable(workspace)
        archive = archive_of(workspace)
        await results_of(workspace).store_result("s", result("c", "needle of a result\nits last line"))
        for number in range(6):
            await archive.archive("s", [said(f"needle {number}")])
        shown = [line.text for line in grep(reader, "needle", session="s", last=True).lines]
        assert shown == [*(f"needle {number}" for number in range(5, -1, -1)), "needle of a result"]
        assert [line.text for line in read(reader, "transcript.md:-2", session="s").lines] == ["needle 5", ""]
        assert [line.text for line in read(reader, "[c:-1]", session="s").lines] == ["its last line"]

    async def test_lookups_name_the_call_of_a_hit(self, workspace: Offloader) -> None:
        """In the transcript, by what is archived, whatever a tool printed."""
        reader = readable(workspace)
        await archive_of(workspace).archive("s", anthropic_messages())
        found = grep(reader, "^", "transcript.md", session="s").text
        calls = [call for message in anthropic_messages() for call in detect(message).view(message).calls]
        assert calls
        rows = [row for row in found.splitlines() if row.startswith("@ ")]
        named = [f"@ {call.name} {telling_argument(call.arguments)}".rstrip() for call in calls]
        assert [row.partition(" \u00b7 ")[0] for row in rows if row.startswith("@ run")] == [*named, *named]

    async def test_lookups_read_earlier_summaries(self, workspace: Offloader) -> None:
        """As text, by number and by citation."""
        reader = readable(workspace)
        for number in (1, 2):
            await summaries_of(workspace).append_summary("s", {"text": f"summary\n{number} of the session\n"})
        for path in ("summary 1", "[summaries.jsonl:1]"):
            assert [line.text for line in read(reader, path, session="s").lines] == ["summary", "1 of the session"]
        assert grep(reader, "of the", "summary 2", session="s").lines[0].text == "2 of the session"

    async def test_a_window_comes_back_as_it_was_left(self, workspace: Offloader) -> None:
        """Images are stored within it, since its messages are not archived."""
        windows = windows_of(workspace)
        await windows.start_window("s", {"size": 5, "config": {"a": [1, None]}}, writer="w")
        await windows.extend_window("s", openai_messages(), [1], writer="w")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == openai_messages()
        assert (state.head, state.first, state.pins, state.archived) == ((), 0, (1,), 0)
        assert dict(state.settings) == {"size": 5, "config": {"a": [1, None]}}

        messages, dialects = [said("summary"), said("kept")], ["openai", "openai"]
        await windows.replace_window("s", messages, ["summary"], first=7, pins=[1, 7], dialects=dialects, writer="w")
        await windows.extend_window("s", [said("new")], [1, 7, 8], writer="w")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == [*messages, said("new")]
        assert (state.head, state.first, state.pins) == (("summary",), 7, (1, 7, 8))
        assert dict(state.settings) == {"size": 5, "config": {"a": [1, None]}}

    async def test_a_window_knows_how_many_messages_are_archived(self, workspace: Offloader) -> None:
        """So a window that was interrupted during a compaction can continue."""
        archive, windows = archive_of(workspace), windows_of(workspace)
        messages = [said("a"), said("b")]
        await windows.start_window("s", {}, writer="w")
        await windows.extend_window("s", messages, [], writer="w")
        await archive.archive("s", messages)
        assert (await windows.load_window("s")).archived == len(messages)

    async def test_a_second_window_in_a_session_is_refused_and_harms_nothing(self, workspace: Offloader) -> None:
        """The error says how to continue the first one; its writer may repeat the call."""
        windows = windows_of(workspace)
        await windows.start_window("s", {"size": 1}, writer="w")
        await windows.extend_window("s", [said("a")], [], writer="w")
        with raises(SessionExistsError, "resume"):
            await windows.start_window("s", {"size": 2}, writer="another")
        await windows.start_window("s", {"size": 1}, writer="w")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == [said("a")]
        assert dict(state.settings) == {"size": 1}

    async def test_a_window_in_a_session_that_has_messages_is_refused(self, workspace: Offloader) -> None:
        """They are not the window's."""
        await archive_of(workspace).archive("s", [said("a")])
        with raises(SessionExistsError, "resume"):
            await windows_of(workspace).start_window("s", {}, writer="w")

    async def test_who_claims_a_window_goes_on_alone(self, workspace: Offloader) -> None:
        """The earlier writer gets an error, and changes nothing."""
        windows = windows_of(workspace)
        await windows.start_window("s", {}, writer="w")
        await windows.extend_window("s", [said("a")], [], writer="w")
        await windows.claim_window("s", writer="another")
        with raises(StaleWindowError, "resume"):
            await windows.extend_window("s", [said("lost")], [], writer="w")
        with raises(StaleWindowError, "resume"):
            await windows.replace_window("s", [said("lost")], ["summary"], first=1, pins=[], writer="w")
        await windows.extend_window("s", [said("b")], [], writer="another")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == [said("a"), said("b")]

    async def test_what_is_not_there_is_not_found(self, workspace: Offloader) -> None:
        """An empty answer would make a mistyped id look like a session without messages."""
        archive = archive_of(workspace)
        with raises(NotFoundError):
            await archive.load_messages("nobody", *ALL)
        with raises(NotFoundError):
            await archive.locate("nobody", 0, 1)
        with raises(NotFoundError):
            await archive.missing("nobody", ["a"])
        with raises(NotFoundError):
            await summaries_of(workspace).load_summaries("nobody")
        await archive.archive("s", [said("a")])
        for session_id in ("nobody", "s"):
            with raises(NotFoundError):
                await windows_of(workspace).load_window(session_id)
            with raises(NotFoundError):
                await windows_of(workspace).claim_window(session_id, writer="w")
        assert await summaries_of(workspace).load_summaries("s") == []
