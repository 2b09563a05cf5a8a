"""Build a profile's approval service from its settings, with a model's opinion if enabled."""

import logging
from functools import partial

import anyio
from msgspec import Struct, structs

from hermes.app.models import ModelSelector, auxiliary_flags
from hermes.approvals.policy import ApprovalMode, ApprovalRules
from hermes.approvals.questions import QuestionForwarder, QuestionTimeouts
from hermes.approvals.service import ApprovalService
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.platforms import PLATFORMS
from hermes.config.schema import Config
from hermes.config.sections import Seconds
from hermes.config.sections.messaging import Platform, channel_settings
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.channel_options import read_options
from hermes.ports.model import ModelRequest
from hermes.ports.store import Store
from hermes.schema.errors import ConfigError, ModelError
from hermes.schema.messages import Assistant, Text, Trust, User
from hermes.schema.scope import platform_of

log = logging.getLogger(__name__)

MAX_OPINION_TOKENS = 16
"""The opinion is one word."""
_OPTION = "approval_timeout_seconds"
_TIMEOUTS = {
    facts.platform: f"{facts.prefix}_{suffix}"
    for facts in PLATFORMS
    for suffix, *_ in facts.variables
    if suffix == _OPTION.upper()
}
"""The variables of the option, by platform."""
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
    limits = structs.replace(limits, channels=_channel_timeouts(config, env))
    opinion = partial(_ask_model, config, models)
    return ApprovalService(store, clock, rules, limits, opinion, forwarder)


class _ChannelOptions(Struct, frozen=True):
    approval_timeout_seconds: Seconds | None = None


def _channel_timeouts(config: Config, env: Env) -> dict[str, float]:
    """Return the seconds for approvals in the channels that have such a setting."""
    found: dict[str, float] = {}
    channels = channel_settings({**dict.fromkeys(_TIMEOUTS, Platform()), **config.platforms})
    for name, settings in channels.items():
        if (variable := _TIMEOUTS.get(platform_of(name))) is None:
            continue
        # Variables never override the settings of further accounts.
        is_set = "/" in name and _OPTION in settings.extra
        variables = {} if is_set else {_OPTION: variable}
        try:
            options = read_options(_ChannelOptions, name, settings.extra, env, variables)
        except ConfigError as error:
            # The channel reports it, too, and does not start.
            log.warning("%s", error)
            continue
        if options.approval_timeout_seconds is not None:
            found[name] = options.approval_timeout_seconds
    return found


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
