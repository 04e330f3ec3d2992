"""The context windows of known models, from the table in ``data/models.json``.

Such a table ages: it saves looking up values that seldom change, and a mapping of your own takes precedence. It
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
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, NamedTuple

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
    """Return limits by the shortest name that the vendor uses, without dates and tags."""
    table = resources.files("buoyline.tokens").joinpath("data", "models.json").read_text("utf-8")
    vendors: dict[str, dict[str, list[int]]] = json.loads(table)
    return {name: ModelLimits(*limits) for named in vendors.values() for name, limits in named.items()}


_MOST_NEAR_MATCHES = 3

# Who serves it: "openai/", "openai:", "models/", "us.anthropic.", "arn:aws:bedrock:...:foundation-model/meta."
_PATH = re.compile(r"^.*/")
_PROVIDER = re.compile(r"^[a-z_-]+:(?=.)")
_BEDROCK = re.compile(
    r"^(?:[a-z]{2,6}(?:-gov)?\.)?(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshotai|openai|qwen|zai)\."
)
# What may follow without making it another model: dates, revisions, forms of training and of packing.
_VARIANT = re.compile(
    r"(?:[-@:](?:"
    r"\d{8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{2}-\d{4}|\d{4}|00\d|v\d+(?::\d+)?(?::\d+k)?"
    r"|latest|default|preview|exp|stable|beta|free"
    r"|instruct|chat|it|hf|base|versatile|instant|maas|tee"
    r"|bf16|fp16|fp8|fp4|int8|int4|awq|gptq|gguf|mlx"
    r"))*"
)
_SPELLINGS = (
    (re.compile(r"(?<=\d)[._](?=\d)"), "-"),  # claude-3.5-sonnet, gpt-4.1
    (re.compile(r"^(?:meta-)?llama-?(?=\d)"), "llama-"),  # Meta-Llama-3.1, llama3-1, llama3.1
    (re.compile(r"^(gemma|phi)(?=\d)"), r"\1-"),
    (re.compile(r"^((?:llama|gemma|phi)-[\d-]+|qwen[\d-]+):"), r"\1-"),  # Ollama's llama3.1:8b
    (re.compile(r"^gpt-35-"), "gpt-3-5-"),  # Azure
)


def context_size(model: str, sizes: Mapping[str, int] | None = None) -> int:
    """Return the tokens of the window of *model*, at least 1.

    Dates, revisions and the names of hosts make no difference: ``claude-sonnet-4-5-20250929``,
    ``openai/gpt-4o-2024-08-06``, ``us.anthropic.claude-sonnet-4-5-20250929-v1:0`` and ``models/gemini-2.5-pro`` are all
    found. A known name with any other suffix may be another model, and is not guessed at.

    Args:
        model: The name as it is sent to the provider.
        sizes: Tokens by name; they take precedence over the table, with the same tolerance.

    Raises:
        NotFoundError: *model* is neither in *sizes* nor in the table; the error names similar models.
        ConfigError: A size in *sizes* is not a whole number above 0.
    """
    own: Mapping[str, Any] = sizes or {}
    for name, size in own.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError("sizes", f"{size!r} for {name!r} is not a whole number of tokens above 0")
    return _find(model, {name: ModelLimits(size) for name, size in own.items()}).context_tokens


def max_output(model: str) -> int | None:
    """Return the most tokens that *model* answers with, or None if its vendor states no number of its own.

    Raises:
        NotFoundError: *model* is not in the table.
    """
    return _find(model, {}).max_output_tokens


def _find(model: str, own: Mapping[str, ModelLimits]) -> ModelLimits:
    names = list(_names(model))
    if model in own:
        return own[model]
    for table in (_by_canonical_name(own), _known()):
        for name in names:
            # The longest name that *name* begins with, if only a variant follows.
            for end in range(len(name), 0, -1):
                if name[:end] in table and _VARIANT.fullmatch(name, end):
                    return table[name[:end]]
    spelled = {_canonical(known.lower()): known for known in [*own, *models()]}
    near = difflib.get_close_matches(names[-1], spelled, n=_MOST_NEAR_MATCHES)
    similar = f"similar are {', '.join(spelled[name] for name in near)}; " if near else ""
    raise NotFoundError("model", model, f"{similar}pass its size in tokens, as its vendor documents it")


def _names(model: str) -> Iterator[str]:
    """Yield the canonical spelling of *model*, then of its name without each prefix of a host."""
    if not isinstance(model, str):
        raise ConfigError("model", f"must be a text, not {type(model).__name__}")
    name = model.strip().lower()
    yield _canonical(name)
    for prefix in (_PATH, _PROVIDER, _BEDROCK):
        shorter = prefix.sub("", name)
        if shorter != name:
            yield _canonical(shorter)
            name = shorter


def _canonical(name: str) -> str:
    for spelling, ours in _SPELLINGS:
        name = spelling.sub(ours, name)
    return name


def _by_canonical_name(limits: Mapping[str, ModelLimits]) -> dict[str, ModelLimits]:
    return {_canonical(name.lower()): found for name, found in limits.items()}


@functools.cache
def _known() -> Mapping[str, ModelLimits]:
    return _by_canonical_name(models())
