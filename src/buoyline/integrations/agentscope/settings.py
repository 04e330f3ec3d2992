"""The settings of an agent's context: AgentScope's ``ContextConfig`` as buoyline's."""

from dataclasses import replace
from typing import Any, Final

from buoyline.compression import ContextConfig

_WINDOW_SHARE: Final = 0.5
"""Of the window, for one result: AgentScope's default limit of 50,000 tokens exceeds many windows."""


def ours(theirs: Any, size: int, base: ContextConfig) -> ContextConfig:
    """Return AgentScope's ``ContextConfig`` for a window of *size* tokens; *base* has the settings that it lacks.

    If the reserve is not below the trigger, as in a one-off configuration with a low trigger, only the newest messages
    are kept. AgentScope does the same.

    Raises:
        ConfigError: A value cannot work with the others, or the template or schema cannot work.
    """
    limit = max(min(theirs.tool_result_limit, int(_WINDOW_SHARE * size)), 2)
    return replace(
        base,
        trigger_ratio=theirs.trigger_ratio,
        reserve_ratio=theirs.reserve_ratio if theirs.reserve_ratio < theirs.trigger_ratio else 0.0,
        tool_result_limit=limit,
        preview_tokens=base.preview_tokens if base.preview_tokens < limit else max(limit // 3, 1),
        compression_prompt=theirs.compression_prompt,
        summary_template=theirs.summary_template,
        summary_schema=theirs.summary_schema,
        max_images=theirs.max_image_num,
    )
