"""Describe what a model at a provider supports and how requests to it are encoded."""

from enum import StrEnum

from msgspec import Struct

from hermes.ports.model import EFFORTS


class EffortFormat(StrEnum):
    """Where in the request body the reasoning effort is set."""

    NONE = "nowhere"
    FIELD = "reasoning_effort"
    OBJECT = "reasoning"
    SWITCH = "thinking"
    TEMPLATE = "chat_template_kwargs"
    BUDGET = "budget"
    """As a number of reasoning tokens."""
    ADAPTIVE = "adaptive"
    """The model decides how long to reason; the effort is only guidance."""
    LEVEL = "level"


class ReasoningReplay(StrEnum):
    """Whether, and as which field, earlier reasoning is sent back."""

    NEVER = "never"
    CONTENT = "reasoning_content"
    DETAILS = "reasoning_details"
    TAGS = "think_tags"
    """In the text, between think tags, as the model wrote it."""


class ModelProfile(Struct, frozen=True, kw_only=True):
    """`efforts` are the accepted values; others are mapped to the nearest one.

    `empty_content` is the content of an answer that has tool calls but no text. `short_call_ids` is
    for providers that accept only call ids of nine letters and digits. `default_max_output` is sent
    where a wire requires a limit and none is set; `budgets` are reasoning tokens, one for each of
    `EFFORTS`; `betas` are beta features to request. A small model is offered only the `tools` named
    here, and gets only this `prompt`. `stores_responses` means that the server stores earlier
    answers and can continue from one, `forms` that it supports JSON output.
    """

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    effort: EffortFormat = EffortFormat.NONE
    efforts: tuple[str, ...] = ("low", "medium", "high")
    replay: ReasoningReplay = ReasoningReplay.NEVER
    images: bool = True
    empty_content: str | None = None
    short_call_ids: bool = False
    default_max_output: int = 32_000
    budgets: tuple[int, ...] = (0, 1024, 4096, 8192, 16_384, 32_000, 32_000, 32_000)
    betas: tuple[str, ...] = ()
    stores_responses: bool = False
    forms: bool = True
    tools: tuple[str, ...] = ()
    prompt: str = ""

    def budget(self, wanted: str) -> int:
        """Return the number of reasoning tokens for this effort."""
        return self.budgets[EFFORTS.index(wanted)] if wanted in EFFORTS else self.budgets[3]


def nearest_effort(wanted: str, offered: tuple[str, ...]) -> str | None:
    """Return the offered effort closest to the wanted one, the lower of two, or None."""
    if wanted in offered:
        return wanted
    if not offered or wanted not in EFFORTS:
        return None
    position = EFFORTS.index(wanted)
    return min(offered, key=lambda effort: (abs(EFFORTS.index(effort) - position), effort))
