"""``buoyline diff``."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, local_time, print_answer
from buoyline.inspect.diff import Difference, SeenMessage, Sentence, difference

_HEADINGS: Sequence[str | int] = ("", "role", "tool", "tokens", "transcript", "begins")


@click.command("diff")
@click.argument("session")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@workdir_option
@json_option
def diff_command(session: str, number: int, workdir: Path, *, as_json: bool) -> None:
    """Show what the model saw before and after compaction N.

    N counts the compactions of SESSION from 1. The answer lists the messages that were archived and those that were
    kept, the summary that replaced the archived ones, and the lines that each of its sentences cites. Messages are
    numbered from 0 over the whole session; `buoyline show SESSION --messages A-B` and `buoyline read` show all of them.
    Nothing is written.

    Example: buoyline diff s1 2 --workdir ./workspace
    """
    found = difference(existing_workspace(workdir), session, number)
    print_answer(asdict(found), _in_words(found), as_json=as_json)


def _in_words(found: Difference) -> Iterator[str]:
    summary = found.summary
    made = filter(None, (str(summary.get("summarizer", "")), local_time(str(summary.get("created_at", "")))))
    tokens = f"{summary.get('source_tokens', 0):,} tokens in {summary.get('tokens', 0):,}"
    yield ", ".join([f"compaction {found.number} of {found.session_id}", *made, tokens] if summary else [])
    yield from _messages("archived", found.left)
    yield from _messages("kept in the context", (*found.head, *found.stayed))
    yield ""
    if summary:
        number = summary["n"] + 1
        yield f"summary in their place; `buoyline show {found.session_id} --summary {number}` prints it whole"
        yield from _sentences(found.sentences)
        yield ""
        yield f"unverified claims: {', '.join(map(str, summary.get('unverified') or ['none']))}"
    else:
        yield "a notice is in their place"


def _messages(title: str, messages: Sequence[SeenMessage]) -> Iterator[str]:
    yield ""
    yield f"{title}: {counted(len(messages), 'message')}"
    if messages:
        yield from columns([_HEADINGS, *map(_row, messages)])


def _row(message: SeenMessage) -> Sequence[str | int]:
    lines = "in the context" if message.lines is None else f"{message.lines[0]}-{message.lines[1]}"
    # The stub of an offloaded result would only repeat its path.
    said = f"offloaded to {', '.join(message.offloaded)}" if message.offloaded else message.begins
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
