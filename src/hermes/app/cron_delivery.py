"""Put the results of scheduled jobs into the outbox."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from hermes.app.chat_directory import CachedSendTargets, resolve_names
from hermes.channels import MANIFESTS
from hermes.config.env import Env
from hermes.config.home import Home, profile_home
from hermes.config.platforms import PLATFORMS
from hermes.cron.bot_chat import QUEUE, TARGET, DeliveredResult, result_row, split_targets
from hermes.cron.delivery import PlannedDelivery
from hermes.cron.fire_runner import origin_address
from hermes.gateway.messages import OutboxMessage, outbox_post, wake_outbox
from hermes.gateway.replies import silent_reply_kind
from hermes.gateway.targets import (
    ChatTarget,
    HomeTarget,
    ResolvedTargets,
    parse_targets,
    resolve_targets,
    target_name,
)
from hermes.kit.text import did_you_mean
from hermes.ports.jobs import Fire, Job
from hermes.ports.store import Write
from hermes.schema.errors import ConfigError, UsageError
from hermes.schema.scope import Address

if TYPE_CHECKING:
    from hermes.app.build import App

_UNRESOLVED = {
    "no_origin": "the job was not created in a chat, and there is no home channel",
    "no_home": "the platform has no home channel; set one with /sethome in a chat",
    "no_home_anywhere": "no platform has a home channel",
    "unknown_platform": "the platform is not set up",
}


class DeliveryCheck:
    """Checks the delivery target of a job before it runs."""

    def __init__(self, home: Home, env: Env) -> None:
        self._home = home
        self._targets = CachedSendTargets(home, env)

    def __call__(self, job: Job) -> str:
        """Return why answers cannot be delivered at present, or "".

        Raises `UsageError` for an invalid target, and an unknown profile or platform.
        """
        profiles, others = split_targets(job.deliver)
        try:
            for profile in filter(None, profiles):
                profile_home(self._home.root, profile)
            if profiles and not others:
                return ""
            requested, known = parse_targets(others), self._targets.load()
        except ConfigError as error:
            raise UsageError(str(error), hint=error.hint) from error
        origin = origin_address(job)
        names = {*MANIFESTS, *(one.platform for one in PLATFORMS), *known.platforms}
        for target in requested:
            if isinstance(target, HomeTarget | ChatTarget):
                _check_platform(target.platform, {*names, origin.channel} if origin else names)
        return _unresolved(
            resolve_targets(requested, known.homes, origin=origin, platforms=known.platforms)
        )


def _check_platform(channel: str, known: Collection[str]) -> None:
    platform = channel.partition("/")[0]
    if channel not in known and platform not in known:
        raise UsageError(
            f"Unknown platform: {platform!r}.",
            hint=did_you_mean(platform, known) or "List the targets: hermes send --list",
        )


def _unresolved(targets: ResolvedTargets) -> str:
    return "; ".join(
        f"{target_name(found.target)}: {_UNRESOLVED[found.reason]}" for found in targets.unresolved
    )


class OutboxDelivery:
    """Implements `hermes.cron.delivery.JobDelivery` for one profile."""

    def __init__(self, app: "App") -> None:
        self._targets = CachedSendTargets(app.home, app.env)
        self._clock = app.clock
        self._bus = app.bus
        self._settings = app.config.cron
        self._profile = app.home.profile
        self._tools_of = app.toolbox.tools_named

    def plan(self, job: Job, fire: Fire, text: str, *, failed: bool = False) -> PlannedDelivery:
        profiles, others = split_targets(job.deliver)
        targets = ResolvedTargets()
        try:
            targets = self._resolve(job, others) if others else targets
            problem = _unresolved(targets)
        except (UsageError, ConfigError) as error:
            problem = str(error)
        wrapped = self._wrapped(job, text) if not failed else text
        mirrored = self._settings.mirror_delivery or job.attach_to_session
        now = self._clock.now()
        key = f"{fire.key}:{fire.attempt}"
        writes = [
            outbox_post(
                f"{key}:{number}",
                OutboxMessage(
                    address=address, text=wrapped, at=now, run=fire.run, cross_post=mirrored
                ),
            )
            for number, address in enumerate(targets.addresses)
        ]
        writes += [
            self._bot_chat_row(job, key, profile or self._profile, text) for profile in profiles
        ]
        return PlannedDelivery(writes, targets.addresses, problem, for_bot_chat=bool(profiles))

    def wake(self, planned: PlannedDelivery) -> None:
        for address in planned.addresses:
            wake_outbox(self._bus, address)
        if planned.for_bot_chat:
            self._bus.wake(QUEUE)

    def is_silent(self, text: str) -> bool:
        """A marker also counts at the end of an answer, as the public system takes it."""
        lines: Sequence[str] = text.strip().splitlines()
        if not lines or silent_reply_kind(text, narration=False) is not None:
            return bool(lines)
        return any(
            silent_reply_kind(line, narration=False) is not None for line in (lines[0], lines[-1])
        )

    def _bot_chat_row(self, job: Job, key: str, profile: str, text: str) -> Write:
        tools: tuple[str, ...] | None = None
        if job.enabled_toolsets is not None:
            try:
                tools = tuple(self._tools_of(job.enabled_toolsets))
            except UsageError:
                # The job failed; deliver the reason.
                tools = ()
        result = DeliveredResult(profile, job.name, text, tools, job.policy.spend_cap)
        return result_row(f"{key}:{TARGET}:{profile}", result)

    def _resolve(self, job: Job, targets: str) -> ResolvedTargets:
        origin: Address | None = origin_address(job)
        online = [origin.channel] if origin else []
        known = self._targets.load(online)
        requested = resolve_names(parse_targets(targets), known.chats)
        return resolve_targets(requested, known.homes, origin=origin, platforms=known.platforms)

    def _wrapped(self, job: Job, text: str) -> str:
        if not self._settings.wrap_response:
            return text
        return f"**{job.name}** ({job.schedule_display})\n\n{text}"
