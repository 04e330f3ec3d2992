"""Log odds that an agent writes an exact string again, for each of its features.

Written by ``scripts/train_ranker.py``, which learns them from recorded sessions and measures them; do not edit.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LEARNED: Final[Mapping[str, float]] = MappingProxyType(
    {
        "intercept": -1.37,  # all else zero
        "count": 0.32,  # for each doubling of the messages that hold it
        "age": -0.26,  # for each doubling of the messages since
        "in assistant": 0.37,  # in a message of the agent
        "in call": 1.0,  # in the arguments of a call
        "in change": -0.36,  # in a call that changes files: what was written there is done
        "in asked": 0.7,  # in the user's newest message
        "in said": 0.55,  # in the agent's last words
        "beside written": 0.55,  # share of the strings around it that the user or the agent wrote
        "others": -0.13,  # for each doubling of the strings in the same text: a listing says little of each
        "mere key": -0.98,  # only names a field of tools' answers
        "path": -0.21,  # kind; an identifier, a number and a version are 0
        "url": -0.48,  # kind
        "hash": -0.5,  # kind
    }
)
