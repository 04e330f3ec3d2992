"""How many tokens a summary may take. Pure."""

from typing import Final

LEAST_SUMMARY_TOKENS: Final = 64
SMALL_SUMMARY_TOKENS: Final = 400
"""Below some hundred tokens a summary holds its frame, and not the task."""


def summary_budget_tokens(
    leaving_tokens: int,
    limit_tokens: int,
    *,
    replaced_tokens: int = 0,
    least_tokens: int = SMALL_SUMMARY_TOKENS,
    trigger_room_tokens: int | None = None,
    window_room_tokens: int = 0,
    has_answer_room: bool = False,
) -> int:
    """Return what the summary of *leaving_tokens* may take.

    Besides all that the last summary said, half of what leaves still makes room. The context stays below the trigger if
    it can. If what is kept takes too much for that, the summary may take what the window has left, or half of it if no
    room is kept for the answer: a summary without facts costs more.

    Args:
        leaving_tokens: What leaves takes, without the summary that is replaced.
        limit_tokens: Most that any summary may take.
        replaced_tokens: What the summary takes that is replaced.
        least_tokens: A summary of few messages may take so many.
        trigger_room_tokens: What there is below the trigger besides all that is kept; None if nothing triggers.
        window_room_tokens: What there is in the window besides all that is kept.
        has_answer_room: Room for the model's answer is kept outside of *window_room_tokens*.
    """
    wanted = min(limit_tokens, max(replaced_tokens + leaving_tokens // 2, least_tokens))
    if trigger_room_tokens is not None and trigger_room_tokens < wanted:
        left = window_room_tokens if has_answer_room else window_room_tokens // 2
        wanted = min(wanted, max(trigger_room_tokens, left))
    return max(wanted, LEAST_SUMMARY_TOKENS)
