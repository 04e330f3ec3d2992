"""When managers run: the hooks of a document.

Source: OpenSearch's context management documents ``pre_llm`` and ``post_tool``, in small letters; its code has
``POST_MEMORY``, too, and knows all of them in capitals only. Here any case will do. The last two are ours.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Hook: TypeAlias = Literal["pre_llm", "post_tool", "post_memory", "pre_compress", "on_overflow"]

HOOKS: Final[Mapping[Hook, str]] = MappingProxyType(
    {
        "post_memory": "once a user turn, when the history stands and before the first model call",
        "post_tool": "after each tool result",
        "pre_llm": "before each model call",
        "pre_compress": "before messages leave for a summary",
        "on_overflow": "after the provider refused the request as too long",
    }
)
"""Each hook with when it fires, in the order in which they fire."""

NEVER_FIRED: Final = frozenset({"pre_tool", "post_llm", "pre_execution", "post_execution"})
"""Names that OpenSearch accepts and never fires; a document that relies on one does not do what it says."""


def hook_named(name: str) -> Hook | None:
    """Return the hook that *name* means, in any case; None where there is none.

    >>> hook_named("PRE_LLM")
    'pre_llm'
    """
    spelled = name.strip().lower()
    return next((hook for hook in HOOKS if hook == spelled), None)


def nearest(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """Return those words of a message that name what *name* was probably meant to be, or else all there are.

    >>> nearest("pre_lm", ["pre_llm", "post_tool"])
    "did you mean 'pre_llm'?"
    """
    # Every manager is called so, which would make all of them alike.
    folded = {one.lower().removesuffix("manager"): one for one in known}
    found = get_close_matches(name.strip().lower().removesuffix("manager"), list(folded), n=1, cutoff=0.6)
    return f"did you mean {folded[found[0]]!r}?" if found else f"choose one of {', '.join(known)}"
