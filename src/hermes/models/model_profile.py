"""What one model behind one provider can do, and how it wants to be asked."""

from enum import StrEnum

from msgspec import Struct

from hermes.ports.model import EFFORTS


class EffortFormat(StrEnum):
    """Where in the body the wish for more or less thinking goes."""

    NOWHERE = "nowhere"
    FIELD = "reasoning_effort"
    OBJECT = "reasoning"
    SWITCH = "thinking"
    TEMPLATE = "chat_template_kwargs"
    BUDGET = "budget"
    """So many tokens of thought."""
    ADAPTIVE = "adaptive"
    """The model decides how long it thinks, the effort says how eagerly."""
    LEVEL = "level"


class ReasoningReplay(StrEnum):
    """Whether, and as which field, earlier reasoning is sent back."""

    NEVER = "never"
    CONTENT = "reasoning_content"
    DETAILS = "reasoning_details"
    TAGS = "think_tags"
    """Inside the text, between think tags, as the model wrote it."""


class ModelProfile(Struct, frozen=True, kw_only=True):
    """`efforts` are those the provider takes; others go to the nearest of them.

    `no_text` is the content of an answer that has calls and no words. `short_call_ids`
    is for those who only take call ids of nine letters and digits. `most_output` is asked for
    where a wire wants a limit and nobody set one; `budgets` are tokens of thought, one for
    each of `EFFORTS`; `betas` are what must be asked for by name. A model too small for all of
    the house is offered only the `tools` named here, and told only this `prompt`.
    `keeps` says that the server has earlier answers and can be asked to go on from one,
    `forms` that it can be asked for JSON.
    """

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    effort: EffortFormat = EffortFormat.NOWHERE
    efforts: tuple[str, ...] = ("low", "medium", "high")
    replay: ReasoningReplay = ReasoningReplay.NEVER
    images: bool = True
    no_text: str | None = None
    short_call_ids: bool = False
    most_output: int = 32_000
    budgets: tuple[int, ...] = (0, 1024, 4096, 8192, 16_384, 32_000, 32_000, 32_000)
    betas: tuple[str, ...] = ()
    keeps: bool = False
    forms: bool = True
    tools: tuple[str, ...] = ()
    prompt: str = ""

    def budget(self, wanted: str) -> int:
        """How many tokens may be thought at this effort."""
        return self.budgets[EFFORTS.index(wanted)] if wanted in EFFORTS else self.budgets[3]


def nearest_effort(wanted: str, offered: tuple[str, ...]) -> str | None:
    """The offered effort closest to the wanted one, the lesser of two; None when there is none."""
    if wanted in offered:
        return wanted
    if not offered or wanted not in EFFORTS:
        return None
    place = EFFORTS.index(wanted)
    return min(offered, key=lambda effort: (abs(EFFORTS.index(effort) - place), effort))
