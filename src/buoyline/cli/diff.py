"""``buoyline diff``."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, cut, local_time, print_answer, progress
from buoyline.inspect.diff import Difference, SeenMessage, difference

_HEADINGS: Sequence[str | int] = ("", "role", "tool", "tokens", "transcript", "begins")
_SHOWN_MESSAGES = 20
_SHOWN_SENTENCES = 100
_SENTENCE_CHARS = 161
_TOOL_CHARS = 31
_SHOWN_CLAIMS = 20


@click.command("diff")
@click.argument("session")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@click.option("--full", is_flag=True, help="All messages, and every sentence as a whole.")
@workdir_option
@json_option
def diff_command(session: str, number: int, workdir: Path, *, full: bool, as_json: bool) -> None:
    """Show what the model saw before and after compression N.

    N counts the compressions of SESSION from 1. The answer lists the messages that were archived and those that were
    kept, the summary that replaced the archived ones, and the lines that each of its sentences cites. Messages are
    numbered from 0 over the whole session; `buoyline show SESSION --messages A-B` and `buoyline read` show all of them.
    The last lines name what is not on disk. Nothing is written.

    Example: buoyline diff s1 2 --workdir ./workspace
    """
    workspace = existing_workspace(workdir)
    with progress("messages", of_bytes=False) as advance:
        found = difference(workspace, session, number, on_message=advance)
    print_answer(asdict(found), _in_words(found, full=full), as_json=as_json)


def _in_words(found: Difference, *, full: bool) -> Iterator[str]:
    summary, (first, end) = found.summary, found.summary["messages"]
    title = f"summary {summary['n']} of {found.session_id}"
    made = filter(None, (title, str(summary.get("summarizer", "")), local_time(str(summary.get("created_at", "")))))
    tokens = f"{summary.get('source_tokens', 0):,} tokens in {summary.get('tokens', 0):,}"
    yield f"{', '.join(made)}: messages {first}-{end - 1}, {tokens}"
    yield from _balance(found)
    yield from _messages("archived", found.left, full=full)
    if found.stayed is not None:
        yield from _messages("kept in the context", (*found.head, *found.stayed), full=full)
    yield from _sentences(found, full=full)
    yield from _claims(found, full=full)
    yield ""
    yield from (f"not on disk: {unknown}" for unknown in found.unknown)


def _balance(found: Difference) -> Iterator[str]:
    """Yield the size of the context before and after."""
    if found.tokens_before is None or found.tokens_after is None or found.stayed is None:
        return
    less = 1 - found.tokens_after / max(found.tokens_before, 1)
    replaced = "" if found.previous is None else f", summary {found.previous['n']}"
    again = len(found.head) + sum(message.stands_again for message in found.left)
    yield (
        f"before {found.tokens_before:>9,} tokens: {counted(len(found.head), 'prefix message')}{replaced}, "
        f"{len(found.left):,} to archive, {len(found.stayed):,} to keep"
    )
    yield (
        f"after  {found.tokens_after:>9,} tokens ({less:.0%} less): {counted(again, 'prefix message')}, "
        f"summary {found.summary['n']}, {len(found.stayed):,} kept"
    )
    yield f"       {found.fixed_tokens:>9,} tokens of both are system prompt and tools"


def _messages(title: str, messages: Sequence[SeenMessage], *, full: bool) -> Iterator[str]:
    yield ""
    yield f"{title}: {counted(len(messages), 'message')}"
    if not messages:
        return
    rows = [_HEADINGS, *map(_row, messages)]
    left_out = len(messages) - _SHOWN_MESSAGES
    if left_out > 0 and not full:  # the first and the last are shown
        half = 1 + _SHOWN_MESSAGES // 2
        rows[half : half + left_out] = [("", "", "", "", "", f"… {left_out:,} more; --full lists them")]
    yield from columns(rows)


def _row(message: SeenMessage) -> Sequence[str | int]:
    lines = "in the window" if message.lines is None else f"{message.lines[0]}-{message.lines[1]}"
    # The stub of an offloaded result would only repeat its path.
    files = [
        f"offloaded to {one.view or one.path}, {counted(one.lines, 'line')}, {one.bytes:,} bytes"
        for one in message.offloaded
    ]
    kept = "(also in the prefix) " if message.stands_again else ""
    said = kept + ("; ".join(files) or message.begins)
    return f"{message.message}", message.role, cut(message.tool, _TOOL_CHARS), message.tokens, lines, said


def _sentences(found: Difference, *, full: bool) -> Iterator[str]:
    number = found.summary["n"]
    yield ""
    yield f"summary in their place; `buoyline show {found.session_id} --summary {number}` prints it as the model saw it"
    shown = found.sentences if full else found.sentences[:_SHOWN_SENTENCES]
    field = ""
    for sentence in shown:
        if sentence.field != field:
            field = sentence.field
            yield field
        yield f"  {sentence.text if full else cut(sentence.text, _SENTENCE_CHARS)}"
        if not sentence.citations:
            yield "    (no citation)"
        for cited in sentence.citations:
            lines = f"{cited.start}" if cited.start == cited.end else f"{cited.start}-{cited.end}"
            yield f"    {cited.path}:{lines}  {cited.begins if cited.is_there else '(these lines are not there)'}"
    if len(found.sentences) > len(shown):
        yield f"… {len(found.sentences) - len(shown):,} more sentences; --full lists them"


def _claims(found: Difference, *, full: bool) -> Iterator[str]:
    unverified = [str(claim) for claim in found.summary.get("unverified", ())]
    shown = unverified if full else unverified[:_SHOWN_CLAIMS]
    more = "" if len(shown) == len(unverified) else f", … {len(unverified) - len(shown):,} more"
    yield ""
    yield f"unverified claims: {', '.join(shown)}{more}" if unverified else "unverified claims: none"
