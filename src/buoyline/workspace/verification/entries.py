"""What frameworks keep under keys of their own, in ``storage/``: each key's content against what its facts say.

Source: docs/format.md, "storage/" and "Verify".
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from buoyline.messages import is_object
from buoyline.workspace import layout
from buoyline.workspace._files import Tree
from buoyline.workspace.verification.findings import Finding, finding
from buoyline.workspace.verification.inspection import document_in, faults_of, leftover, refusals
from buoyline.workspace.verification.probe import Probe

_ATTEMPTS = 3


def scopes_of(tree: Tree, names: Collection[str] | None) -> list[str]:
    """Return the directories of the scopes in ``storage/``; a directory without facts is the agent's own.

    Args:
        tree: Of the workspace.
        names: Of the scopes to look at; None for all there are.

    Raises:
        StorageError: The file system refused.
    """
    if not tree.is_directory(layout.ENTRIES):
        return []
    found = [f"{layout.ENTRIES}/{name}" for name in tree.names(layout.ENTRIES) if names is None or name in names]
    return [directory for directory in found if tree.is_directory(f"{directory}/{layout.ENTRY_FACTS}")]


def check_entries(tree: Tree, directory: str, probe: Probe, *, hashes: bool) -> list[Finding]:
    """Check what is in the scope *directory*; with *hashes* also whether the contents are what was written."""
    findings: list[Finding] = []
    named = set[str]()
    with refusals(tree, findings):
        before = tree.entries(directory)  # first, so that what a writer adds meanwhile is not taken for a leftover
        for path in (directory, f"{directory}/{layout.ENTRY_FACTS}"):
            for name, status in tree.entries(path).items():
                if name.startswith(layout.TEMPORARY_PREFIX):
                    findings.append(leftover(f"{path}/{name}"))
                elif name != layout.ENTRY_FACTS:
                    findings += faults_of(f"{path}/{name}", status)
        for name in tree.names(f"{directory}/{layout.ENTRY_FACTS}"):
            facts = f"{directory}/{layout.ENTRY_FACTS}/{name}"
            findings += _checked(tree, facts, probe, hashes=hashes)
            named.update(found["file"] for found in _facts(tree, facts))
        for name in before:
            if name not in {*named, layout.ENTRY_FACTS} and tree.size(f"{directory}/{name}") is not None:
                findings.append(finding("leftover", f"{directory}/{name}", "no key has this content; nobody reads it"))
    return findings


def _checked(tree: Tree, name: str, probe: Probe, *, hashes: bool, attempts: int = _ATTEMPTS) -> list[Finding]:
    """Check the content that the facts in file *name* are of; once more where a writer has replaced them since."""
    findings: list[Finding] = []
    before = tree.status(name)
    with refusals(tree, findings):
        facts = next(_facts(tree, name), None)
        if facts is None:
            reason = "says of no content what it is; what the key had is lost, so restore it from a copy"
            findings += [] if tree.size(name) is None else [finding("bad-record", name, reason)]
        else:
            content = f"{name.partition(f'/{layout.ENTRY_FACTS}/')[0]}/{facts['file']}"
            findings += _compared(tree, content, facts, probe, hashes=hashes)
    if findings and attempts > 1 and tree.status(name) != before:
        return _checked(tree, name, probe, hashes=hashes, attempts=attempts - 1)
    return findings


def _compared(tree: Tree, name: str, facts: Mapping[str, Any], probe: Probe, *, hashes: bool) -> Iterator[Finding]:
    size_bytes = tree.size(name)
    if size_bytes is None:
        yield finding("missing-file", name, f"is gone, and key {facts['key']!r} has it; restore it from a copy")
    elif size_bytes < facts["bytes"]:
        reason = f"has {size_bytes:,} bytes of the {facts['bytes']:,} that were written; restore it from a copy"
        yield finding("short-file", name, reason)
    elif size_bytes > facts["bytes"] or (hashes and probe.file(tree, name).sha256 != facts["sha256"]):
        yield finding("changed-bytes", name, "is not what was written; restore it from a copy")


def _facts(tree: Tree, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the facts in file *name*, unless there are none of our form."""
    if tree.size(name) is None:
        return
    with tree.open(name) as handle:
        found = document_in(handle)
    if is_object(found) and isinstance(found.get("bytes"), int):
        texts = (found.get("key"), found.get("file"), found.get("sha256"))
        if all(isinstance(text, str) for text in texts) and "/" not in found["file"] and found["file"]:
            yield found
