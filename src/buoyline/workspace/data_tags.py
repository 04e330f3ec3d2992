"""How the file of a tool result says where its media are, for a framework whose agents look for that in the text.

Pure. Source: AgentScope's workspace, which writes ``<data url=... name=... media_type=.../>`` in place of each data
block of a result; it escapes nothing, and names a block without a name ``None``.
"""

from dataclasses import replace
from html import escape

from buoyline.messages import Media, ResultPart, Text, ToolResult, dialect_named
from buoyline.workspace import layout

_AGENTSCOPE = dialect_named("agentscope")


def with_data_tags(result: ToolResult, native: object) -> ToolResult:
    """Return *result* with a tag before each medium that says where it is, if *native* is a result of AgentScope's.

    A tag follows a text on its last line, as AgentScope writes it. The media stay parts of the result, so that they are
    stored, found again and kept by gc like all others.

    Args:
        result: As it may be stored.
        native: What it was read from.
    """
    if not _AGENTSCOPE.recognises_result(native):
        return result
    parts: list[ResultPart] = []
    for part in result.parts:
        if isinstance(part, Media):
            before = parts[-1] if parts else None
            if isinstance(before, Text):
                parts[-1] = Text(before.text + data_tag(part))
            else:
                parts.append(Text(data_tag(part)))
        parts.append(part)
    return replace(result, parts=tuple(parts))


def data_tag(medium: Media) -> str:
    """Return the tag of one medium, on one line whatever its name is.

    >>> data_tag(Media("image", "image/png", 0, "https://example.org/a.png", "buoy's"))
    "<data url='https://example.org/a.png' name='buoy&#x27;s' media_type='image/png'/>"
    """
    payload = medium.content()
    url = medium.source if payload is None else layout.reference_to(layout.blob_name(payload, medium.media_type))
    facts = {"url": url, "name": medium.name, "media_type": medium.media_type}
    attributes = " ".join(f"{key}='{_escaped(fact)}'" for key, fact in facts.items() if fact)
    return f"<data {attributes}/>"


def _escaped(fact: str) -> str:
    return escape(" ".join(fact.split()))
