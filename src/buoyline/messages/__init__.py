"""Message dialects, the neutral model that they share, and the conversion between them.

Native messages are read here and never changed. Token counts, files and sessions do not belong here.
"""

from buoyline.messages.convert import Converted, convert
from buoyline.messages.dialect import Blocks, Dialect, ObjectDialect
from buoyline.messages.jsonl import spell
from buoyline.messages.model import (
    Base64,
    CachePoint,
    Compaction,
    Json,
    Loss,
    Losses,
    Media,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.openai import OpenAIChat
from buoyline.messages.registry import register_dialect

__all__ = [
    "Base64",
    "Blocks",
    "CachePoint",
    "Compaction",
    "Converted",
    "Dialect",
    "Json",
    "Loss",
    "Losses",
    "Media",
    "Message",
    "ObjectDialect",
    "Opaque",
    "OpenAIChat",
    "Reasoning",
    "Text",
    "ToolCall",
    "ToolResult",
    "Turn",
    "convert",
    "register_dialect",
    "spell",
]
