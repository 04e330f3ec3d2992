"""The context windows of known models, from the table in ``data/models.json``.

Such a table ages: it saves looking up values that seldom change, and a size that is passed takes precedence. It
holds only figures that the vendor's own documentation states. If that says "128K" or "1M" without an exact number, the
table has the lower reading (128,000), since a window that is believed too large overflows. An alias that a vendor moves
from model to model is included only if all of them have the same window.

Sources, looked up in November 2026. The figures of the newest models, Claude's aside, are taken from others that quote
these pages: at least two that agree, such as AgentScope's model cards, Strands' table, and genai-prices. If two differ
only since one rounds, the lower figure counts.

- OpenAI: developers.openai.com/api/docs/models, one page a model; for gpt-oss its model card.
- Anthropic: platform.claude.com/docs/en/models, one page a model; before 4.5 the models overview of 2025. The million
  tokens that some models before 4.6 had behind a beta header are not counted.
- Google: ai.google.dev/gemini-api/docs/models, the input token limit (the output is not taken from it); for Gemma its
  model cards.
- Mistral: docs.mistral.ai/getting-started/models, and the table of dated models there.
- DeepSeek, Qwen, Meta Llama, Microsoft Phi: the models' cards; for Qwen the native length, without YaRN. Hosts of an
  open model often serve a smaller window: pass the host's size.
- Amazon: docs.aws.amazon.com/nova/latest/userguide. Cohere: docs.cohere.com/docs/models. xAI: docs.x.ai/docs/models.
- Moonshot: platform.moonshot.ai/docs. Z.ai: docs.z.ai. MiniMax: platform.minimax.io/docs.
"""

import difflib
import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from buoyline.errors import ConfigError, NotFoundError


class ModelLimits(NamedTuple):
    """The limits of one request to a model.

    Attributes:
        context_tokens: The window: the request and, except for Google's models, the answer.
        max_output_tokens: The longest answer; None if the vendor states no number of its own.
    """

    context_tokens: int
    max_output_tokens: int | None = None


@functools.cache
def models() -> Mapping[str, ModelLimits]:
    """Return limits by the shortest name that the vendor uses, without dates and tags, with ``-`` for each point."""
    table = resources.files("buoyline.tokens").joinpath("data", "models.json").read_text("utf-8")
    vendors: dict[str, dict[str, list[int]]] = json.loads(table)
    return {_POINT.sub("-", name): ModelLimits(*limits) for named in vendors.values() for name, limits in named.items()}


_POINT = re.compile(r"(?<=\d)[.](?=\d)")  # claude-3.5-sonnet, gpt-4.1

# Who serves it: "openai/", "openai:", "models/", "us.anthropic.", "arn:aws:bedrock:...:foundation-model/meta."
_HOST = re.compile(r"^(?:.*/)?(?:[a-z_-]+:)?(?:(?:[a-z-]{2,10}\.)?[a-z]{2,10}[0-9]{0,2}\.)?(?=[a-z])")
# What may follow without making it another model: dates, revisions, and what its host says of it.
_VARIANT = re.compile(
    r"(?:[-@:](?:\d{3,8}|\d{4}-\d\d-\d\d|\d\d-\d\d(?:\d\d)?|v\d+(?::\d+k?)*"
    r"|latest|default|preview|exp|stable|beta|free|instruct|chat|it|fp8))*"
)


def context_size(model: str) -> int:
    """Return the tokens of the window of *model*, at least 1.

    Dates, revisions and the names of hosts make no difference: ``claude-sonnet-4-5-20250929``,
    ``openai/gpt-4o-2024-08-06``, ``us.anthropic.claude-sonnet-4-5-20250929-v1:0`` and ``models/gemini-2.5-pro`` are all
    found. A known name with any other suffix may be another model, and is not guessed at.

    Raises:
        NotFoundError: *model*, as it is sent to the provider, is not in the table; the error names similar ones.
    """
    return _limits_of(model).context_tokens


def max_output(model: str) -> int | None:
    """Return the most tokens that *model* answers with, or None if its vendor states no number of its own.

    Raises:
        NotFoundError: *model* is not in the table.
    """
    return _limits_of(model).max_output_tokens


def _limits_of(model: str) -> ModelLimits:
    if not isinstance(model, str):
        raise ConfigError("model", f"must be a text, not {type(model).__name__}")
    name = _POINT.sub("-", _HOST.sub("", model.strip().lower()))
    # The longest name that *name* begins with, if only a variant follows.
    for end in range(len(name), 0, -1):
        if name[:end] in models() and _VARIANT.fullmatch(name, end):
            return models()[name[:end]]
    near = difflib.get_close_matches(name, models())
    similar = f"similar are {', '.join(near)}; " if near else ""
    raise NotFoundError("model", model, f"{similar}pass its size in tokens, as its vendor documents it")
