"""The context windows of known models.

A table like this ages: it saves looking up values that seldom change, and a mapping of your own takes precedence. It
holds only figures that the vendor's own documentation states. If that says "128K" or "1M" without an exact number, the
table has the lower reading (128,000), since a window that is believed too large overflows. An alias that a vendor moves
from model to model is included only if all of them have the same window.

Sources, looked up in November 2026; the figures of gpt-5.4, gpt-5.5, gemini-3.5-flash and gemini-3.8-flash as others
quote these pages:

- OpenAI: developers.openai.com/api/docs/models, one page a model; for gpt-oss its model card.
- Anthropic: platform.claude.com/docs/en/models, one page a model; before 4.5 the models overview of 2025. The million
  tokens that some models before 4.6 had behind a beta header are not counted.
- Google: ai.google.dev/gemini-api/docs/models, the input token limit (the output is not taken from it); for Gemma its
  model cards.
- Mistral: docs.mistral.ai/getting-started/models, and the table of dated models there.
- DeepSeek, Qwen, Meta Llama, Microsoft Phi: the models' cards; for Qwen the native length, without YaRN. Hosts of an
  open model often serve a smaller window: pass the host's size.
- Amazon: docs.aws.amazon.com/nova/latest/userguide. Cohere: docs.cohere.com/docs/models. xAI: docs.x.ai/docs/models.
"""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from buoyline.errors import ConfigError, NotFoundError


class ModelLimits(NamedTuple):
    """The limits of one request to a model.

    Attributes:
        context_tokens: The window: the request and, except for Google's models, the answer.
        max_output_tokens: The longest answer; None if the vendor states no number of its own.
    """

    context_tokens: int
    max_output_tokens: int | None = None


_GPT_4 = ModelLimits(8_192, 8_192)
_GPT_4_TURBO = ModelLimits(128_000, 4_096)
_GPT_4O = ModelLimits(128_000, 16_384)
_GPT_41 = ModelLimits(1_047_576, 32_768)
_GPT_5 = ModelLimits(400_000, 128_000)
_GPT_54 = ModelLimits(1_050_000, 128_000)
_O_SERIES = ModelLimits(200_000, 100_000)
_CLAUDE_3 = ModelLimits(200_000, 4_096)
_CLAUDE_35 = ModelLimits(200_000, 8_192)
_CLAUDE_OPUS_4 = ModelLimits(200_000, 32_000)
_CLAUDE_45 = ModelLimits(200_000, 64_000)
_CLAUDE_46 = ModelLimits(1_000_000, 128_000)
_GEMINI_1M_SHORT = ModelLimits(1_048_576, 8_192)
_GEMINI_1M = ModelLimits(1_048_576, 65_536)
_K8 = ModelLimits(8_192)
_K32 = ModelLimits(32_000)
_EXACTLY_32K = ModelLimits(32_768)
_K128 = ModelLimits(128_000)
_EXACTLY_128K = ModelLimits(131_072)
_K256 = ModelLimits(256_000)
_EXACTLY_256K = ModelLimits(262_144)

MODELS: Final[Mapping[str, ModelLimits]] = MappingProxyType(
    {
        # OpenAI
        "gpt-3.5-turbo": ModelLimits(16_385, 4_096),
        "gpt-3.5-turbo-0301": ModelLimits(4_096, 4_096),
        "gpt-3.5-turbo-0613": ModelLimits(4_096, 4_096),
        "gpt-3.5-turbo-16k": ModelLimits(16_385, 4_096),
        "gpt-3.5-turbo-instruct": ModelLimits(4_096, 4_096),
        "gpt-4": _GPT_4,
        "gpt-4-32k": _EXACTLY_32K,
        "gpt-4-turbo": _GPT_4_TURBO,
        "gpt-4-0125-preview": _GPT_4_TURBO,
        "gpt-4-1106-preview": _GPT_4_TURBO,
        "gpt-4-vision-preview": _GPT_4_TURBO,
        "gpt-4-1106-vision-preview": _GPT_4_TURBO,
        "gpt-4o": _GPT_4O,
        "gpt-4o-2024-05-13": ModelLimits(128_000, 4_096),
        "gpt-4o-mini": _GPT_4O,
        "chatgpt-4o": _GPT_4O,
        "gpt-4.1": _GPT_41,
        "gpt-4.1-mini": _GPT_41,
        "gpt-4.1-nano": _GPT_41,
        "gpt-4.5-preview": _GPT_4O,
        "gpt-5": _GPT_5,
        "gpt-5-mini": _GPT_5,
        "gpt-5-nano": _GPT_5,
        "gpt-5-codex": _GPT_5,
        "gpt-5-pro": ModelLimits(400_000, 272_000),
        "gpt-5-chat": _GPT_4O,
        "gpt-5.1": _GPT_5,
        "gpt-5.1-codex": _GPT_5,
        "gpt-5.1-chat": _GPT_4O,
        "gpt-5.2": _GPT_5,
        "gpt-5.2-chat": _GPT_4O,
        "gpt-5.4": _GPT_54,
        "gpt-5.4-pro": _GPT_54,
        "gpt-5.5": _GPT_54,
        "gpt-oss-20b": ModelLimits(131_072, 131_072),
        "gpt-oss-120b": ModelLimits(131_072, 131_072),
        "o1": _O_SERIES,
        "o1-mini": ModelLimits(128_000, 65_536),
        "o1-preview": ModelLimits(128_000, 32_768),
        "o1-pro": _O_SERIES,
        "o3": _O_SERIES,
        "o3-mini": _O_SERIES,
        "o3-pro": _O_SERIES,
        "o4-mini": _O_SERIES,
        # Anthropic
        "claude-instant-1.2": ModelLimits(100_000, 4_096),
        "claude-2.0": ModelLimits(100_000, 4_096),
        "claude-2.1": _CLAUDE_3,
        "claude-3-haiku": _CLAUDE_3,
        "claude-3-sonnet": _CLAUDE_3,
        "claude-3-opus": _CLAUDE_3,
        "claude-3-5-haiku": _CLAUDE_35,
        "claude-3-5-sonnet": _CLAUDE_35,
        "claude-3-7-sonnet": _CLAUDE_45,
        "claude-sonnet-4": _CLAUDE_45,
        "claude-sonnet-4-0": _CLAUDE_45,
        "claude-opus-4": _CLAUDE_OPUS_4,
        "claude-opus-4-0": _CLAUDE_OPUS_4,
        "claude-opus-4-1": _CLAUDE_OPUS_4,
        "claude-haiku-4-5": _CLAUDE_45,
        "claude-sonnet-4-5": _CLAUDE_45,
        "claude-opus-4-5": _CLAUDE_45,
        "claude-sonnet-4-6": _CLAUDE_46,
        "claude-opus-4-6": _CLAUDE_46,
        "claude-opus-4-8": _CLAUDE_46,
        "claude-sonnet-5": _CLAUDE_46,
        "claude-opus-5": _CLAUDE_46,
        "claude-haiku-5-5": _CLAUDE_46,
        "claude-sonnet-5-5": _CLAUDE_46,
        "claude-opus-5-5": _CLAUDE_46,
        "claude-fable-5-1": _CLAUDE_46,
        # Google
        "gemini-1.5-flash": _GEMINI_1M_SHORT,
        "gemini-1.5-flash-8b": _GEMINI_1M_SHORT,
        "gemini-1.5-pro": ModelLimits(2_097_152, 8_192),
        "gemini-2.0-flash": _GEMINI_1M_SHORT,
        "gemini-2.0-flash-lite": _GEMINI_1M_SHORT,
        "gemini-2.5-flash": _GEMINI_1M,
        "gemini-2.5-flash-lite": _GEMINI_1M,
        "gemini-2.5-pro": _GEMINI_1M,
        "gemini-3-pro": _GEMINI_1M,
        "gemini-3-flash": _GEMINI_1M,
        "gemini-3.1-pro": _GEMINI_1M,
        "gemini-3.5-flash": _GEMINI_1M,
        "gemini-3.8-flash": _GEMINI_1M,
        "gemma-2-9b": _K8,
        "gemma-2-27b": _K8,
        "gemma-3-1b": ModelLimits(32_000, 8_192),
        "gemma-3-4b": ModelLimits(128_000, 8_192),
        "gemma-3-12b": ModelLimits(128_000, 8_192),
        "gemma-3-27b": ModelLimits(128_000, 8_192),
        # Mistral
        "open-mistral-7b": _K32,
        "open-mixtral-8x7b": _K32,
        "open-mixtral-8x22b": ModelLimits(64_000),
        "open-mistral-nemo": _K128,
        "mistral-large-2402": _K32,
        "mistral-large-2407": _K128,
        "mistral-large-2411": _K128,
        "mistral-large-2512": _K256,
        "mistral-medium-2505": _K128,
        "mistral-medium-2508": _K128,
        "mistral-small-2409": _K32,
        "mistral-small-2501": _K32,
        "mistral-small-2503": _K128,
        "mistral-small-2506": _K128,
        "codestral-2405": _K32,
        "codestral-2501": _K256,
        "codestral-2508": _K256,
        "ministral-3b-2410": _K128,
        "ministral-8b-2410": _K128,
        "pixtral-12b-2409": _K128,
        "pixtral-large-2411": _K128,
        # DeepSeek
        "deepseek-v3": _K128,
        "deepseek-v3.1": _K128,
        "deepseek-v3.2": _K128,
        "deepseek-r1": _K128,
        # Qwen
        "qwen2.5-7b": _EXACTLY_32K,
        "qwen2.5-14b": _EXACTLY_32K,
        "qwen2.5-32b": _EXACTLY_32K,
        "qwen2.5-72b": _EXACTLY_32K,
        "qwen2.5-coder-7b": _EXACTLY_32K,
        "qwen2.5-coder-32b": _EXACTLY_32K,
        "qwen3-8b": _EXACTLY_32K,
        "qwen3-14b": _EXACTLY_32K,
        "qwen3-32b": _EXACTLY_32K,
        "qwen3-30b-a3b": _EXACTLY_32K,
        "qwen3-235b-a22b": _EXACTLY_32K,
        "qwen3-4b-instruct-2507": _EXACTLY_256K,
        "qwen3-30b-a3b-instruct-2507": _EXACTLY_256K,
        "qwen3-30b-a3b-thinking-2507": _EXACTLY_256K,
        "qwen3-235b-a22b-instruct-2507": _EXACTLY_256K,
        "qwen3-235b-a22b-thinking-2507": _EXACTLY_256K,
        "qwen3-coder-30b-a3b": _EXACTLY_256K,
        "qwen3-coder-480b-a35b": _EXACTLY_256K,
        "qwen3-next-80b-a3b": _EXACTLY_256K,
        # Meta
        "llama-2-7b": ModelLimits(4_096),
        "llama-2-13b": ModelLimits(4_096),
        "llama-2-70b": ModelLimits(4_096),
        "llama-3-8b": _K8,
        "llama-3-70b": _K8,
        "llama-3.1-8b": _EXACTLY_128K,
        "llama-3.1-70b": _EXACTLY_128K,
        "llama-3.1-405b": _EXACTLY_128K,
        "llama-3.2-1b": _EXACTLY_128K,
        "llama-3.2-3b": _EXACTLY_128K,
        "llama-3.2-11b-vision": _EXACTLY_128K,
        "llama-3.2-90b-vision": _EXACTLY_128K,
        "llama-3.3-70b": _EXACTLY_128K,
        "llama-4-maverick-17b-128e": ModelLimits(1_000_000),
        "llama-4-scout-17b-16e": ModelLimits(10_000_000),
        # Others
        "phi-4": ModelLimits(16_000),
        "nova-micro": _K128,
        "nova-lite": ModelLimits(300_000),
        "nova-pro": ModelLimits(300_000),
        "nova-premier": ModelLimits(1_000_000),
        "command-r-08-2024": ModelLimits(128_000, 4_000),
        "command-r-plus-08-2024": ModelLimits(128_000, 4_000),
        "command-a-03-2025": ModelLimits(256_000, 8_000),
        "grok-3": ModelLimits(131_072),
        "grok-3-mini": ModelLimits(131_072),
        "grok-4-0709": ModelLimits(256_000),
    }
)
"""Limits by the shortest name that the vendor uses, without dates and tags."""

_MOST_NEAR_MATCHES = 3

# Who serves it: "openai/", "openai:", "models/", "us.anthropic.", "arn:aws:bedrock:...:foundation-model/meta."
_PATH = re.compile(r"^.*/")
_PROVIDER = re.compile(r"^[a-z_-]+:(?=.)")
_BEDROCK = re.compile(
    r"^(?:[a-z]{2,6}(?:-gov)?\.)?(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|mistral|openai|qwen)\."
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
    own = {name: ModelLimits(_require_size(name, size)) for name, size in (sizes or {}).items()}
    return _find(model, own).context_tokens


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
    for table in (_by_canonical_name(own.items()), _known()):
        for name in names:
            found = _longest_match(name, table)
            if found is not None:
                return table[found]
    raise NotFoundError("model", model, _hint(names, [*own, *MODELS]))


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


def _longest_match(name: str, table: Mapping[str, ModelLimits]) -> str | None:
    """Return the longest name in *table* that *name* begins with, if only a variant follows."""
    for end in range(len(name), 0, -1):
        if name[:end] in table and _VARIANT.fullmatch(name, end):
            return name[:end]
    return None


def _canonical(name: str) -> str:
    for spelling, ours in _SPELLINGS:
        name = spelling.sub(ours, name)
    return name


def _by_canonical_name(limits: Iterable[tuple[str, ModelLimits]]) -> dict[str, ModelLimits]:
    return {_canonical(name.lower()): found for name, found in limits}


@functools.cache
def _known() -> Mapping[str, ModelLimits]:
    return _by_canonical_name(MODELS.items())


def _hint(names: list[str], known: list[str]) -> str:
    canonical = {_canonical(name.lower()): name for name in known}
    near = difflib.get_close_matches(names[-1], canonical, n=_MOST_NEAR_MATCHES)
    similar = f"similar are {', '.join(canonical[name] for name in near)}; " if near else ""
    return f"{similar}pass its size in tokens, as its vendor documents it"


def _require_size(name: str, size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError("sizes", f"{size!r} for {name!r} is not a whole number of tokens above 0")
    return size
