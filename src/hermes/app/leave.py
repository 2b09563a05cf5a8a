"""Who may be asked what: the settings' rules, and a model for a first opinion."""

import anyio
from msgspec import Struct

from hermes.app.models import ModelDesk
from hermes.app.side_models import wish_of
from hermes.approvals.answering import Carrier
from hermes.approvals.desk import ApprovalDesk, Limits
from hermes.approvals.policy import Mode, Rules
from hermes.config.env import Env
from hermes.config.home import root_of, user_home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.model import Request
from hermes.ports.store import Store
from hermes.schema.errors import ModelError
from hermes.schema.messages import Assistant, Text, Trust, User

WORDS = 16
"""Tokens: the opinion is one word."""
_ON = frozenset({"1", "true", "yes", "on"})


def approval_desk(
    config: Config, env: Env, store: Store, clock: Clock, models: ModelDesk, carrier: Carrier
) -> ApprovalDesk:
    settings = config.approvals
    rules = Rules(
        mode=Mode(settings.mode),
        deny=settings.deny,
        allow=config.command_allowlist,
        members=settings.members,
        cron=settings.cron_mode in {"approve", "allow"},
        yolo=env.get("HERMES_YOLO_MODE", "").strip().lower() in _ON,
        home=str(user_home(env)),
        ours=str(root_of(env)),
        path=env.get("PATH", ""),
    )
    limits = Limits(approval=settings.timeout, clarify=config.agent.clarify_timeout)
    desk = ApprovalDesk(store, clock, rules, limits, _Opinion(config, models))
    desk.carried_by(carrier)
    return desk


class _Opinion(Struct, frozen=True):
    """Asks the model of the slot `auxiliary.approval`, or the usual one."""

    config: Config
    models: ModelDesk

    async def __call__(self, system: str, question: str) -> str:
        slot = self.config.auxiliary.approval
        with anyio.fail_after(slot.timeout or 30):
            wish = wish_of(self.config, slot)
            model = await (self.models.wished(wish) if wish else self.models.find())
            asked = User(new_id("msg"), (Text(question),), Trust.HOUSE)
            effort = slot.reasoning_effort or None
            request = Request(system, [asked], max_output=WORDS, effort=effort)
            async with model.stream(request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Assistant):
                        return chunk.text
        raise ModelError("There was no answer.")
