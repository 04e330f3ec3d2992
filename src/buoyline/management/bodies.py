"""Request bodies that name a document, or hold one, as agents are registered and executed with.

Source: OpenSearch's page puts ``context_management_name`` at the top level of both; its code reads it within
``parameters`` of an execution. Both are read here. Its code also takes a whole document, ``context_management``. Under
the same key its answer to a request for all documents has a list of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from buoyline.errors import DocumentError
from buoyline.management.document import ContextManagement
from buoyline.management.problems import joined
from buoyline.messages import is_object

NAME_KEY: Final = "context_management_name"
INLINE_KEY: Final = "context_management"


def is_body(raw: object) -> bool:
    """Tell whether *raw* is a body that says which document to use, and no document."""
    return is_object(raw) and (INLINE_KEY in raw or _name_in(raw) is not None)


def is_listing(raw: object) -> bool:
    """Tell whether *raw* is OpenSearch's answer to a request for all documents, and no body."""
    return is_object(raw) and isinstance(raw.get(INLINE_KEY), list)


def listed_in(listing: Mapping[str, Any], source: str = "listing") -> dict[str, Mapping[str, Any]]:
    """Return the documents of a listing, unread, by their names and in its order.

    Args:
        listing: See `is_listing`.
        source: What to call it in errors.

    Raises:
        DocumentError: One of them has no name, or two have the same.
    """
    found, problems = dict[str, Mapping[str, Any]](), list[tuple[str, str]]()
    for number, raw in enumerate(listing[INLINE_KEY]):
        name: object = raw.get("name") if is_object(raw) else None
        if not isinstance(name, str) or not name:
            problems.append(
                (joined(INLINE_KEY, number, "name"), "is missing, and nothing else tells it from the others")
            )
        elif name in found:
            problems.append((joined(INLINE_KEY, number, "name"), f"{name!r} stands there twice"))
        else:
            found[name] = raw
    if problems:
        raise DocumentError(source, problems)
    return found


def management_in(
    body: Mapping[str, Any], find: Callable[[str], ContextManagement], *, strict: bool = True
) -> ContextManagement | None:
    """Return the document that *body* asks for.

    Args:
        body: Of an agent's registration or execution.
        find: Returns the document of a name, such as `Registry.get`.
        strict: See `ContextManagement.read`.

    Returns:
        The document; None where *body* asks for none.

    Raises:
        DocumentError: It has a name and a document at once, or what is there cannot be used.
        NotFoundError: There is no document of that name.
    """
    name, inline = _name_in(body), body.get(INLINE_KEY)
    if name is not None and inline is not None:
        raise DocumentError("body", [(INLINE_KEY, f"stands beside {NAME_KEY}; keep one of them")])
    if is_listing(body):
        raise DocumentError("body", [(INLINE_KEY, "has a list of documents, and nothing says which one is meant")])
    if inline is not None:
        return ContextManagement.read(inline, strict=strict, source=INLINE_KEY)
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise DocumentError("body", [(NAME_KEY, "must be the name of a document")])
    return find(name)


def chosen(
    find: Callable[[str], ContextManagement],
    *,
    registered: Mapping[str, Any] | None = None,
    executed: Mapping[str, Any] | None = None,
) -> ContextManagement | None:
    """Return the document that holds for one execution: what the execution asks for, else what the agent was made with.

    The first takes the place of the second as a whole; nothing is merged.

    Args:
        find: See `management_in`.
        registered: The body of the agent's registration.
        executed: The body of the execution.
    """
    found = management_in(executed, find) if executed is not None else None
    if found is None and registered is not None:
        return management_in(registered, find)
    return found


def _name_in(body: Mapping[str, Any]) -> object:
    parameters = body.get("parameters")
    within = parameters.get(NAME_KEY) if is_object(parameters) else None
    top = body.get(NAME_KEY)
    return within if top is None else top
