"""``buoyline convert``."""

from collections.abc import Iterator
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import print_json, print_notices
from buoyline.inspect.session import messages_of
from buoyline.messages import Converted, convert
from buoyline.messages.jsonl import is_object
from buoyline.messages.registry import dialect_named, dialect_names


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
    values = messages_of(existing_workspace(workdir).stored(session), is_whole=is_whole)
    converted = convert([value for _, value in values], to=dialect, from_=[name for name, _ in values])
    made = converted.messages
    lines = [message if is_object(message) else dialect_named(dialect).to_json(message) for message in made]
    if as_json:
        losses = [{"message": loss.message, "what": loss.what, "why": loss.why} for loss in converted.losses]
        print_json({"dialect": dialect, "messages": lines, "system": converted.system, "losses": losses})
        return
    for line in lines:
        print_json(line)
    print_notices(_notices(converted))


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
