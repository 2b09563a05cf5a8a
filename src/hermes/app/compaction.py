"""Build the compaction service from the settings."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.context_size import CompactionLimits
from hermes.app.models import ModelSelector, summary_flags
from hermes.compaction.service import CompactionService
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.model import Model
from hermes.ports.store import Store
from hermes.session.recorder import PriceFunction
from hermes.tools.tool_wrappers import load_specs

if TYPE_CHECKING:
    from hermes.compaction.compactor import Compactor

COMPACTION_ENGINE = "compressor"


class CompactionDeps(Struct, frozen=True):
    """What compaction needs from the profile."""

    store: Store
    clock: Clock
    price: PriceFunction
    models: ModelSelector
    redact: Callable[[str], str]


def build_compaction(config: Config, deps: CompactionDeps) -> CompactionService | None:
    """None if disabled."""
    settings = config.compression
    if not settings.enabled or config.context.engine != COMPACTION_ENGINE:
        return None
    limits = CompactionLimits(
        threshold=settings.threshold,
        target=settings.target_ratio,
        keep_first=settings.protect_first_n,
        keep_last=settings.protect_last_n,
        max_messages=settings.hygiene_hard_message_limit,
        max_output=config.main_model.max_tokens or 0,
        codex_raise=settings.codex_gpt55_autoraise,
        abort=settings.abort_on_summary_failure,
        stateful=tuple(name for name, spec in load_specs().items() if spec.stateful),
    )
    return CompactionService(deps.store, limits, partial(_build_compactor, config, deps))


def _build_compactor(config: Config, deps: CompactionDeps, limits: CompactionLimits) -> "Compactor":
    from hermes.compaction.compactor import Compactor, ViewStore  # noqa: PLC0415 - loaded on first use
    from hermes.compaction.summary import SummaryWriter  # noqa: PLC0415 - as above

    slot, flags = config.auxiliary.compression, summary_flags(config)

    async def summary_models(usual: Model) -> Sequence[Model]:
        """The configured summary model if there is one, then the turn's model."""
        return [usual] if flags is None else [await deps.models.model_for_flags(flags), usual]

    writer = SummaryWriter(
        models=summary_models,
        redact=deps.redact,
        timeout=slot.timeout or 120.0,
        effort=slot.reasoning_effort or None,
    )
    views = ViewStore(deps.store, deps.clock)
    return Compactor(views, deps.clock, deps.price, limits, writer)
