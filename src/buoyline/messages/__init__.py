"""A neutral view over message dialects; native messages are read here and never changed."""

from buoyline.messages.conversion import Converted, Loss, convert
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.model import (
    Base64,
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
)
from buoyline.messages.registry import Dialect, detect, dialect_named, dialect_names, read_result

__all__ = [
    "Base64",
    "Converted",
    "Dialect",
    "Json",
    "Loss",
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
    "convert",
    "detect",
    "dialect_named",
    "dialect_names",
    "is_array",
    "is_object",
    "parse",
    "read_result",
    "spell",
]
