"""What the runs of all frameworks have in common: a verbose tool, and the size of a request."""

import json
from typing import Any

from buoyline.tokens import default_counter

WINDOW = 12_000
CALLS = 60
SECRET = f"SECRET-3-{3 * 31337}"
"""The last line of the fourth call's output."""


def output(n: int) -> str:
    """Return the 11,000 characters that call number *n* returns."""
    lines = "".join(f"line {i} of call {n}: ok {(i + n) * 7919 % 10007}\n" for i in range(500))
    secret = f"SECRET-{n}-{n * 31337}\n"
    return lines[: 11_000 - len(secret) - 1] + "\n" + secret


def tokens(*values: Any) -> int:
    """Count the tokens of *values* as JSON: more than a provider sees, since keys, ids and escapes count."""
    return sum(default_counter().count(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for v in values)
