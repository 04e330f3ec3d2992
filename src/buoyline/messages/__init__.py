"""A neutral view over message dialects; native messages are read here and never changed."""

from buoyline.messages.dialect import Dialect, detect, dialect_named, dialect_names, read_result
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

__all__ = [
    "Dialect",
    "Media",
    "Message",
    "Opaque",
    "Part",
    "Reasoning",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "detect",
    "dialect_named",
    "dialect_names",
    "is_array",
    "is_object",
    "parse",
    "read_result",
    "spell",
]
