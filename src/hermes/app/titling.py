"""Titles for new sessions, where the settings name a model that gives them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.app.compressing import Means
from hermes.app.side_models import wish_of
from hermes.config.schema import Config
from hermes.kit.tasks import beside
from hermes.ports.model import Model
from hermes.schema.events import Outcome
from hermes.session.accepting import Turn
from hermes.session.runner import Runner


@asynccontextmanager
async def open_titles(config: Config, means: Means, runner: Runner) -> AsyncGenerator[None]:
    """For as long as the profile is open; a title that is not there by then is not given."""
    slot = config.auxiliary.title_generation
    wish = wish_of(config, slot)
    if not slot.enabled or wish is None:
        yield
        return
    from hermes.session.titles import Naming, Titles  # noqa: PLC0415 - few profiles want it

    async def model() -> Model:
        return await means.models.wished(wish)

    naming = Naming(
        model=model, redact=means.redact, timeout=slot.timeout or 30.0, language=slot.language
    )
    titles = Titles(means.store, means.clock, means.price, naming)
    async with beside() as group:

        def ended(turn: Turn, outcome: Outcome) -> None:
            if turn.new and outcome is Outcome.DONE and not turn.session.title:
                group.start_soon(titles.give, turn.session)

        runner.then(ended)
        yield
