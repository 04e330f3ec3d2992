"""``buoyline diff``."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, local_time, print_answer, progress
from buoyline.inspect.diff import Difference, SeenMessage, Sentence, difference

_HEADINGS: Sequence[str | int] = ("", "role", "tool", "tokens", "transcript", "begins")


@click.command("diff")
@click.argument("session")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@workdir_option
@json_option
def diff_command(session: str, number: int, workdir: Path, *, as_json: bool) -> None:
    """Show what the model saw before and after compaction N.

    N counts the compressions of SESSION from 1. The answer lists the messages that were archived and those that were
    kept, the summary that replaced the archived ones, and the lines that each of its sentences cites. Messages are
    numbered from 0 over the whole session; `buoyline show SESSION --messages A-B` and `buoyline read` show all of them.
    Nothing is written.

    Example: buoyline diff s1 2 --workdir ./workspace
    """
    workspace = existing_workspace(workdir)
    with progress("messages", of_bytes=False) as advance:
        found = difference(workspace, session, number, on_message=advance)
    print_answer(asdict(found), _in_words(found), as_json=as_json)


def _in_words(found: Difference) -> Iterator[str]:
    summary, (first, end) = found.summary, found.summary["messages"]
    title = f"summary {summary['n']} of {found.session_id}"
    made = filter(None, (title, str(summary.get("summarizer", "")), local_time(str(summary.get("created_at", "")))))
    tokens = f"{summary.get('source_tokens', 0):,} tokens in {summary.get('tokens', 0):,}"
    yield f"{', '.join(made)}: messages {first}-{end - 1}, {tokens}"
    yield from _messages("archived", found.left)
    if found.stayed is None:
        yield ""
        yield "which messages were kept is not on disk, or they were shrunk since"
    else:
        yield from _messages("kept in the context", (*found.head, *found.stayed))
    yield ""
    yield f"summary in their place; `buoyline show {found.session_id} --summary {summary['n']}` prints it whole"
    yield from _sentences(found.sentences)
    yield ""
    yield f"unverified claims: {', '.join(map(str, summary.get('unverified') or ['none']))}"


def _messages(title: str, messages: Sequence[SeenMessage]) -> Iterator[str]:
    yield ""
    yield f"{title}: {counted(len(messages), 'message')}"
    if messages:
        yield from columns([_HEADINGS, *map(_row, messages)])


def _row(message: SeenMessage) -> Sequence[str | int]:
    lines = "in the window" if message.lines is None else f"{message.lines[0]}-{message.lines[1]}"
    # The stub of an offloaded result would only repeat its path.
    files = [
        f"offloaded to {one.view or one.path}, {counted(one.lines, 'line')}, {one.bytes:,} bytes"
        for one in message.offloaded
    ]
    kept = "(also in the prefix) " if message.stands_again else ""
    said = kept + ("; ".join(files) or message.begins)
    return f"{message.message}", message.role, message.tool, message.tokens, lines, said


def _sentences(sentences: Sequence[Sentence]) -> Iterator[str]:
    field = ""
    for sentence in sentences:
        if sentence.field != field:
            field = sentence.field
            yield field
        yield f"  {sentence.text}"
        if not sentence.citations:
            yield "    (no citation)"
        for cited in sentence.citations:
            lines = f"{cited.start}" if cited.start == cited.end else f"{cited.start}-{cited.end}"
            yield f"    {cited.path}:{lines}  {cited.begins if cited.is_there else '(these lines are not there)'}"
