"""``buoyline context``: the documents of a workspace."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import F, json_option, workdir_option
from buoyline.cli.output import columns, print_json, print_lines, print_text
from buoyline.errors import DocumentError
from buoyline.management import Activation, ContextManagement, Registry, advice, explained
from buoyline.management.bodies import INLINE_KEY, NAME_KEY, is_body, is_listing, listed_in, management_in
from buoyline.management.hooks import nearest
from buoyline.management.problems import Problems, joined
from buoyline.management.spelling import Spelling, is_path, parsed, spelling_of
from buoyline.management.walking import Walker
from buoyline.messages import is_object
from buoyline.workspace import LocalWorkspace

_FOUND = 1
_STDIN = Path("-")


def _allow_option(function: F) -> F:
    return click.option(
        "--allow", "allowed", metavar="NAME", multiple=True, help="A manager, by its dotted name, that may be imported."
    )(function)


def _format_option(function: F) -> F:
    spellings = click.Choice(["json", "yaml", "toml"])
    return click.option("--format", "spelling", type=spellings, help="Of FILE.  [default: by its suffix, else json]")(
        function
    )


@click.group("context")
def context_command() -> None:
    """Keep, check and explain documents that say how a context is managed.

    Those of a workspace stand in its context_management/; others come with the package. See docs/context-management.md.

    Example: buoyline context explain coding-agent
    """


@context_command.command("put")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--new", "is_new", is_flag=True, help="Refuse a name that is taken in the workspace.")
@_format_option
@_allow_option
@workdir_option
@json_option
def put_command(
    name: str,
    file: Path,
    workdir: Path,
    spelling: Spelling | None,
    allowed: Sequence[str],
    *,
    is_new: bool,
    as_json: bool,
) -> int:
    """Keep the document in FILE under NAME; ``-`` reads what is piped in.

    It is checked first, and what stood under NAME is replaced as a whole. Of a listing, such as OpenSearch gives of all
    its documents, the one called NAME is kept.

    Exit status: 0 done, 1 the document has problems, and nothing was written.

    Example: buoyline context put token-aware-truncation policy.json
    """
    registry = Registry(LocalWorkspace(workdir), allowed=allowed)
    try:
        kept = registry.put(_document_in(_parsed(file, spelling), name), name, replace=not is_new)
    except DocumentError as error:
        return _print_problems(error, as_json=as_json)
    if as_json:
        print_json({"context_management_name": kept.name, "status": "stored"})
    else:
        print_lines([f"stored {kept.name}", *_advice_lines(kept)])
    return 0


@context_command.command("get")
@click.argument("name")
@_allow_option
@workdir_option
@json_option
def get_command(name: str, workdir: Path, allowed: Sequence[str], *, as_json: bool) -> int:
    """Print the document called NAME, as it can be put again.

    Exit status: 0 done, 1 there is none, or it has problems.

    Example: buoyline context get tool-heavy > mine.json
    """
    try:
        document = Registry(LocalWorkspace(workdir), allowed=allowed).get(name)
    except DocumentError as error:
        return _print_problems(error, as_json=as_json)
    if as_json:
        print_json(document.to_json())
    else:
        print_text(document.model_dump_json(indent=2))
    return 0


@context_command.command("list")
@workdir_option
@json_option
def list_command(workdir: Path, *, as_json: bool) -> int:
    """List the documents there are: those of the workspace, and those that come with the package.

    Exit status: 0 done, 1 some document has problems.

    Example: buoyline context list --workdir ./workspace
    """
    found = Registry(LocalWorkspace(workdir)).listed()
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        rows = [
            (one.name, "package" if one.is_built_in else "workspace", one.problem or one.description) for one in found
        ]
        print_lines(columns([("name", "from", "description"), *rows]))
    return _FOUND if any(one.problem for one in found) else 0


@context_command.command("delete")
@click.argument("name")
@workdir_option
@json_option
def delete_command(name: str, workdir: Path, *, as_json: bool) -> None:
    """Remove the document called NAME from the workspace; agents that run with it go on with it.

    Example: buoyline context delete token-aware-truncation
    """
    Registry(LocalWorkspace(workdir)).delete(name)
    if as_json:
        print_json({"context_management_name": name, "status": "deleted"})
    else:
        print_lines([f"deleted {name}"])


@context_command.command("check")
@click.argument("source", metavar="NAME|FILE")
@_format_option
@_allow_option
@workdir_option
@json_option
def check_command(
    source: str, workdir: Path, spelling: Spelling | None, allowed: Sequence[str], *, as_json: bool
) -> int:
    """Tell what is wrong with a document, and what in it is hardly meant; ``-`` reads what is piped in.

    Whole documents, single managers, activation rules, the bodies with which OpenSearch's agents are registered and
    executed, and its listings are understood. What is there as a file is taken for FILE. A note changes nothing about
    the status.

    Exit status: 0 it can be acted on, 1 it cannot.

    Example: buoyline context check policy.yaml
    """
    registry = Registry(LocalWorkspace(workdir), allowed=allowed)
    try:
        checked = _all_checked(source, registry, spelling, allowed)
    except DocumentError as error:
        return _print_problems(error, as_json=as_json)
    notes = [
        (joined(place, path), reason)
        for place, found in checked
        if isinstance(found, ContextManagement)
        for path, reason in advice(found)
    ]
    if as_json:
        print_json(
            {"valid": True, "problems": [], "notes": [{"path": path, "reason": reason} for path, reason in notes]}
        )
    else:
        verdicts = (f"{source}: {place}{': ' if place else ''}{_verdict(found)}" for place, found in checked)
        print_lines([*(f"note: {path}: {reason}" for path, reason in notes), *verdicts])
    return 0


@context_command.command("explain")
@click.argument("source", metavar="NAME|FILE")
@_format_option
@_allow_option
@workdir_option
@json_option
def explain_command(
    source: str, workdir: Path, spelling: Spelling | None, allowed: Sequence[str], *, as_json: bool
) -> int:
    """Say in words what a document does: which managers run, when, and in which order.

    Exit status: 0 done, 1 there is none, or it has problems.

    Example: buoyline context explain small-local-model
    """
    registry = Registry(LocalWorkspace(workdir), allowed=allowed)
    try:
        found = _checked(source, registry, spelling, allowed)
    except DocumentError as error:
        return _print_problems(error, as_json=as_json)
    lines = [*explained(found), *_advice_lines(found)] if isinstance(found, ContextManagement) else [_verdict(found)]
    if as_json:
        print_json({"lines": lines})
    else:
        print_lines(lines)
    return 0


def _checked(
    source: str, registry: Registry, spelling: Spelling | None, allowed: Sequence[str]
) -> ContextManagement | Activation:
    """Return what stands in the file, or else under the name, *source*."""
    if not _is_file(source):
        return registry.get(source)
    return _read(_parsed(Path(source), spelling), source, registry, allowed)


def _all_checked(
    source: str, registry: Registry, spelling: Spelling | None, allowed: Sequence[str]
) -> list[tuple[str, ContextManagement | Activation]]:
    """Return what stands there with its name; of a listing each document, and otherwise one without a name.

    Raises:
        DocumentError: It has all problems of all documents.
    """
    if not _is_file(source):
        return [("", registry.get(source))]
    raw = _parsed(Path(source), spelling)
    if not is_listing(raw):
        return [("", _read(raw, source, registry, allowed))]
    found, problems = list[tuple[str, ContextManagement | Activation]](), list[tuple[str, str]]()
    for name, document in listed_in(raw, source).items():
        try:
            found.append((name, ContextManagement.read(document, allowed=allowed, source=source)))
        except DocumentError as error:
            problems += [(joined(name, path), reason) for path, reason in error.problems]
    if problems:
        raise DocumentError(source, problems)
    return found


def _is_file(source: str) -> bool:
    """Return whether *source* is a file, or can only be meant as one: a mistyped path is no bad name."""
    return Path(source) == _STDIN or Path(source).is_file() or is_path(source)


def _read(raw: Any, source: str, registry: Registry, allowed: Sequence[str]) -> ContextManagement | Activation:
    """Return what *raw* means: a fragment, a body, or a document."""
    if is_object(raw) and set(raw) == {"activation"}:
        problems = Problems(source)
        activation = Walker(problems).activation(raw["activation"])
        problems.settle()
        return activation or Activation()
    if is_object(raw) and is_body(raw):
        return management_in(raw, registry.get) or ContextManagement()
    return ContextManagement.read(raw, allowed=allowed, source=source)


def _document_in(raw: Any, name: str) -> Any:
    """Return the document within a body that holds one, or that is called *name* in a listing.

    Raises:
        DocumentError: A body only names a document, and has nothing to put, or the listing has none of this name.
    """
    if is_listing(raw):
        listed = listed_in(raw)
        if name not in listed:
            raise DocumentError("listing", [(INLINE_KEY, f"has no document {name!r}; {nearest(name, list(listed))}")])
        return listed[name]
    if not is_object(raw) or not is_body(raw):
        return raw
    if not is_object(raw.get(INLINE_KEY)):
        raise DocumentError("document", [(NAME_KEY, "names a document; there is none in here to keep")])
    return raw[INLINE_KEY]


def _parsed(file: Path, spelling: Spelling | None) -> Any:
    try:
        content = sys.stdin.buffer.read() if file == _STDIN else file.read_bytes()
    except OSError as error:
        raise DocumentError(str(file), [("", f"cannot be read: {error.strerror}")]) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(str(file), [("", f"not UTF-8: {error}")]) from error
    return parsed(text, spelling or spelling_of(file), str(file))


def _verdict(found: ContextManagement | Activation) -> str:
    if isinstance(found, Activation):
        return f"an activation rule: runs {found.in_words()}"
    count = sum(map(len, found.hooks.values()))
    return f"a document with {count} manager{'' if count == 1 else 's'}; it can be acted on"


def _advice_lines(document: ContextManagement) -> Iterator[str]:
    return (f"note: {path}: {reason}" for path, reason in advice(document))


def _print_problems(error: DocumentError, *, as_json: bool) -> int:
    if as_json:
        problems = [{"path": path, "reason": reason} for path, reason in error.problems]
        print_json({"valid": False, "problems": problems, "notes": []})
    else:
        print_lines(
            f"{error.source}: {path}: {reason}" if path else f"{error.source}: {reason}"
            for path, reason in error.problems
        )
    return _FOUND
