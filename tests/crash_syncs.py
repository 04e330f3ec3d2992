"""Each sync of the workspace, with a scenario in which a promise is broken when it alone is left out.

A sync is known by its file or directory, and by the functions that lead to it. ``python tests/test_crash_states.py``
prints what belongs here.
"""

SYNCS = {
    "(blob) < Blobs.put > LocalTree.publish": ("a payload", "a power cut"),
    "(result) < _StagedFile.sync": ("a result that is streamed", "a power cut"),
    "(result) < Results._publish > LocalTree.publish": ("a tool result", "a power cut"),
    "(torn bytes) < Summaries.add > Appender.set_aside_behind > Appender._set_aside > LocalTree.publish": (
        "the first summary",
        "a power cut while the next writer recovers from one",
    ),
    "(torn bytes) < Window.extend > Appender.append_lines > Appender._set_aside > LocalTree.publish": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "(torn bytes) < recover > Appender.set_aside_behind > Appender._set_aside > LocalTree.publish": (
        "one message",
        "a power cut while the next writer recovers from one",
    ),
    "(torn bytes) < recover > Appender.set_holes_aside > Appender._set_aside > LocalTree.publish": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "(view) < _StagedFile.sync": ("a result with a view that is streamed", "a power cut"),
    "(view) < Results._publish_view > LocalTree.publish": ("a tool result with a view", "a power cut"),
    "/ < create_workspace": ("the first call of a workspace", "a power cut"),
    "/ < create_workspace > LocalTree.publish": ("the first call of a workspace", "a power cut"),
    "/../ < create_workspace > LocalTree.make_root": ("the first call of a workspace", "a power cut"),
    "/data/ < Blobs._ensure_durable": ("a payload", "a kill, then a power cut after the next process repeats it"),
    "/data/ < Blobs.put > LocalTree.publish": ("a payload", "a power cut"),
    "/sessions/ < Session.writing": ("the first call of a workspace", "a power cut"),
    "/workspace.json < create_workspace > LocalTree.publish": ("the first call of a workspace", "a power cut"),
    "context.jsonl < Archive.add > Appender.sync_earlier > Appender._sync": (
        "one message",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "context.jsonl < Archive.add > Appender.commit > Appender._sync": (
        "one message",
        "a power cut",
    ),
    "context.jsonl < Results._commit > Appender.note > Appender._sync": (
        "one message",
        "a kill, then a power cut after a process that was at work stores a result",
    ),
    "context.jsonl < _rebuild_journal": (
        "several messages",
        "a kill and the loss of the journal, then a power cut after the next process stores a result",
    ),
    "context.jsonl < recover > Appender.sync_earlier > Appender._sync": (
        "one message",
        "a kill, then a power cut after the next process repeats it",
    ),
    "journal.jsonl < Archive.add > Appender.sync_earlier > Appender._sync": (
        "one message",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "journal.jsonl < Archive.add > Appender.commit > Appender._sync": ("one message", "a power cut"),
    "journal.jsonl < Results._commit > Appender.note > Appender._sync": ("a tool result", "a power cut"),
    "journal.jsonl < Results._commit > Appender.sync_earlier > Appender._sync": (
        "a tool result",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "journal.jsonl < _rebuild_journal > Appender.replace > LocalTree.replace": (
        "a journal that was lost",
        "a power cut",
    ),
    "journal.jsonl < Summaries.add > Appender.commit > Appender._sync": ("the first summary", "a power cut"),
    "journal.jsonl < Window.claim > Appender.note > Appender._sync": ("a window that is taken over", "a power cut"),
    "journal.jsonl < Window.replace > Appender.note > Appender._sync": (
        "a window after a compression",
        "a power cut",
    ),
    "journal.jsonl < Window.start > Appender.note > Appender._sync": ("a window", "a power cut"),
    "journal.jsonl < recover > Appender.sync_earlier > Appender._sync": (
        "one message",
        "a kill, then a power cut after the next process repeats it",
    ),
    "session.json < SessionNames.publish > LocalTree.publish_directory": (
        "the first call of a workspace",
        "a power cut",
    ),
    "session/ < Results._publish > LocalTree.publish": ("a tool result", "a power cut"),
    "session/ < Results._publish_view > LocalTree.publish": ("a tool result with a view", "a power cut"),
    "session/ < Results._publish_staged_view > LocalTree.publish_staged": (
        "a result with a view that is streamed",
        "a power cut",
    ),
    "session/ < Results.publish.<locals>.write > LocalTree.publish_staged": (
        "a result that is streamed",
        "a power cut",
    ),
    "session/ < Results.store.<locals>.write": (
        "a tool result",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "session/ < SessionNames.publish > LocalTree.publish_directory": ("the first call of a workspace", "a power cut"),
    "session/ < Session.writing": (
        "a journal that was lost",
        "a kill, then a power cut after the next process repeats it",
    ),
    "session/ < Summaries.add": (
        "the first summary",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "(facts) < Summaries.add > LocalTree.replace": ("a summary with facts", "a power cut"),
    "session/ < Summaries.add > Appender.set_aside_behind > Appender._set_aside": (
        "the first summary",
        "a power cut while the next writer recovers from one",
    ),
    "session/ < Summaries.add > Appender.set_aside_behind > _OpenFiles.__missing__ > LocalTree.open > LocalTree._opened_file > LocalTree._open_or_create": (  # noqa: E501
        "the first summary",
        "a power cut",
    ),
    "session/ < Window.extend > Appender.append_lines > Appender._set_aside": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "session/ < Window.replace > Appender.replace > LocalTree.replace": ("a window after a compression", "a power cut"),
    "session/ < Window.start": (
        "a window of a session that is there",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "session/ < Window.start > Appender.replace > LocalTree.replace": ("a window", "a power cut"),
    "session/ < recover > Appender.set_aside_behind > Appender._set_aside": (
        "one message",
        "a power cut while the next writer recovers from one",
    ),
    "session/ < recover > Appender.set_holes_aside > Appender._set_aside": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "summaries.jsonl < Archive.add > Appender.sync_earlier > Appender._sync": (
        "the first summary",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
    "summaries.jsonl < Archive.add > Appender.commit > Appender._sync": (
        "the first summary",
        "a kill, then a power cut after a process that was at work archives something else",
    ),
    "summaries.jsonl < Results._commit > Appender.note > Appender._sync": (
        "the first summary",
        "a kill, then a power cut after a process that was at work stores a result",
    ),
    "summaries.jsonl < Summaries.add > Appender.commit > Appender._sync": (
        "the first summary",
        "a power cut",
    ),
    "summaries.jsonl < recover > Appender.sync_earlier > Appender._sync": (
        "the first summary",
        "a kill, then a power cut after the next process repeats it",
    ),
    "torn/ < Summaries.add > Appender.set_aside_behind > Appender._set_aside > LocalTree.publish": (
        "the first summary",
        "a power cut while the next writer recovers from one",
    ),
    "torn/ < Window.extend > Appender.append_lines > Appender._set_aside > LocalTree.publish": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "torn/ < recover > Appender.set_aside_behind > Appender._set_aside > LocalTree.publish": (
        "one message",
        "a power cut while the next writer recovers from one",
    ),
    "torn/ < recover > Appender.set_holes_aside > Appender._set_aside > LocalTree.publish": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "window.jsonl < Window.extend > Appender.append_lines": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
    "window.jsonl < Window.extend > Appender.append_lines > Appender._sync": ("messages of a window", "a power cut"),
    "window.jsonl < Window.replace > Appender.replace > LocalTree.replace": (
        "a window after a compression",
        "a power cut",
    ),
    "window.jsonl < recover > Appender.set_holes_aside": (
        "messages of a window",
        "a power cut while the next writer recovers from one",
    ),
}

NEEDED_TWICE = (
    ("journal.jsonl < Results._commit > Appender.note > Appender._sync", "a result that is streamed", "a power cut"),
    (
        "journal.jsonl < Results._commit > Appender.sync_earlier > Appender._sync",
        "a result that is streamed",
        "a kill, then a power cut after a process that was at work repeats it",
    ),
)
"""Syncs that another call shares with the one of its scenario above; that call needs it, too."""

NEEDED_ELSEWHERE = {
    "session/ < Summaries.add > LocalTree.replace": (
        "a summary with facts",
        "a power cut",
        "a summary whose facts are gone is read without them; the statement is that of `LocalTree.replace`",
    ),
    "session/ < _rebuild_journal > Appender.replace > LocalTree.replace": (
        "a journal that was lost",
        "a power cut",
        "the sync of whoever looks first follows; the statement is that of `LocalTree.replace`, which windows need",
    ),
    "journal.jsonl < SessionNames.publish > LocalTree.publish_directory": (
        "the first call of a session",
        "a power cut",
        "one whose first record is torn is rebuilt; the statement is that of session.json, which is missed",
    ),
}
"""Syncs that make no difference where they are, with a scenario that has them and the reason why they are there."""
