"""``buoyline convert``."""

import asyncio
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import print_json, print_text
from buoyline.errors import NotFoundError
from buoyline.messages import Converted, convert, dialect_named, dialect_names, spell
from buoyline.offloader.lines import visible
from buoyline.workspace import LocalWorkspace


@click.command("convert")
@click.argument("session")
@click.option("--to", "dialect", type=click.Choice(list(dialect_names())), required=True, help="Form of the messages.")
@click.option("--all", "is_whole", is_flag=True, help="The whole history in place of what stands in the context.")
@workdir_option
@json_option
def convert_command(session: str, dialect: str, *, workdir: Any, is_whole: bool, as_json: bool) -> None:
    """Print the messages of SESSION in another dialect, one a line.

    Without --all these are the messages in the context, the summary among them. What has no place in the dialect is
    told on stderr, and a system prompt that it sends beside the messages; nothing on disk changes.

    Example: buoyline convert s1 --to bedrock > s1.jsonl
    """
    workspace = existing_workspace(workdir)
    found = asyncio.run(_messages(workspace, session, is_whole=is_whole))
    natives = [dialect_named(name).from_json(value) for name, value in found]
    converted = convert(natives, to=dialect, from_=[name for name, _ in found])
    lines = [dialect_named(dialect).to_json(message) for message in converted.messages]
    if as_json:
        losses = [{"message": loss.message, "what": loss.what, "why": loss.why} for loss in converted.losses]
        print_json({"dialect": dialect, "messages": lines, "system": converted.system, "losses": losses})
        return
    for line in lines:
        print_text(spell(line))
    _tell(converted)


async def _messages(workspace: LocalWorkspace, session_id: str, *, is_whole: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages with the dialect of each.

    Raises:
        NotFoundError: There is no such session, or it keeps no context.
        CorruptError: What stands on disk is not what was written.
    """
    archived = workspace.session(session_id).index().messages
    try:
        state = await workspace.load_window(session_id)
    except NotFoundError:
        if not is_whole or not archived:
            raise
        return await workspace.load_messages(session_id, 0, archived)
    if not is_whole:
        return list(state.messages)
    before = await workspace.load_messages(session_id, 0, state.first) if state.first else []
    return [*before, *state.messages[len(state.head) :]]


def _tell(converted: Converted) -> None:
    if converted.system:
        click.echo(f"buoyline: system prompt: {visible(converted.system)}", err=True)
    for loss in converted.losses:
        click.echo(f"buoyline: {visible(str(loss))}", err=True)
