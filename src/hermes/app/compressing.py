"""How long conversations are kept within the window: what the settings say, and who is asked."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.compression.sizes import Limits
from hermes.app.models import ModelDesk
from hermes.app.side_models import summary_wish
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.models.settings import Flags
from hermes.ports.model import Model
from hermes.ports.store import Store
from hermes.session.compressing import Compressing
from hermes.session.recorder import Price

if TYPE_CHECKING:
    from hermes.session.pressing import Press

ENGINE = "compressor"
STATEFUL = ("todo", "terminal")
"""The list of tasks, and where the shell stands."""


class Means(Struct, frozen=True):
    """What a profile has for it."""

    store: Store
    clock: Clock
    price: Price
    models: ModelDesk
    redact: Callable[[str], str]


def compressing_of(config: Config, means: Means) -> Compressing | None:
    """None where the settings switch it off."""
    settings = config.compression
    if not settings.enabled or config.context.engine != ENGINE:
        return None
    limits = Limits(
        threshold=settings.threshold,
        target=settings.target_ratio,
        first=settings.protect_first_n,
        last=settings.protect_last_n,
        most=settings.hygiene_hard_message_limit,
        max_output=config.main_model.max_tokens or 0,
        codex_raise=settings.codex_gpt55_autoraise,
        abort=settings.abort_on_summary_failure,
        stateful=STATEFUL,
    )
    return Compressing(means.store, limits, partial(_press, config, means))


def _press(config: Config, means: Means, limits: Limits) -> "Press":
    from hermes.session.pressing import Press  # noqa: PLC0415 - most sessions stay short
    from hermes.session.scribe import Scribe  # noqa: PLC0415 - as above
    from hermes.session.views import Views  # noqa: PLC0415 - as above

    slot = config.auxiliary.compression
    scribe = Scribe(
        models=_Asked(means.models, summary_wish(config)),
        redact=means.redact,
        timeout=slot.timeout or 120.0,
        effort=slot.reasoning_effort or None,
    )
    views = Views(means.store, means.clock)
    return Press(views, means.clock, means.price, limits, scribe)


class _Asked(Struct, frozen=True):
    """The model of the settings first, when they name one; then the one of the turn."""

    models: ModelDesk
    wish: Flags | None

    async def __call__(self, usual: Model) -> Sequence[Model]:
        return [usual] if self.wish is None else [await self.models.wished(self.wish), usual]
