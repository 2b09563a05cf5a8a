"""What models can do by name, for the wires that are their makers' own. Data, as of 2026-11."""

import re

from msgspec import Struct, structs

from hermes.models.modes import ANTHROPIC, GEMINI, RESPONSES
from hermes.models.profile import EffortForm, Profile


class Ability(Struct, frozen=True, kw_only=True):
    """What a wire needs to know beyond the provider's habits."""

    effort: EffortForm = EffortForm.NOWHERE
    efforts: tuple[str, ...] = ()
    most_output: int = 32_000
    budgets: tuple[int, ...] = (0, 1024, 4096, 8192, 16_384, 32_000, 32_000, 32_000)
    betas: tuple[str, ...] = ()


_ALL = ("low", "medium", "high", "xhigh", "max")
_BETWEEN_CALLS = ("interleaved-thinking-2025-05-14",)
_EAGER = Ability(effort=EffortForm.ADAPTIVE, efforts=_ALL, most_output=64_000)

_CLAUDE: tuple[tuple[str, Ability], ...] = (
    (
        r"claude-(?:opus|sonnet)-4[.-]6",
        structs.replace(_EAGER, efforts=("low", "medium", "high", "max")),
    ),
    (r"claude-[a-z]+-(?:4[.-][7-9]|[5-9])|claude-(?:mythos|fable)", _EAGER),
    (
        r"claude-(?:opus-4[.-]5|sonnet-4|haiku-4)",
        Ability(effort=EffortForm.BUDGET, most_output=64_000, betas=_BETWEEN_CALLS),
    ),
    (r"claude-opus-4", Ability(effort=EffortForm.BUDGET, betas=_BETWEEN_CALLS)),
    (r"claude-3[.-]7", Ability(effort=EffortForm.BUDGET, most_output=64_000)),
    (r"claude-3[.-]5", Ability(most_output=8192)),
    (r"claude-3", Ability(most_output=4096)),
    (r"claude", _EAGER),
)

_GEMINI: tuple[tuple[str, Ability], ...] = (
    (
        r"gemini-[3-9][\w.]*-pro",
        Ability(effort=EffortForm.LEVEL, efforts=("low", "medium", "high")),
    ),
    (
        r"gemini-[3-9]",
        Ability(effort=EffortForm.LEVEL, efforts=("minimal", "low", "medium", "high")),
    ),
    (
        r"gemini-2\.5-pro",
        Ability(
            effort=EffortForm.BUDGET,
            budgets=(128, 512, 2048, 8192, 16_384, 32_768, 32_768, 32_768),
        ),
    ),
    (
        r"gemini-2\.5-flash",
        Ability(
            effort=EffortForm.BUDGET,
            budgets=(0, 512, 2048, 8192, 16_384, 24_576, 24_576, 24_576),
        ),
    ),
)

_OPENAI: tuple[tuple[str, Ability], ...] = (
    (r"gpt-5(?:\.\d+)?-pro", Ability(effort=EffortForm.OBJECT, efforts=("high",))),
    (
        r"gpt-5\.1(?!-codex-max)",
        Ability(effort=EffortForm.OBJECT, efforts=("none", "low", "medium", "high")),
    ),
    (
        r"gpt-5\.\d|gpt-[6-9]",
        Ability(effort=EffortForm.OBJECT, efforts=("none", "low", "medium", "high", "xhigh")),
    ),
    (
        r"gpt-5-chat",
        Ability(),
    ),
    (
        r"gpt-5",
        Ability(effort=EffortForm.OBJECT, efforts=("minimal", "low", "medium", "high")),
    ),
    (r"o\d|codex", Ability(effort=EffortForm.OBJECT, efforts=("low", "medium", "high"))),
    (r"grok-3-mini", Ability(effort=EffortForm.OBJECT, efforts=("low", "high"))),
)

_TABLES = {ANTHROPIC: _CLAUDE, GEMINI: _GEMINI, RESPONSES: _OPENAI}


def able(profile: Profile, mode: str, model: str) -> Profile:
    """The profile with what this model can do in this language."""
    table = _TABLES.get(mode)
    if table is None:
        return profile
    bare = model.rpartition("/")[2].lower()
    ability = next((one for pattern, one in table if re.match(pattern, bare)), Ability())
    forms = mode == RESPONSES
    return structs.replace(profile, forms=forms, **structs.asdict(ability))
