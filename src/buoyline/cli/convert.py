"""``buoyline convert``."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import print_json, print_notices
from buoyline.errors import NotFoundError
from buoyline.messages import Converted, convert
from buoyline.messages.registry import dialect_named, dialect_names
from buoyline.workspace import LocalWorkspace


@click.command("convert")
@click.argument("session")
@click.option("--to", "dialect", type=click.Choice(list(dialect_names())), required=True, help="Form of the messages.")
@click.option("--all", "is_whole", is_flag=True, help="The whole history instead of the messages in the context.")
@workdir_option
@json_option
def convert_command(session: str, dialect: str, *, workdir: Any, is_whole: bool, as_json: bool) -> None:
    """Print the messages of SESSION in another dialect, one a line.

    Without --all, these are the messages in the context, including the summary. Anything that the dialect cannot
    express is reported on stderr, as is a system prompt that it sends separately. Nothing on disk changes.

    Example: buoyline convert s1 --to bedrock > s1.jsonl
    """
    workspace = existing_workspace(workdir)
    workspace.session(session)  # whose error names `buoyline sessions`
    found = asyncio.run(_messages(workspace, session, is_whole=is_whole))
    natives = [dialect_named(name).from_json(value) for name, value in found]
    converted = convert(natives, to=dialect, from_=[name for name, _ in found])
    lines = [dialect_named(dialect).to_json(message) for message in converted.messages]
    if as_json:
        losses = [{"message": loss.message, "what": loss.what, "why": loss.why} for loss in converted.losses]
        print_json({"dialect": dialect, "messages": lines, "system": converted.system, "losses": losses})
        return
    for line in lines:
        print_json(line)
    print_notices(_notices(converted))


async def _messages(workspace: LocalWorkspace, session_id: str, *, is_whole: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages, each with its dialect.

    Raises:
        NotFoundError: The session has no window.
        CorruptError: A file is not as it was written.
    """
    try:
        state = await workspace.load_window(session_id)
    except NotFoundError as error:
        if not is_whole:
            raise NotFoundError(error.kind, error.name, "--all prints its archived messages") from error
        archived = await workspace.load_messages(session_id, 0, sys.maxsize)
        if not archived:
            raise
        return archived
    if not is_whole:
        return list(state.messages)
    before = await workspace.load_messages(session_id, 0, state.first) if state.first else []
    return [*before, *state.messages[len(state.head) :]]


def _notices(converted: Converted) -> Iterator[str]:
    if converted.system:
        yield f"system prompt: {converted.system}"
    kinds = dict[tuple[str, str], dict[int, None]]()
    for loss in converted.losses:
        kinds.setdefault((loss.what, loss.why), {})[loss.message] = None
    for (what, why), messages in kinds.items():
        first = next(iter(messages))
        where = f"message {first}" if len(messages) == 1 else f"{len(messages):,} messages from {first} on"
        yield f"{where}: {what}: {why}"
