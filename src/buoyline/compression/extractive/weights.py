"""Weights of the facts of a summary, set by judgement and by reading summaries; those of exact strings are learned.

They are log odds, like those in `buoyline.compression.extractive.learned`, whose count and age are added to them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FACTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        # What the user wants.
        "task": 9.0,  # the first request, above all else
        "request": 2.0,
        "pasted": 0.5,
        "made by a program": -1.0,  # a user message that no person typed
        "refusal": 3.0,
        "refusal without words": 1.5,
        "prohibition": 6.0,  # never forgotten: the agent must not do it in twenty compactions either
        "correction": 3.0,  # chosen behind the task and before all else: without it, an older request says the opposite
        "lasting rule": 4.0,  # holds from now on, or lifts a prohibition
        "rule": 1.0,
        "remark": 0.0,
        # Where the work is.
        "last report": 5.0,
        "newer report": 5.0,  # the newest one, if something was done since
        "report": 2.5,
        "intent": 4.0,
        "repository": 6.0,
        "failed check": 6.5,  # precedes even the changed files
        "check": 4.5,
        "old check": 2.0,  # passed, behind the newest ones: mostly a part of what they check
        "stale check": -1.0,  # added if a file was changed since its last run
        "changed": 4.0,
        "newest edit": 2.5,  # the last one of a file
        "edit": 1.5,
        "beginning": -1.5,  # of a file that was written: said if there is room
        "read": -0.5,
        "content": 0.5,  # the result that holds a large file
        "series": 4.5,  # several similar calls: the next agent must not repeat them
        "done": 1.5,
        "lately": 0.5,  # added for work since the agent's last words: nothing else says that it is done
        "failed": 1.0,
        "looked": -1.0,
        # Errors.
        "open error": 3.0,
        "tackled error": 1.0,
        "untried error": 0.5,
        "resolved error": 0.0,
        # What comes next.
        "question": 6.0,
        "working": 6.0,  # the user's newest request precedes everything that was planned for it
        "todo": 4.0,
        "pending": 4.0,
        "closing": 3.0,
        # Any kind.
        "note": 2.0,  # a sentence that a model or an unknown summarizer wrote
        "focus": 2.5,  # added if it matches the caller's focus, or the name of a field
    }
)
