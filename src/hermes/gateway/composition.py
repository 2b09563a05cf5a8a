"""Build the objects of one gateway from what its profile provides."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial

from msgspec import Struct

from hermes.approvals.service import ApprovalService
from hermes.commands.command import CommandContext
from hermes.commands.registry import Registry
from hermes.gateway.actor import ActorServices
from hermes.gateway.actor_pool import ActorPool
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.command_queue import CommandQueue
from hermes.gateway.command_runner import CommandRunner, GatewayCommand, Shortcuts
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.delivery import Delivery
from hermes.gateway.delivery_rules import DeadTargets
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.gateway import Gateway, GatewayRules
from hermes.gateway.hooks import Hooks
from hermes.gateway.intake import Authorize, Intake, MessageTimestamps
from hermes.gateway.notices import OutageNotices
from hermes.gateway.questions import QuestionAnswers, QuestionPosts
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.replies import ReplyWriter
from hermes.gateway.run_display import RunDisplay
from hermes.gateway.stale_progress import EditChannel, StaleProgress
from hermes.gateway.supervisor import Supervisor
from hermes.gateway.transcripts import Transcripts
from hermes.gateway.turn_recovery import TurnRecovery
from hermes.gateway.user_limits import Rejection, TurnSlots
from hermes.kit.clock import Clock
from hermes.kit.tasks import BackgroundTasks
from hermes.ports.bus import Bus
from hermes.ports.channel import Channel, Inbound
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.schema.scope import Address, platform_of
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.keys import platform_in
from hermes.session.runner import Runner
from hermes.session.stop_requests import StopRequests


class BorrowedChannel(Struct, frozen=True):
    """A channel of another profile that this one may answer through."""

    channel: Channel
    online: Callable[[], bool]
    rate_limiter: RateLimiter


class GatewayComposition(Struct, frozen=True, kw_only=True, dict=True):
    """Builds each object of a gateway once, as a property, from what the profile provides.

    The fields: `supervisor` runs the profile's own channels, `channels`. `context`: the context of
    a slash command. `namespace`: the profile's part of session keys. `resolve_targets`: resolve
    target names. `on_contact`: called for every admitted message. `running_processes`: when a
    session's processes started. `tools`: the tools offered on a platform. `own_commands`: commands
    of the gateway itself. `rate_limiters`: those of channels that are shared with other profiles.
    """

    store: Store
    clock: Clock
    bus: Bus
    runner: Runner
    supervisor: Supervisor
    channels: Mapping[str, Channel]
    authorize: Authorize
    approvals: ApprovalService
    rejection: Rejection
    registry: Registry
    context: Callable[[Conversation], CommandContext]
    shortcuts: Shortcuts
    footer: AnswerFooter
    resolve_targets: Callable[[str], tuple[Address, ...]]
    on_contact: Callable[[Inbound], None]
    running_processes: Callable[[Session], Sequence[datetime]]
    tools: Callable[[str], Mapping[str, Tool]]
    profile: str
    namespace: str
    cwd: str
    rules: GatewayRules
    transcripts: Transcripts
    hooks: Hooks | None = None
    own_commands: Mapping[str, GatewayCommand] = {}
    borrowed: Mapping[str, BorrowedChannel] = {}
    rate_limiters: Mapping[str, RateLimiter] = {}
    wait_for_borrowers: Callable[[], Awaitable[None]] | None = None

    @cached_property
    def all_channels(self) -> Mapping[str, Channel]:
        return {
            **self.channels,
            **{name: channel.channel for name, channel in self.borrowed.items()},
        }

    @cached_property
    def all_rate_limiters(self) -> Mapping[str, RateLimiter]:
        return {
            **{name: RateLimiter(self.clock, own.caps) for name, own in self.channels.items()},
            **self.rate_limiters,
            **{name: channel.rate_limiter for name, channel in self.borrowed.items()},
        }

    def online(self, name: str) -> Callable[[], bool]:
        if name in self.borrowed:
            return self.borrowed[name].online
        return partial(self.supervisor.online, name)

    @cached_property
    def background(self) -> BackgroundTasks:
        return BackgroundTasks()

    @cached_property
    def outages(self) -> OutageNotices:
        return OutageNotices(
            clock=self.clock,
            channels=self.all_channels,
            rate_limiters=self.all_rate_limiters,
            background=self.background,
        )

    @cached_property
    def cross_posts(self) -> CrossPoster:
        return CrossPoster(
            store=self.store,
            clock=self.clock,
            profile=self.namespace,
            holding=self.runner.holding,
            background=self.background,
        )

    @cached_property
    def dead(self) -> DeadTargets:
        return DeadTargets(self.store)

    @cached_property
    def questions(self) -> QuestionPosts:
        return QuestionPosts(self.store, self.clock)

    @cached_property
    def stale_progress(self) -> StaleProgress:
        return StaleProgress(
            store=self.store,
            clock=self.clock,
            bus=self.bus,
            channels={
                name: EditChannel(channel, self.online(name), self.all_rate_limiters[name])
                for name, channel in self.all_channels.items()
            },
        )

    @cached_property
    def deliveries(self) -> Mapping[str, Delivery]:
        return {
            name: Delivery(
                store=self.store,
                clock=self.clock,
                bus=self.bus,
                name=name,
                channel=channel,
                online=self.online(name),
                rate_limiter=self.all_rate_limiters[name],
                dead=self.dead,
                questions=self.questions,
                outages=self.outages,
                cross_posts=self.cross_posts,
                rules=self.rules.delivery_on(name),
            )
            for name, channel in self.all_channels.items()
        }

    @cached_property
    def display(self) -> RunDisplay:
        return RunDisplay(
            store=self.store,
            clock=self.clock,
            channels=self.all_channels,
            rate_limiters=self.all_rate_limiters,
            deliveries=self.deliveries,
            stale_progress=self.stale_progress,
            background=self.background,
            tools=self.tools,
            progress=self.rules.progress,
            timing=self.rules.progress_timing,
            display_on=self.rules.display_on,
            without_reactions=self.rules.without_reactions,
        )

    @cached_property
    def sessions(self) -> ChatSessions:
        return ChatSessions(
            store=self.store,
            clock=self.clock,
            cwd=self.cwd,
            resets=self.rules.resets,
            running=self.running_processes,
        )

    @cached_property
    def replies(self) -> ReplyWriter:
        return ReplyWriter(
            store=self.store,
            clock=self.clock,
            bus=self.bus,
            channels=self.all_channels,
            footer=self.footer,
            profile=self.profile,
        )

    @cached_property
    def actors(self) -> ActorPool:
        services = ActorServices(
            store=self.store,
            clock=self.clock,
            runner=self.runner,
            sessions=self.sessions,
            slots=TurnSlots(self.rules.limits.turns),
            rejection=self.rejection,
            replies=self.replies,
            recovery=TurnRecovery(
                store=self.store, clock=self.clock, runner=self.runner, replies=self.replies
            ),
            display=self.display,
            outages=self.outages,
            cross_posts=self.cross_posts,
            hooks=self.hooks,
        )
        return ActorPool(
            store=self.store,
            clock=self.clock,
            bus=self.bus,
            runner=self.runner,
            stop_requests=StopRequests(store=self.store, clock=self.clock, bus=self.bus),
            services=services,
            serves=self._serves if self.borrowed else self.supervisor.serves,
            rules=self.rules.actors,
            limits=self.rules.limits,
        )

    def _serves(self, key: str) -> bool:
        """Whether answers to the session can be sent, perhaps by another profile's channel."""
        platform = platform_in(key)
        return self.supervisor.serves(key) or any(
            platform_of(name) == platform for name in self.borrowed
        )

    @cached_property
    def command_queue(self) -> CommandQueue:
        return CommandQueue(
            store=self.store,
            clock=self.clock,
            bus=self.bus,
            outages=self.outages,
            transcripts=self.transcripts,
        )

    @cached_property
    def command_runner(self) -> CommandRunner:
        return CommandRunner(
            store=self.store,
            clock=self.clock,
            runner=self.runner,
            actors=self.actors,
            sessions=self.sessions,
            questions=self.questions,
            command_queue=self.command_queue,
            registry=self.registry,
            context=self.context,
            own_commands=self.own_commands,
            hooks=self.hooks,
        )

    @cached_property
    def intake(self) -> Intake:
        zone = self.rules.resets.zone
        return Intake(
            store=self.store,
            clock=self.clock,
            bus=self.bus,
            authorize=self.authorize,
            command_queue=self.command_queue,
            command_runner=self.command_runner,
            answers=QuestionAnswers(self.approvals, self.sessions, self.questions),
            dead=self.dead,
            display=self.display,
            outages=self.outages,
            cross_posts=self.cross_posts,
            shortcuts=self.shortcuts,
            timestamps=MessageTimestamps(self.clock, zone) if self.rules.timestamps else None,
            resolve_targets=self.resolve_targets,
            on_contact=self.on_contact,
            reactions_in_context=self.rules.reactions_in_context,
            transcripts=self.transcripts,
        )

    @cached_property
    def gateway(self) -> Gateway:
        return Gateway(
            clock=self.clock,
            runner=self.runner,
            approvals=self.approvals,
            supervisor=self.supervisor,
            intake=self.intake,
            command_queue=self.command_queue,
            actors=self.actors,
            display=self.display,
            deliveries=self.deliveries,
            stale_progress=self.stale_progress,
            dead=self.dead,
            outages=self.outages,
            background=self.background,
            hooks=self.hooks,
            wait_for_borrowers=self.wait_for_borrowers,
            rules=self.rules,
        )
