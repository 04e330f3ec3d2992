"""``buoyline context``: context-management documents."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import click

from buoyline.cli.options import allow_option, json_option, workdir_option
from buoyline.cli.output import (
    columns,
    counted,
    print_answer,
    print_json,
    print_lines,
    print_notices,
    print_problems,
    print_text,
    terminal_width,
)
from buoyline.errors import DocumentError
from buoyline.management import ContextManagement, Registry
from buoyline.management.model import DocumentReader
from buoyline.management.opensearch import (
    INLINE_KEY,
    NAME_KEY,
    OpenSearchFinding,
    is_body,
    is_listing,
    listed_in,
    management_in,
    silent_hooks,
    to_opensearch,
)
from buoyline.management.registry import Spelling, document_in_file, document_text, is_path, parsed
from buoyline.management.rules import Activation, Problems, joined, nearest
from buoyline.management.settings import advice, explained
from buoyline.messages.jsonl import is_object
from buoyline.workspace import LocalWorkspace

_FOUND = 1
_STDIN = Path("-")
_SHOWN_PROBLEMS = 50

P = ParamSpec("P")


_format_option = click.option(
    "--format",
    "spelling",
    type=click.Choice(["json", "yaml", "toml"]),
    help="Of FILE.  [default: by its suffix, else json]",
)


def _with_problems(command: Callable[P, int]) -> Callable[P, int]:
    """Let *command* print the problems of an unusable document, and return 1."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> int:
        try:
            return command(*arguments, **options)
        except DocumentError as error:
            problems = [{"path": path, "reason": reason} for path, reason in error.problems]
            lines = [f"{path}: {reason}" if path else reason for path, reason in error.problems[:_SHOWN_PROBLEMS]]
            if more := len(problems) - len(lines):
                lines.append(f"{more:,} problems more; --json has all")
            answer = {"valid": False, "problems": problems, "notes": []}
            is_json = bool(options["as_json"])
            print_answer(answer, (f"{error.source}: {line}" for line in lines), as_json=is_json)
            return _FOUND

    return run


@click.group("context", no_args_is_help=False)
def context_command() -> None:
    """Store, check and explain context-management documents.

    Such a document says how a context is managed. The documents of a workspace are in its context_management/; others
    come with the package. See docs/context-management.md.

    Example: buoyline context explain coding-agent
    """


@context_command.command("put")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--new", "is_new", is_flag=True, help="Refuse a name that is taken in the workspace.")
@_format_option
@allow_option
@workdir_option
@json_option
@_with_problems
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
    """Store the document in FILE under NAME; ``-`` reads standard input.

    The document is checked first, and replaces an existing one of that name. If FILE is a listing of documents, as
    OpenSearch returns it, the one called NAME is stored.

    Exit status: 0 done, 1 the document has problems, and nothing was written.

    Example: buoyline context put token-aware-truncation policy.json
    """
    registry = Registry(LocalWorkspace(workdir), allowed=allowed)
    kept = registry.put(_document_in(_parsed(file, spelling), name), name, replace=not is_new)
    if as_json:
        print_json({"context_management_name": kept.name, "status": "stored"})
    else:
        print_lines([f"stored {kept.name}", *_advice_lines(kept)])
    return 0


@context_command.command("get")
@click.argument("name")
@click.option(
    "--opensearch",
    is_flag=True,
    help="In the form that OpenSearch runs; stderr names the entries that it cannot run, which are left out.",
)
@allow_option
@workdir_option
@json_option
@_with_problems
def get_command(name: str, workdir: Path, allowed: Sequence[str], *, opensearch: bool, as_json: bool) -> int:
    """Print the document called NAME in the form that put takes.

    With --opensearch, hooks are in capitals, since OpenSearch never runs others. An entry that it would run more often
    than the document says, or with other settings, is left out; see `context check --opensearch`.

    Exit status: 0 done; 1 there is no such document, it has problems, or OpenSearch runs some of it differently.

    Example: buoyline context get tool-heavy --opensearch > tool-heavy.json
    """
    document = Registry(LocalWorkspace(workdir), allowed=allowed).get(name)
    if not opensearch:
        if as_json:
            print_json(document.to_json())
        else:
            print_text(document.model_dump_json(indent=2))
        return 0
    spelled, findings = to_opensearch(document)
    print_notices(f"OpenSearch: {one.path}{' (left out)' * one.is_left_out}: {one.reason}" for one in findings)
    if not spelled["hooks"]:
        return print_problems(["OpenSearch can run none of it, and takes no document without hooks"])
    if as_json:
        print_json(spelled)
    else:
        print_text(json.dumps(spelled, indent=2, ensure_ascii=False))
    return _FOUND if findings else 0


@context_command.command("list")
@workdir_option
@json_option
def list_command(workdir: Path, *, as_json: bool) -> int:
    """List the documents of the workspace, and those that come with the package.

    Exit status: 0 done, 1 a document has problems.

    Example: buoyline context list --workdir ./workspace
    """
    found = Registry(LocalWorkspace(workdir)).listed()
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        rows = [
            (one.name, "package" if one.is_built_in else "workspace", one.problem or one.description) for one in found
        ]
        print_lines(columns([("name", "from", "description"), *rows], terminal_width()))
    return _FOUND if any(one.problem for one in found) else 0


@context_command.command("delete")
@click.argument("name")
@workdir_option
@json_option
def delete_command(name: str, workdir: Path, *, as_json: bool) -> None:
    """Remove the document called NAME from the workspace; running agents keep it.

    Example: buoyline context delete token-aware-truncation
    """
    Registry(LocalWorkspace(workdir)).delete(name)
    if as_json:
        print_json({"context_management_name": name, "status": "deleted"})
    else:
        print_lines([f"deleted {name}"])


@context_command.command("check")
@click.argument("source", metavar="NAME|FILE")
@click.option(
    "--opensearch", is_flag=True, help="Also say what OpenSearch never runs, always runs, or runs differently."
)
@_format_option
@allow_option
@workdir_option
@json_option
@_with_problems
def check_command(
    source: str,
    workdir: Path,
    spelling: Spelling | None,
    allowed: Sequence[str],
    *,
    opensearch: bool,
    as_json: bool,
) -> int:
    """Validate a document and warn about likely mistakes; - reads it from a pipe.

    It takes whole documents, single managers, activation rules, the request bodies that register and execute
    OpenSearch's agents, and OpenSearch's listings. If a file of that name exists, it is used. Notes do not
    change the exit status.

    Exit status: 0 valid; 1 not valid, or with --opensearch: OpenSearch runs some of it differently.

    Example: buoyline context check policy.yaml --opensearch
    """
    registry = Registry(LocalWorkspace(workdir), allowed=allowed)
    raw = _parsed(Path(source), spelling) if _is_file(source) else None
    checked = _all_checked(source, raw, registry, allowed)
    notes = [
        (joined(place, path), reason)
        for place, found in checked
        if isinstance(found, ContextManagement)
        for path, reason in advice(found)
    ]
    elsewhere = _opensearch_findings(raw, checked) if opensearch else []
    answer = {"valid": True, "problems": [], "notes": [{"path": path, "reason": reason} for path, reason in notes]}
    if opensearch:
        answer["opensearch"] = [asdict(one) for one in elsewhere]
    verdicts = (f"{source}: {place}{': ' if place else ''}{_verdict(found)}" for place, found in checked)
    lines = (f"OpenSearch: {one.path}: {one.reason}" for one in elsewhere)
    print_answer(answer, [*(f"note: {path}: {reason}" for path, reason in notes), *lines, *verdicts], as_json=as_json)
    return _FOUND if elsewhere else 0


@context_command.command("explain")
@click.argument("source", metavar="NAME|FILE")
@_format_option
@allow_option
@workdir_option
@json_option
@_with_problems
def explain_command(
    source: str, workdir: Path, spelling: Spelling | None, allowed: Sequence[str], *, as_json: bool
) -> int:
    """Explain a document: which managers run, when, and in which order.

    Exit status: 0 done, 1 there is no such document, or it has problems.

    Example: buoyline context explain small-local-model
    """
    registry = Registry(LocalWorkspace(workdir), allowed=allowed)
    if _is_file(source):
        found = _read(_parsed(Path(source), spelling), source, registry, allowed)
    else:
        found = registry.get(source)
    lines = [*explained(found), *_advice_lines(found)] if isinstance(found, ContextManagement) else [_verdict(found)]
    print_answer({"lines": lines}, lines, as_json=as_json)
    return 0


def _all_checked(
    source: str, raw: Any, registry: Registry, allowed: Sequence[str]
) -> list[tuple[str, ContextManagement | Activation]]:
    """Return the documents in a source with their names; without a name unless the source is a listing.

    Raises:
        DocumentError: It has all problems of all documents.
    """
    if not _is_file(source):
        return [("", registry.get(source))]
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
    """Return whether *source* is a file, or only makes sense as one: a mistyped path is not a bad name."""
    return Path(source) == _STDIN or Path(source).is_file() or is_path(source)


def _read(raw: Any, source: str, registry: Registry, allowed: Sequence[str]) -> ContextManagement | Activation:
    """Return what *raw* holds: an activation rule, a request body with a document, or a document."""
    if is_object(raw) and set(raw) == {"activation"}:
        problems = Problems(source)
        activation = DocumentReader(problems).activation(raw["activation"])
        problems.settle()
        return activation or Activation()
    if is_object(raw) and is_body(raw):
        return management_in(raw, registry.get, allowed=allowed) or ContextManagement()
    return ContextManagement.read(raw, allowed=allowed, source=source)


def _document_in(raw: Any, name: str) -> Any:
    """Return the document in a request body, or the one called *name* in a listing.

    Raises:
        DocumentError: The body only names a document, or the listing has none of this name.
    """
    if is_listing(raw):
        listed = listed_in(raw)
        if name not in listed:
            raise DocumentError("listing", [(INLINE_KEY, f"has no document {name!r}; {nearest(name, list(listed))}")])
        return listed[name]
    if not is_object(raw) or not is_body(raw):
        return raw
    if not is_object(raw.get(INLINE_KEY)):
        raise DocumentError("document", [(NAME_KEY, "only names a document, and has none to store")])
    return raw[INLINE_KEY]


def _parsed(file: Path, spelling: Spelling | None) -> Any:
    if file != _STDIN:
        return document_in_file(file, spelling)
    return parsed(document_text(sys.stdin.buffer, "-"), spelling or "json", "-")


def _opensearch_findings(
    raw: Any, checked: Sequence[tuple[str, ContextManagement | Activation]]
) -> list[OpenSearchFinding]:
    """Return what OpenSearch would do differently with the *checked* documents; *raw* is how a file spells them."""
    spelled = listed_in(raw) if is_listing(raw) else {"": raw}
    found = list[OpenSearchFinding]()
    for place, document in checked:
        if isinstance(document, ContextManagement):
            silent = silent_hooks(spelled[place]) if is_object(spelled[place]) else []
            both = [*silent, *to_opensearch(document)[1]]
            found += [replace(one, path=joined(place, one.path)) for one in both]
    return found


def _verdict(found: ContextManagement | Activation) -> str:
    if isinstance(found, Activation):
        return f"an activation rule: runs {found.in_words()}"
    count = sum(map(len, found.hooks.values()))
    return f"a document with {counted(count, 'manager')}; it can be acted on"


def _advice_lines(document: ContextManagement) -> Iterator[str]:
    return (f"note: {path}: {reason}" for path, reason in advice(document))
