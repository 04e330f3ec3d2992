"""What to write in place of something that is no workspace: most often the path of one."""

import json
from pathlib import PurePath


def instead_of(given: object) -> str:
    """Return what to give instead of *given*.

    >>> instead_of("./workspace")
    'give LocalWorkspace("./workspace")'
    >>> instead_of(None)
    'give a LocalWorkspace'
    """
    if isinstance(given, (str, PurePath)) and str(given):
        return f"give LocalWorkspace({json.dumps(str(given), ensure_ascii=False)})"
    return "give a LocalWorkspace"
