"""Documents in the spelling that OpenSearch runs, and the differences of what it runs. Request bodies of its agents.

Source: the code of OpenSearch's ml-commons, versions 3.5 to 3.8. Its page promises more: the code compares hooks in
capitals only, drops unknown rules, and shows a hook less than the whole context.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from buoyline.errors import DocumentError
from buoyline.management.managers import OutputTruncation, SlidingWindow, Summarization
from buoyline.management.model import ContextManagement, ManagerEntry
from buoyline.management.rules import Hook, joined
from buoyline.messages.jsonl import is_object

OPENSEARCH_HOOKS: Final[Mapping[Hook, str]] = MappingProxyType(
    {"pre_llm": "PRE_LLM", "post_tool": "POST_TOOL", "post_memory": "POST_MEMORY"}
)
"""Its spelling of each hook that it fires; ``POST_MEMORY`` since 3.6."""

_NOTICE: Final = "notice"
"""A key of ours. OpenSearch leaves no notice, which does not change what a document does."""

_RULES: Final = frozenset({"rule_type", "tokens_exceed", "message_count_exceed"})
_KEYS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        SlidingWindow.type_name: frozenset({"max_messages", _NOTICE}),
        Summarization.type_name: frozenset(Summarization.model_fields),
        OutputTruncation.type_name: frozenset({"max_output_length"}),
    }
)


@dataclass(frozen=True, slots=True)
class OpenSearchFinding:
    """A part of a document that OpenSearch does not run as the document says, and its reason.

    `to_opensearch` leaves out entries that do harm; the others do less there.
    """

    path: str
    reason: str
    is_left_out: bool = False


def to_opensearch(management: ContextManagement) -> tuple[dict[str, Any], list[OpenSearchFinding]]:
    """Return *management* as JSON values for OpenSearch, and all differences.

    An entry is left out if OpenSearch would run it more often than the document says, with other settings, or not at
    all for want of its manager. OpenSearch refuses a document without hooks, which may be the rest.
    """
    findings, hooks = list[OpenSearchFinding](), dict[str, list[dict[str, Any]]]()
    first_of = dict[str, ManagerEntry]()
    for hook, entries in management.hooks.items():
        for number, entry in enumerate(entries):
            found = list(_findings(joined("hooks", hook, number), hook, entry, first_of))
            findings += found
            if not any(finding.is_left_out for finding in found):
                first_of.setdefault(entry.manager.type_name, entry)
                hooks.setdefault(OPENSEARCH_HOOKS[hook], []).append(_spelled(entry))
    names = {"name": management.name, "description": management.description}
    return {**{key: text for key, text in names.items() if text}, "hooks": hooks}, findings


def silent_hooks(raw: Mapping[str, Any]) -> list[OpenSearchFinding]:
    """Return the hooks of a document that OpenSearch stores and, because of their letters, never fires."""
    hooks = raw.get("hooks")
    spelled: list[str] = [*hooks] if isinstance(hooks, Mapping) else []
    never = "is stored and never fires in these letters; `buoyline context get NAME --opensearch` writes"
    return [
        OpenSearchFinding(joined("hooks", hook), f"{never} {hook.strip().upper()}")
        for hook in spelled
        if hook not in OPENSEARCH_HOOKS.values() and hook.strip().upper() in OPENSEARCH_HOOKS.values()
    ]


def _findings(
    path: str, hook: Hook, entry: ManagerEntry, first_of: Mapping[str, ManagerEntry]
) -> Iterator[OpenSearchFinding]:
    kind, rules = entry.manager.type_name, entry.activation.spelled()
    if hook not in OPENSEARCH_HOOKS:
        yield OpenSearchFinding(path, f"never runs: OpenSearch has no hook {hook!r}", is_left_out=True)
        return
    if kind not in _KEYS:
        yield OpenSearchFinding(path, f"never runs: OpenSearch has no manager {kind!r}", is_left_out=True)
        return
    if unknown := [name for name in rules if name not in _RULES]:
        others = [name for name in rules if name in _RULES and name != "rule_type"]
        when = f"whenever {' and '.join(others)} is met" if others else "always"
        reason = f"runs {when}: OpenSearch drops the rule {' and '.join(unknown)}"
        yield OpenSearchFinding(joined(path, "config", "activation"), reason, is_left_out=True)
    settings = {key: value for key, value in entry.manager.spelled().items() if value}
    for key in settings.keys() - _KEYS[kind]:
        yield OpenSearchFinding(joined(path, "config", key), "is ignored: OpenSearch has no such key", is_left_out=True)
    first = first_of.get(kind)
    if first is not None and first != entry:
        reason = f"runs with the settings and rules of the first {kind} in the document, at whichever hook that is"
        yield OpenSearchFinding(path, reason, is_left_out=True)
    yield from (OpenSearchFinding(path, reason) for reason in _idle(hook, entry))


def _idle(hook: Hook, entry: ManagerEntry) -> Iterator[str]:
    """Yield why an entry that OpenSearch knows does nothing at its hook, or acts later than here."""
    manager, rules = entry.manager, entry.activation
    if isinstance(manager, OutputTruncation) and hook != "post_tool":
        yield "does nothing: there is an output to truncate at POST_TOOL alone"
    elif not isinstance(manager, OutputTruncation) and hook == "post_tool":
        yield "does nothing: POST_TOOL sees neither the history nor the calls of this turn"
    if rules.message_count_exceed is not None and hook != "post_memory":
        yield "never runs: message_count_exceed counts no messages before POST_MEMORY has them; it is 0 at this hook"
    if rules.tokens_exceed is not None and hook == "post_tool":
        yield "hardly ever runs: tokens_exceed counts the system prompt and the question alone at POST_TOOL"
    elif rules.tokens_exceed is not None and hook == "pre_llm":
        yield "runs later than here: tokens_exceed counts neither the history nor the tools at PRE_LLM"


def _spelled(entry: ManagerEntry) -> dict[str, Any]:
    """Return an entry with the keys that OpenSearch has; other keys mean nothing here, or the entry is left out."""
    kind = entry.manager.type_name
    known = {*_KEYS[kind], "activation"} - {_NOTICE}
    config = {key: value for key, value in entry.to_json().get("config", {}).items() if key in known}
    return {"type": kind, **({"config": config} if config else {})}


# Bodies of requests that register or execute an agent; they name or hold a document.
#
# Source: OpenSearch's page has ``context_management_name`` at the top level of both; its code reads it within
# ``parameters`` of an execution. Here both are read. Its code also takes a whole document, ``context_management``.
# Under the same key its answer to a request for all documents has a list of them.


NAME_KEY: Final = "context_management_name"
INLINE_KEY: Final = "context_management"


def is_body(raw: object) -> bool:
    """Return whether *raw* is a request body that names or holds a document, and not a document."""
    return is_object(raw) and (INLINE_KEY in raw or _name_in(raw) is not None)


def is_listing(raw: object) -> bool:
    """Return whether *raw* is OpenSearch's answer to a request for all documents, and not a body."""
    return is_object(raw) and isinstance(raw.get(INLINE_KEY), list)


def listed_in(listing: Mapping[str, Any], source: str = "listing") -> dict[str, Mapping[str, Any]]:
    """Return the unread documents of a listing by name, in its order; *source* names it in errors.

    Raises:
        DocumentError: One of them has no name, or two have the same.
    """
    found, problems = dict[str, Mapping[str, Any]](), list[tuple[str, str]]()
    for number, raw in enumerate(listing[INLINE_KEY]):
        name: object = raw.get("name") if is_object(raw) else None
        path = joined(INLINE_KEY, number, "name")
        if not isinstance(name, str) or not name:
            problems.append((path, "is missing, and nothing else tells it from the others"))
        elif name in found:
            problems.append((path, f"{name!r} occurs twice"))
        else:
            found[name] = raw
    if problems:
        raise DocumentError(source, problems)
    return found


def management_in(
    body: Mapping[str, Any], find: Callable[[str], ContextManagement], *, allowed: Sequence[str] = ()
) -> ContextManagement | None:
    """Return the document that *body*, of an agent's registration or execution, asks for; None if it asks for none.

    *find* returns the document of a name, as `Registry.get` does. For *allowed* see `ContextManagement.read`.

    Raises:
        DocumentError: *body* has a name and a document, or the document cannot be used.
        NotFoundError: There is no document of that name.
    """
    name, inline = _name_in(body), body.get(INLINE_KEY)
    if name is not None and inline is not None:
        raise DocumentError("body", [(INLINE_KEY, f"stands beside {NAME_KEY}; keep one of them")])
    if is_listing(body):
        raise DocumentError("body", [(INLINE_KEY, "has a list of documents, and nothing says which one is meant")])
    if inline is not None:
        return ContextManagement.read(inline, allowed=allowed, source=INLINE_KEY)
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise DocumentError("body", [(NAME_KEY, "must be the name of a document")])
    return find(name)


def _name_in(body: Mapping[str, Any]) -> object:
    parameters = body.get("parameters")
    within = parameters.get(NAME_KEY) if is_object(parameters) else None
    top = body.get(NAME_KEY)
    return within if top is None else top
