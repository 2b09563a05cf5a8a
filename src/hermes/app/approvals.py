"""Build a profile's approval service from its settings, with a model's opinion if enabled."""

from functools import partial

import anyio
from msgspec import structs

from hermes.app.models import ModelSelector, auxiliary_flags
from hermes.approvals.policy import ApprovalMode, ApprovalRules
from hermes.approvals.questions import QuestionForwarder
from hermes.approvals.service import ApprovalService, QuestionTimeouts
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.model import ModelRequest
from hermes.ports.store import Store
from hermes.schema.errors import ModelError
from hermes.schema.messages import Assistant, Text, Trust, User

MAX_OPINION_TOKENS = 16
"""The opinion is one word."""
_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


def build_approvals(
    home: Home,
    config: Config,
    env: Env,
    *,
    store: Store,
    clock: Clock,
    models: ModelSelector,
    forwarder: QuestionForwarder,
) -> ApprovalService:
    settings = config.approvals
    rules = ApprovalRules(
        mode=ApprovalMode(settings.mode),
        deny=settings.deny,
        allow=config.command_allowlist,
        members=settings.members,
        cron=settings.cron_mode in {"approve", "allow"},
        yolo=env.get("HERMES_YOLO_MODE", "").strip().lower() in _TRUE_WORDS,
        home=str(user_home(env)),
        hermes_home=str(home.root),
        path=env.get("PATH", ""),
    )
    limits = QuestionTimeouts(clarify=config.agent.clarify_timeout)
    if settings.timeout is not None:
        limits = structs.replace(limits, approval=settings.timeout, terminal=settings.timeout)
    opinion = partial(_ask_model, config, models)
    return ApprovalService(store, clock, rules, limits, opinion, forwarder)


async def _ask_model(config: Config, models: ModelSelector, system: str, question: str) -> str:
    """Ask the model of the slot `auxiliary.approval`, or the default one."""
    slot = config.auxiliary.approval
    with anyio.fail_after(slot.timeout or 30):
        flags = auxiliary_flags(config, slot)
        model = await (models.model_for_flags(flags) if flags else models.find())
        message = User(new_id("msg"), (Text(question),), Trust.PROGRAM)
        effort = slot.reasoning_effort or None
        request = ModelRequest(system, [message], max_output=MAX_OPINION_TOKENS, effort=effort)
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Assistant):
                    return chunk.text
    raise ModelError("The model gave no answer.")
