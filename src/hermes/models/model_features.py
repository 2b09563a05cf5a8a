"""Features of known models for their vendors' own APIs, as of 2026-11."""

import re

from msgspec import Struct, structs

from hermes.models.api_modes import ANTHROPIC, GEMINI, RESPONSES
from hermes.models.model_profile import EffortFormat, ModelProfile


class ModelFeatures(Struct, frozen=True, kw_only=True):
    """Model features that a wire needs beyond the provider's profile."""

    effort: EffortFormat = EffortFormat.NONE
    efforts: tuple[str, ...] = ()
    default_max_output: int = 32_000
    budgets: tuple[int, ...] = (0, 1024, 4096, 8192, 16_384, 32_000, 32_000, 32_000)
    betas: tuple[str, ...] = ()


_ALL_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_INTERLEAVED_THINKING = ("interleaved-thinking-2025-05-14",)
_ADAPTIVE = ModelFeatures(
    effort=EffortFormat.ADAPTIVE, efforts=_ALL_EFFORTS, default_max_output=64_000
)

_CLAUDE: tuple[tuple[str, ModelFeatures], ...] = (
    (
        r"claude-(?:opus|sonnet)-4[.-]6",
        structs.replace(_ADAPTIVE, efforts=("low", "medium", "high", "max")),
    ),
    (r"claude-[a-z]+-(?:4[.-][7-9]|[5-9])|claude-(?:mythos|fable)", _ADAPTIVE),
    (
        r"claude-(?:opus-4[.-]5|sonnet-4|haiku-4)",
        ModelFeatures(
            effort=EffortFormat.BUDGET, default_max_output=64_000, betas=_INTERLEAVED_THINKING
        ),
    ),
    (r"claude-opus-4", ModelFeatures(effort=EffortFormat.BUDGET, betas=_INTERLEAVED_THINKING)),
    (r"claude-3[.-]7", ModelFeatures(effort=EffortFormat.BUDGET, default_max_output=64_000)),
    (r"claude-3[.-]5", ModelFeatures(default_max_output=8192)),
    (r"claude-3", ModelFeatures(default_max_output=4096)),
    (r"claude", _ADAPTIVE),
)

_GEMINI: tuple[tuple[str, ModelFeatures], ...] = (
    (
        r"gemini-[3-9][\w.]*-pro",
        ModelFeatures(effort=EffortFormat.LEVEL, efforts=("low", "medium", "high")),
    ),
    (
        r"gemini-[3-9]",
        ModelFeatures(effort=EffortFormat.LEVEL, efforts=("minimal", "low", "medium", "high")),
    ),
    (
        r"gemini-2\.5-pro",
        ModelFeatures(
            effort=EffortFormat.BUDGET,
            budgets=(128, 512, 2048, 8192, 16_384, 32_768, 32_768, 32_768),
        ),
    ),
    (
        r"gemini-2\.5-flash",
        ModelFeatures(
            effort=EffortFormat.BUDGET,
            budgets=(0, 512, 2048, 8192, 16_384, 24_576, 24_576, 24_576),
        ),
    ),
)

_OPENAI: tuple[tuple[str, ModelFeatures], ...] = (
    (r"gpt-5(?:\.\d+)?-pro", ModelFeatures(effort=EffortFormat.OBJECT, efforts=("high",))),
    (
        r"gpt-5\.1(?!-codex-max)",
        ModelFeatures(effort=EffortFormat.OBJECT, efforts=("none", "low", "medium", "high")),
    ),
    (
        r"gpt-5\.\d|gpt-[6-9]",
        ModelFeatures(
            effort=EffortFormat.OBJECT, efforts=("none", "low", "medium", "high", "xhigh")
        ),
    ),
    (
        r"gpt-5-chat",
        ModelFeatures(),
    ),
    (
        r"gpt-5",
        ModelFeatures(effort=EffortFormat.OBJECT, efforts=("minimal", "low", "medium", "high")),
    ),
    (r"o\d|codex", ModelFeatures(effort=EffortFormat.OBJECT, efforts=("low", "medium", "high"))),
    (r"grok-3-mini", ModelFeatures(effort=EffortFormat.OBJECT, efforts=("low", "high"))),
)

_TABLES = {ANTHROPIC: _CLAUDE, GEMINI: _GEMINI, RESPONSES: _OPENAI}


def with_model_features(profile: ModelProfile, mode: str, model: str) -> ModelProfile:
    """Return the profile with the features of this model under this API."""
    table = _TABLES.get(mode)
    if table is None:
        return profile
    bare = model.rpartition("/")[2].lower()
    features = next((one for pattern, one in table if re.match(pattern, bare)), ModelFeatures())
    forms = mode == RESPONSES
    return structs.replace(profile, forms=forms, **structs.asdict(features))
