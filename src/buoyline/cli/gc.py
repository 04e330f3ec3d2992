"""``buoyline gc``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import Duration, Size, counted, duration_in_words, how_long_ago, print_answer, progress
from buoyline.maintenance.gc import ExpiredSession, FileUsage, GcReport, Retention, collect

_REMAINING = 1


@click.command("gc")
@click.option(
    "--older-than", type=Duration(), metavar="TIME", help="Remove sessions that were last active longer ago, e.g. 30d."
)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Remove all but the N newest sessions.")
@click.option(
    "--max-bytes",
    type=Size(),
    metavar="SIZE",
    help="Remove the oldest sessions until the rest takes at most this, e.g. 10GB.",
)
@click.option("--keep-session", "kept", metavar="ID", multiple=True, help="Keep this session; may be repeated.")
@click.option(
    "--grace",
    type=Duration(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Keep anything modified within this time.",
)
@click.option("--unowned", is_flag=True, help="Also remove blobs that no session ever referred to.")
@click.option(
    "--yes/--dry-run",
    "is_confirmed",
    default=False,
    help="Remove, or only print what would be removed.  [default: dry-run]",
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
    is_confirmed: bool,
    as_json: bool,
) -> int:
    """Remove old sessions, crash leftovers and orphaned blobs.

    Without --yes, it only prints what would be removed: this cannot be undone. A session is removed if it exceeds any
    limit. Without limits, only crash leftovers and orphaned blobs are removed. A blob that a session refers to is
    always kept. If a session cannot be read, nothing is removed; a session in use is kept.

    Exit status: 0 done, 1 nothing could be removed safely, or a session in use was kept.

    Example: buoyline gc --older-than 30d --keep-session release-7 --yes
    """
    workspace = existing_workspace(workdir)
    retention = Retention(max_age_s=older_than, max_sessions=keep, max_bytes=max_bytes, kept=frozenset(kept))
    with progress("gc") as advance:
        found = collect(
            workspace,
            retention,
            grace_s=grace,
            unowned=unowned,
            dry_run=not is_confirmed,
            on_progress=None if advance is None else advance.more,
        )
    print_answer(_fields(found), _in_words(found, retention), as_json=as_json)
    return _REMAINING if found.locked else 0


def _fields(found: GcReport) -> dict[str, Any]:
    return {
        "dry_run": found.is_dry_run,
        "freed_bytes": found.freed_bytes,
        "session_bytes": found.session_bytes,
        "sessions": [
            {
                "id": expired.session.session_id,
                "reason": expired.reason,
                "last_active": expired.session.last_active,
                "size_bytes": expired.session.size_bytes,
            }
            for expired in found.sessions
        ],
        **{
            name: [dataclasses.asdict(swept) for swept in getattr(found, name)]
            for name in ("blobs", "leftovers", "young", "unowned")
        },
        "locked": list(found.locked),
    }


def _in_words(found: GcReport, retention: Retention) -> Iterator[str]:
    for expired in found.sessions:
        session = expired.session
        active = how_long_ago(session.last_active)
        facts = f"{session.size_bytes:,} bytes, last active {active}, {_reason(expired, retention)}"
        yield f"session   {session.session_id}: {facts}"
    for kind, swept in (("blob", found.blobs), ("leftover", found.leftovers)):
        yield from (f"{kind:<8}  {one.path}: {one.size_bytes:,} bytes" for one in swept)
    yield from (
        f"locked    {session_id}: a writer is at work, so it is kept; repeat later" for session_id in found.locked
    )
    yield from _kept_in_words(found, retention.max_bytes)
    going = {"session": found.sessions, "blob": found.blobs, "leftover": found.leftovers}
    if not any(going.values()):
        yield "nothing was removed" if found.locked else "nothing to remove"
        return
    verb = "would be freed; --yes removes this" if found.is_dry_run else "freed"
    counts = ", ".join(counted(len(what), name) for name, what in going.items())
    yield f"{counts}: {found.freed_bytes:,} bytes {verb}"


def _reason(expired: ExpiredSession, retention: Retention) -> str:
    match expired.reason:
        case "age":
            return f"older than {duration_in_words(retention.max_age_s or 0)}"
        case "count":
            return f"not among the {counted(retention.max_sessions or 0, 'newest session')}"
        case _:
            return f"the oldest of more than {retention.max_bytes or 0:,} bytes"


def _kept_in_words(found: GcReport, max_bytes: int | None) -> Iterator[str]:
    if found.young:
        yield f"{_sum(found.young)}, kept for now: no session refers to them, but they were modified within --grace"
    if found.unowned:
        yield f"{_sum(found.unowned)}, kept: no session ever referred to them; --unowned removes them"
    if max_bytes is not None and found.session_bytes > max_bytes:
        yield f"the sessions that are kept take {found.session_bytes:,} bytes, more than {max_bytes:,}"


def _sum(swept: Sequence[FileUsage]) -> str:
    return f"{counted(len(swept), 'blob')} of {sum(one.size_bytes for one in swept):,} bytes"
