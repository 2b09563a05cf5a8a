"""Context windows and prices of known models (as of 2026-01), and their features (2026-11).

Prices are list prices in dollars per million tokens. Unknown values are None, never zero; local
models cost nothing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, structs

from hermes.models.providers import EffortFormat, ModelProfile, find_provider
from hermes.models.urls import ANTHROPIC, GEMINI, RESPONSES
from hermes.schema.messages import Usage

DEFAULT_WINDOW = 128_000
LOCAL_WINDOW = 32_768
_MILLION = 1_000_000


class Price(Struct, frozen=True):
    """`cache_read` and `cache_write` default to the price of input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class CatalogEntry(Struct, frozen=True):
    """`vendor` is the provider that sells the model under its own name."""

    pattern: str
    vendor: str
    window: int
    price: Price | None = None
    long_price: Price | None = None
    """For requests with more than 200,000 tokens of input."""


_ENTRIES: tuple[CatalogEntry, ...] = (
    CatalogEntry(r"gpt-5(\.\d)?-pro", "openai", 400_000, Price(15.0, 120.0)),
    CatalogEntry(r"gpt-5-mini", "openai", 400_000, Price(0.25, 2.0, 0.025)),
    CatalogEntry(r"gpt-5-nano", "openai", 400_000, Price(0.05, 0.4, 0.005)),
    CatalogEntry(
        r"gpt-5(\.1)?(-codex|-chat)?(-latest|-\d{4}-.*)?$",
        "openai",
        400_000,
        Price(1.25, 10.0, 0.125),
    ),
    CatalogEntry(r"gpt-5", "openai", 400_000),
    CatalogEntry(r"gpt-4\.1-mini", "openai", 1_047_576, Price(0.4, 1.6, 0.1)),
    CatalogEntry(r"gpt-4\.1-nano", "openai", 1_047_576, Price(0.1, 0.4, 0.025)),
    CatalogEntry(r"gpt-4\.1", "openai", 1_047_576, Price(2.0, 8.0, 0.5)),
    CatalogEntry(r"gpt-4o-mini", "openai", 128_000, Price(0.15, 0.6, 0.075)),
    CatalogEntry(r"gpt-4o", "openai", 128_000, Price(2.5, 10.0, 1.25)),
    CatalogEntry(r"gpt-oss", "", 131_072),
    CatalogEntry(r"o4-mini", "openai", 200_000, Price(1.1, 4.4, 0.275)),
    CatalogEntry(r"o3-mini", "openai", 200_000, Price(1.1, 4.4, 0.55)),
    CatalogEntry(r"o3-pro", "openai", 200_000, Price(20.0, 80.0)),
    CatalogEntry(r"o3(-\d{4}-.*)?$", "openai", 200_000, Price(2.0, 8.0, 0.5)),
    CatalogEntry(r"claude-opus-4[.-]5", "anthropic", 200_000, Price(5.0, 25.0, 0.5, 6.25)),
    CatalogEntry(r"claude-opus-4", "anthropic", 200_000, Price(15.0, 75.0, 1.5, 18.75)),
    CatalogEntry(
        r"claude-sonnet-4",
        "anthropic",
        200_000,
        Price(3.0, 15.0, 0.3, 3.75),
        Price(6.0, 22.5, 0.6, 7.5),
    ),
    CatalogEntry(r"claude-haiku-4", "anthropic", 200_000, Price(1.0, 5.0, 0.1, 1.25)),
    CatalogEntry(r"claude-3[.-]5-haiku", "anthropic", 200_000, Price(0.8, 4.0, 0.08, 1.0)),
    CatalogEntry(r"claude", "anthropic", 200_000),
    CatalogEntry(
        r"gemini-2\.5-pro",
        "gemini",
        1_048_576,
        Price(1.25, 10.0, 0.125),
        Price(2.5, 15.0, 0.25),
    ),
    CatalogEntry(r"gemini-2\.5-flash-lite", "gemini", 1_048_576, Price(0.1, 0.4, 0.01)),
    CatalogEntry(r"gemini-2\.5-flash", "gemini", 1_048_576, Price(0.3, 2.5, 0.03)),
    CatalogEntry(r"gemini", "gemini", 1_048_576),
    CatalogEntry(r"grok-4(\.1)?-fast", "xai", 2_000_000, Price(0.2, 0.5, 0.05)),
    CatalogEntry(r"grok-4", "xai", 256_000, Price(3.0, 15.0, 0.75)),
    CatalogEntry(r"grok-code-fast", "xai", 256_000, Price(0.2, 1.5, 0.02)),
    CatalogEntry(r"grok-3-mini", "xai", 131_072, Price(0.3, 0.5, 0.075)),
    CatalogEntry(r"grok", "xai", 131_072),
    CatalogEntry(r"deepseek-(chat|reasoner)", "deepseek", 128_000, Price(0.28, 0.42, 0.028)),
    CatalogEntry(r"deepseek", "", 128_000),
    CatalogEntry(r"glm-4\.5-air", "zai", 128_000, Price(0.2, 1.1, 0.03)),
    CatalogEntry(r"glm-4\.[67]", "zai", 200_000, Price(0.6, 2.2, 0.11)),
    CatalogEntry(r"glm", "zai", 128_000),
    CatalogEntry(r"kimi-k2-turbo", "kimi", 262_144, Price(1.15, 8.0, 0.15)),
    CatalogEntry(r"kimi-k2", "kimi", 262_144, Price(0.6, 2.5, 0.15)),
    CatalogEntry(r"kimi", "kimi", 128_000),
    CatalogEntry(r"minimax-m2", "minimax", 204_800, Price(0.3, 1.2)),
    CatalogEntry(r"qwen3-max", "dashscope", 262_144),
    CatalogEntry(r"qwen3-coder", "dashscope", 262_144),
    CatalogEntry(r"qwen", "", 131_072),
    CatalogEntry(r"mistral-large", "mistral", 131_072, Price(2.0, 6.0)),
    CatalogEntry(r"mistral-medium", "mistral", 131_072, Price(0.4, 2.0)),
    CatalogEntry(r"codestral", "mistral", 256_000, Price(0.3, 0.9)),
    CatalogEntry(r"mistral|magistral|devstral|ministral", "mistral", 131_072),
    CatalogEntry(r"llama-?4", "", 1_048_576),
    CatalogEntry(r"llama-?3|hermes-[34]", "", 131_072),
    CatalogEntry(r"nemotron", "", 131_072),
)


@lru_cache(maxsize=256)
def catalog_entry(model: str) -> CatalogEntry | None:
    """Return the entry for a model, ignoring the vendor and variant in its name."""
    bare = model.rpartition("/")[2].partition(":")[0].lower()
    # Compiling fifty patterns takes longer than a request: most differ in their first letter.
    possible = (
        entry
        for entry in _ENTRIES
        if any(name.startswith(bare[:1]) for name in entry.pattern.split("|"))
    )
    return next((entry for entry in possible if re.match(entry.pattern, bare)), None)


def context_window(model: str, *, local: bool = False) -> int:
    """Return the context window in tokens. Local servers usually configure a smaller one."""
    if local:
        return LOCAL_WINDOW
    entry = catalog_entry(model)
    return entry.window if entry else DEFAULT_WINDOW


def price(model: str, provider: str, usage: Usage) -> float | None:
    """Return the cost of this usage in dollars, or None if unknown."""
    seller = find_provider(provider)
    if seller is not None and seller.local:
        return 0.0
    if model.endswith(":free") and provider == "openrouter":
        return 0.0
    entry = catalog_entry(model)
    if entry is None or seller is None or seller.name not in {entry.vendor, "openrouter"}:
        return None
    rate = entry.long_price if entry.long_price and usage.input > 200_000 else entry.price
    return None if rate is None else _cost(rate, usage)


def _cost(rate: Price, usage: Usage) -> float:
    fresh = max(usage.input - usage.cache_read - usage.cache_write, 0)
    read = rate.input if rate.cache_read is None else rate.cache_read
    write = rate.input if rate.cache_write is None else rate.cache_write
    return (
        fresh * rate.input
        + usage.cache_read * read
        + usage.cache_write * write
        + usage.output * rate.output
    ) / _MILLION


class ModelFeatures(Struct, frozen=True, kw_only=True):
    """Model features that a wire needs beyond the provider's profile."""

    effort: EffortFormat = EffortFormat.NONE
    efforts: tuple[str, ...] = ()
    default_max_output: int = 32_000
    budgets: tuple[int, ...] = (0, 1024, 4096, 8192, 16_384, 32_000, 32_000, 32_000)
    betas: tuple[str, ...] = ()


def _efforts(effort: EffortFormat, *efforts: str) -> ModelFeatures:
    return ModelFeatures(effort=effort, efforts=efforts)


def _claude(effort: EffortFormat, *efforts: str, max_output: int, beta: str = "") -> ModelFeatures:
    betas = (beta,) if beta else ()
    return ModelFeatures(effort=effort, efforts=efforts, default_max_output=max_output, betas=betas)


def _budgets(*budgets: int) -> ModelFeatures:
    return ModelFeatures(effort=EffortFormat.BUDGET, budgets=budgets)


_NONE, _ADAPTIVE, _BUDGET = EffortFormat.NONE, EffortFormat.ADAPTIVE, EffortFormat.BUDGET
_LEVEL, _OBJECT = EffortFormat.LEVEL, EffortFormat.OBJECT
_NEWEST_CLAUDE = _claude(_ADAPTIVE, "low", "medium", "high", "xhigh", "max", max_output=64_000)
_INTERLEAVED = "interleaved-thinking-2025-05-14"

_FEATURES: Mapping[str, Sequence[tuple[str, ModelFeatures]]] = {
    ANTHROPIC: (
        (
            r"claude-(?:opus|sonnet)-4[.-]6",
            _claude(_ADAPTIVE, "low", "medium", "high", "max", max_output=64_000),
        ),
        (r"claude-[a-z]+-(?:4[.-][7-9]|[5-9])|claude-(?:mythos|fable)", _NEWEST_CLAUDE),
        (
            r"claude-(?:opus-4[.-]5|sonnet-4|haiku-4)",
            _claude(_BUDGET, max_output=64_000, beta=_INTERLEAVED),
        ),
        (r"claude-opus-4", _claude(_BUDGET, max_output=32_000, beta=_INTERLEAVED)),
        (r"claude-3[.-]7", _claude(_BUDGET, max_output=64_000)),
        (r"claude-3[.-]5", _claude(_NONE, max_output=8192)),
        (r"claude-3", _claude(_NONE, max_output=4096)),
        (r"claude", _NEWEST_CLAUDE),
    ),
    GEMINI: (
        (r"gemini-[3-9][\w.]*-pro", _efforts(_LEVEL, "low", "medium", "high")),
        (r"gemini-[3-9]", _efforts(_LEVEL, "minimal", "low", "medium", "high")),
        (
            r"gemini-2\.5-pro",
            _budgets(128, 512, 2048, 8192, 16_384, 32_768, 32_768, 32_768),
        ),
        (r"gemini-2\.5-flash", _budgets(0, 512, 2048, 8192, 16_384, 24_576, 24_576, 24_576)),
    ),
    RESPONSES: (
        (r"gpt-5(?:\.\d+)?-pro", _efforts(_OBJECT, "high")),
        (r"gpt-5\.1(?!-codex-max)", _efforts(_OBJECT, "none", "low", "medium", "high")),
        (r"gpt-5\.\d|gpt-[6-9]", _efforts(_OBJECT, "none", "low", "medium", "high", "xhigh")),
        (r"gpt-5-chat", ModelFeatures()),
        (r"gpt-5", _efforts(_OBJECT, "minimal", "low", "medium", "high")),
        (r"o\d|codex", _efforts(_OBJECT, "low", "medium", "high")),
        (r"grok-3-mini", _efforts(_OBJECT, "low", "high")),
    ),
}


def with_model_features(profile: ModelProfile, mode: str, model: str) -> ModelProfile:
    """Return the profile with the features of this model under this API."""
    if mode not in _FEATURES:
        return profile
    bare = model.rpartition("/")[2].lower()
    matching = (
        model_features for pattern, model_features in _FEATURES[mode] if re.match(pattern, bare)
    )
    features = structs.asdict(next(matching, ModelFeatures()))
    return structs.replace(profile, json_output=mode == RESPONSES, **features)
