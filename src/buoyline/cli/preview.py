"""``buoyline preview``."""

from pathlib import Path

import click

from buoyline.cli.options import json_option
from buoyline.cli.output import print_json, print_text
from buoyline.offloader import StoredResult, stub
from buoyline.offloader.lines import visible
from buoyline.tokens import default_counter


@click.command("preview")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--max-tokens", type=click.IntRange(min=1), default=1_000, show_default=True, help="Size of the stub.")
@json_option
def preview_command(file: Path, max_tokens: int, *, as_json: bool) -> None:
    """Show what an agent would see in place of FILE.

    That is, if a tool had printed it. The notice with the path stands even where it alone takes more than
    --max-tokens. Bytes that are not UTF-8 are shown as replacement characters.

    Example: buoyline preview build.log --max-tokens 300
    """
    text = file.read_bytes().decode("utf-8", "replace")
    counter = default_counter()
    shown = stub(text, StoredResult(str(file.absolute()), file.name, "", 0), max_tokens, counter)
    if as_json:
        print_json({"path": str(file.absolute()), "tokens": counter.count(shown), "text": shown})
    else:
        print_text("\n".join(map(visible, shown.split("\n"))))
