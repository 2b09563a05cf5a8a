"""Who writes summaries: a model of its own or the turn's; and what is done without any."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
from msgspec import Struct

from hermes.agent.compression.sizes import summary_budget, tokens_in
from hermes.agent.compression.summary import Told, asked_for, plain_summary, question
from hermes.kit.ids import new_id
from hermes.ports.model import Model, Request
from hermes.schema.errors import ConfigError, ModelError
from hermes.schema.messages import Assistant, Text, Trust, User

log = logging.getLogger(__name__)

_SHARE = 2.4
"""Characters of a request for each token of its model's window."""


class Written(Struct, frozen=True):
    """`answers` are all that were given, also those that said nothing; `plain`: by no model.

    `failed`: models were asked in vain. Without a `body` there is no summary.
    """

    body: str
    answers: tuple[Assistant, ...] = ()
    plain: bool = False
    failed: bool = False


class Scribe(Struct, frozen=True, kw_only=True):
    """`models` gives those to ask, in order, from the one of the turn."""

    models: Callable[[Model], Awaitable[Sequence[Model]]]
    redact: Callable[[str], str]
    timeout: float = 120.0
    effort: str | None = None

    async def write(self, told: Told, usual: Model, *, abort: bool = False) -> Written:
        """`abort`: rather no summary than one without a model."""
        answers: list[Assistant] = []
        for model in await self._models(usual):
            budget = summary_budget(tokens_in(told.messages), usual.window)
            try:
                with anyio.fail_after(self.timeout):
                    answers.append(await self._ask(model, told, budget))
            except (ModelError, TimeoutError) as error:
                log.warning("%s gave no summary: %s", model.name, error)
                continue
            if body := answers[-1].text.strip():
                return Written(self.redact(body), tuple(answers))
        body = "" if abort else plain_summary(told, self.redact)
        return Written(body, tuple(answers), plain=True, failed=True)

    def plain(self, told: Told) -> Written:
        """Nobody is asked."""
        return Written(plain_summary(told, self.redact), plain=True)

    async def _models(self, usual: Model) -> Sequence[Model]:
        try:
            return await self.models(usual)
        except (ConfigError, ModelError) as error:
            log.warning("the model for summaries cannot be used: %s", error)
            return [usual]

    async def _ask(self, model: Model, told: Told, budget: int) -> Assistant:
        text = question(told, self.redact, int(model.window * _SHARE))
        asked = User(new_id("msg"), (Text(text),), Trust.HOUSE)
        request = Request(asked_for(budget), [asked], max_output=budget, effort=self.effort)
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Assistant):
                    return chunk
        raise ModelError("There was no answer.")
