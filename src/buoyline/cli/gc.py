"""``buoyline gc``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import counted, print_json, print_lines
from buoyline.cli.progress import Advance, progress
from buoyline.cli.units import Duration, Size
from buoyline.workspace.retention import Departure, Retention
from buoyline.workspace.sweeping import Collection, Swept, collect

_REMAINING = 1


@click.command("gc")
@click.option("--older-than", type=Duration(), metavar="TIME", help="Sessions last active longer ago go, e.g. 30d.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Sessions beyond the N newest go.")
@click.option("--max-bytes", type=Size(), metavar="SIZE", help="The oldest sessions go until this is met, e.g. 10GB.")
@click.option("--keep-session", "kept", metavar="ID", multiple=True, help="This session stays; may be repeated.")
@click.option(
    "--grace", type=Duration(), default="24h", show_default=True, metavar="TIME", help="What is younger is not swept."
)
@click.option(
    "--unowned", is_flag=True, help="Sweep blobs, too, that no session has referred to since they were stored."
)
@click.option(
    "--yes/--dry-run", "is_meant", default=False, help="Do it, or only say what would go.  [default: dry-run]"
)
@workdir_option
@json_option
def gc_command(  # noqa: PLR0917 - click passes options by name
    older_than: float | None,
    keep: int | None,
    max_bytes: int | None,
    kept: Sequence[str],
    grace: float,
    workdir: Path,
    *,
    unowned: bool,
    is_meant: bool,
    as_json: bool,
) -> int:
    """Remove old sessions, and payloads that nobody needs.

    This deletes for good, so it only says what would go unless --yes is given. Each limit alone lets sessions go.
    Without any, all stay, and only leftovers of crashes and payloads of sessions that are gone go. A payload that a
    session refers to never goes. A session that cannot be read stops everything; one that is in use stays.

    Exit status: 0 done, 1 nothing could be removed safely, or not all that was to go.

    Example: buoyline gc --older-than 30d --keep-session release-7 --yes
    """
    workspace = existing_workspace(workdir)
    retention = Retention(max_age_s=older_than, max_sessions=keep, max_bytes=max_bytes, kept=frozenset(kept))
    with progress("gc") as bar:
        found = collect(
            workspace,
            retention,
            grace_s=grace,
            unowned=unowned,
            dry_run=not is_meant,
            on_progress=None if bar is None else Advance(bar, "gc").more,
        )
    if as_json:
        print_json(_fields(found))
    else:
        print_lines(_in_words(found, max_bytes))
    return _REMAINING if found.locked else 0


def _fields(found: Collection) -> dict[str, Any]:
    return {
        "dry_run": found.is_dry_run,
        "freed_bytes": found.freed_bytes,
        "session_bytes": found.session_bytes,
        "sessions": [_session_fields(departure) for departure in found.sessions],
        **{
            name: [dataclasses.asdict(swept) for swept in getattr(found, name)]
            for name in ("blobs", "leftovers", "young", "unowned")
        },
        "locked": list(found.locked),
    }


def _session_fields(departure: Departure) -> dict[str, Any]:
    session = departure.session
    return {
        "id": session.session_id,
        "reason": departure.reason,
        "last_active": session.last_active,
        "size_bytes": session.size_bytes,
    }


def _in_words(found: Collection, max_bytes: int | None) -> Iterator[str]:
    for departure in found.sessions:
        session = departure.session
        facts = f"{session.size_bytes:,} bytes, last active {session.last_active}, over the limit of {departure.reason}"
        yield f"session   {session.session_id}: {facts}"
    for kind, swept in (("blob", found.blobs), ("leftover", found.leftovers)):
        yield from (f"{kind:<8}  {one.path}: {one.size_bytes:,} bytes" for one in swept)
    yield from (
        f"locked    {session_id}: a writer is at work, so it stays; repeat later" for session_id in found.locked
    )
    yield from _what_stays(found, max_bytes)
    going = {"session": found.sessions, "blob": found.blobs, "leftover": found.leftovers}
    if not any(going.values()):
        yield "nothing was removed" if found.locked else "nothing to remove"
        return
    verb = "would be freed; --yes removes this" if found.is_dry_run else "freed"
    counts = ", ".join(counted(len(what), name) for name, what in going.items())
    yield f"{counts}: {found.freed_bytes:,} bytes {verb}"


def _what_stays(found: Collection, max_bytes: int | None) -> Iterator[str]:
    if found.young:
        yield f"{_sum(found.young)}, kept for now: nobody refers to them, but they are younger than --grace"
    if found.unowned:
        yield f"{_sum(found.unowned)}, kept: whoever stored them alone may use them; --unowned lets them go"
    if max_bytes is not None and found.session_bytes > max_bytes:
        yield f"the sessions that stay take {found.session_bytes:,} bytes, more than {max_bytes:,}"


def _sum(swept: Sequence[Swept]) -> str:
    return f"{counted(len(swept), 'blob')} of {sum(one.size_bytes for one in swept):,} bytes"
