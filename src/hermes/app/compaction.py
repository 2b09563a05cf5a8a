"""Build the compaction service from the settings."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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


def build_compaction(
    config: Config,
    *,
    store: Store,
    clock: Clock,
    models: ModelSelector,
    price: PriceFunction,
    redact: Callable[[str], str],
) -> CompactionService | None:
    """None if disabled."""
    settings = config.compression
    if not settings.enabled:
        return None
    slot = config.auxiliary.compression

    async def summary_models(usual: Model) -> Sequence[Model]:
        """The configured summary model if there is one, then the turn's model."""
        flags = summary_flags(config)
        return [usual] if flags is None else [await models.model_for_flags(flags), usual]

    def build(limits: CompactionLimits) -> "Compactor":
        from hermes.compaction.compactor import Compactor, ViewStore  # noqa: PLC0415 - loaded on first use
        from hermes.compaction.summary import SummaryWriter  # noqa: PLC0415 - as above

        writer = SummaryWriter(
            models=summary_models,
            redact=redact,
            timeout=slot.timeout or 120.0,
            effort=slot.reasoning_effort or None,
        )
        return Compactor(ViewStore(store, clock), clock, price, limits, writer)

    return CompactionService(store, _limits(config), build)


def _limits(config: Config) -> CompactionLimits:
    settings = config.compression
    return CompactionLimits(
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
