"""Message dialects, the neutral model that they share, and the conversion between them.

Native messages are read here and never changed. Token counts, files and sessions do not belong here.
"""

from buoyline.messages.convert import Converted, convert
from buoyline.messages.dialect import Dialect
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.losses import Loss, Losses
from buoyline.messages.model import (
    Base64,
    CachePoint,
    Json,
    Media,
    Message,
    Note,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.registry import (
    detect,
    dialect_named,
    dialect_names,
    read_result,
    register_dialect,
    register_installed_dialects,
    unregister_dialect,
)

__all__ = [
    "Base64",
    "CachePoint",
    "Converted",
    "Dialect",
    "Json",
    "Loss",
    "Losses",
    "Media",
    "Message",
    "Note",
    "Opaque",
    "Part",
    "Reasoning",
    "ResultPart",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "Turn",
    "convert",
    "detect",
    "dialect_named",
    "dialect_names",
    "is_array",
    "is_object",
    "parse",
    "read_result",
    "register_dialect",
    "register_installed_dialects",
    "spell",
    "unregister_dialect",
]
