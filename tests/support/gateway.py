"""A gateway with a real store, a fake platform and a scripted model."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from msgspec import structs

from hermes.approvals.policy import ApprovalRules
from hermes.approvals.service import ApprovalService
from hermes.bus.memory import MemoryBus
from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.commands.services import CommandServices
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.chat_sessions import ChatSessions, ResetPolicy
from hermes.gateway.command_runner import GatewayCommand, Shortcuts
from hermes.gateway.composition import GatewayComposition
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.gateway import Gateway, GatewayRules
from hermes.gateway.hooks import Hooks
from hermes.gateway.intake import Authorize
from hermes.gateway.messages import (
    Admitted,
    BusyMode,
    OutboxMessage,
    Rejected,
    outbox_post,
    wake_outbox,
)
from hermes.gateway.progress_message import ProgressDisplay, ProgressMessage, ProgressTiming
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.roles import RolePermissions
from hermes.gateway.supervisor import Supervisor, SupervisorRules
from hermes.gateway.transcripts import Transcripts
from hermes.gateway.user_limits import Rejection, TurnQuotas
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.bus import Bus
from hermes.ports.channel import Inbound
from hermes.ports.model import Model, ModelRequest
from hermes.ports.store import Store
from hermes.schema.messages import Message, Text, text_of
from hermes.schema.scope import OWNER, Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.keys import SessionSource, build_session_key
from hermes.session.lease import Lease
from hermes.session.runner import Runner
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.channel import FakeChannel, FakeFaultyChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Script, ScriptedModel, ScriptStep, answer_script
from support.conversation import FakePlanner, fixed_price
from support.polling import wait_until
from support.turns import FakeTool, GatedBody, assistant_message, tool_call

GATEWAY_TIMEOUT = 60.0
SESSION_KEY = "agent:main:fake:dm:1"
"""Session key of the default chat."""

GATED_SCRIPT = [assistant_message(tool_call("wait", gate="a"))]
"""The model calls the tool of `gated_tool`."""


def session_key_of(inbound: Inbound) -> str:
    source = SessionSource(platform=inbound.address.channel, chat_id=inbound.address.chat)
    return build_session_key(source)


async def admit_everyone(inbound: Inbound) -> Admitted | Rejected:
    return Admitted(key=session_key_of(inbound))


def echo_script(request: ModelRequest) -> Sequence[ScriptStep]:
    """Answer with the question, so that answers can be distinguished."""
    return answer_script(f"re: {text_of(request.messages[-1])}", id=new_id("msg"))


class EchoModel(ScriptedModel):
    """Plays its scripts, then repeats the question."""

    def stream(self, request: ModelRequest):
        if not self.scripts:
            self.scripts.append(echo_script)
        return super().stream(request)


class FakeModels:
    async def check_name(self, name: str, provider: str | None) -> str:
        return ""

    async def choose(self, name: str, provider: str | None) -> Model:
        return ScriptedModel(name=name, provider=provider or "scripted")

    async def save_default(self, model: Model) -> Sequence[str]:
        raise AssertionError("nobody keeps a model here")

    def current(self, session: Session) -> str:
        return "scripted"


class FakeFacts:
    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        return []


def fake_context(conversation: Conversation) -> CommandContext:
    return CommandContext(conversation, FakeModels(), FakeFacts())


def unlimited(platform: str, role: Role) -> RolePermissions:
    return RolePermissions()


class FinalEdits:
    """Records final edits; until `noted` is set, storing the post is in progress."""

    def __init__(self) -> None:
        self.behind: list[tuple[str, str]] = []
        self.noted = anyio.Event()
        self.noted.set()

    async def posted(self, post: str) -> None:
        await self.noted.wait()

    def add(self, post: str, words: str) -> None:
        self.behind.append((post, words))


def progress_message(
    channel: FakeChannel,
    clock: Clock,
    timing: ProgressTiming,
    *,
    display: ProgressDisplay = ProgressDisplay(),  # noqa: B008 - a frozen value
    final_edits: FinalEdits | None = None,
    rate_limiter: RateLimiter | None = None,
    held: Callable[[], Awaitable[bool]] | None = None,
) -> ProgressMessage:
    """The progress message of a run in the default chat, alone."""
    final_edits = final_edits or FinalEdits()
    return ProgressMessage(
        key="run:progress",
        channel=channel,
        address=Address("fake", "1"),
        clock=clock,
        timing=timing,
        display=display,
        rate_limiter=rate_limiter or RateLimiter(clock, channel.caps),
        on_posted=final_edits.posted,
        on_final_edit=final_edits.add,
        has_pending=lambda: False,
        only_asks=lambda tool: False,
        held=held or always_held,
    )


async def always_held() -> bool:
    return True


def chat_sessions(store: Store, clock: Clock, cwd: str = "/work") -> ChatSessions:
    return ChatSessions(
        store=store, clock=clock, cwd=cwd, resets=ResetPolicy(), running=lambda session: ()
    )


class GatewayHarness:
    """A running gateway and everything around it."""

    def __init__(self, gateway: Gateway, store: SqliteStore, clock: Clock, bus: Bus) -> None:
        self.gateway = gateway
        self.store = store
        self.clock = clock
        self.bus = bus
        self.model: ScriptedModel
        self.planner: FakePlanner
        self.channel: FakeChannel
        self.runner: Runner

    async def wait_for_posts(self, *texts: str, chat: str = "1") -> None:
        """Wait until the chat shows exactly these texts."""
        try:
            await wait_until(lambda: self.channel.texts_in(chat) == list(texts))
        except TimeoutError:
            assert self.channel.texts_in(chat) == list(texts)

    async def wait_until_idle(self) -> None:
        """Wait until everything is idle and stored."""
        await wait_until(lambda: not self.gateway.actors.snapshot())
        await wait_until(lambda: not any(one.busy for one in self.gateway.deliveries.values()))

    async def transcript(self, chat: str = "1") -> list[Message]:
        source = SessionSource(platform=self.channel.name, chat_id=chat)
        archive = self.store.archive_for(OWNER)
        session = await archive.by_key(build_session_key(source))
        assert session is not None
        return [row.message for row in await archive.messages(session.id)]

    async def texts(self, chat: str = "1") -> list[str]:
        return [text_of(message) for message in await self.transcript(chat)]

    async def open_rows(self, queue: str = "inbox") -> list[str]:
        rows = await self.store.queues.claim(queue, None, self.store.workers.own, None, 1000)
        return [row.key for row in rows]

    def running(self, chat: str = "1") -> str | None:
        source = SessionSource(platform=self.channel.name, chat_id=chat)
        return self.gateway.actors.activity(build_session_key(source)).run


class StolenLeaseRunner(Runner):
    """Every held session is lost to another process immediately."""

    @asynccontextmanager
    async def holding(self, session: str, *, new: bool = False) -> AsyncGenerator[Lease]:
        async with super().holding(session, new=new) as lease:
            if not new:
                leases = self._store.leases
                await leases.release(session, lease.fence.generation)
                other = await leases.hold(session, "another", timedelta(minutes=1))
                await leases.release(session, other)
            yield lease


def make_inbound(text: str, key: str, *, chat: str = "1", channel: str = "fake") -> Inbound:
    return Inbound(key, Address(channel, chat), "ann", (Text(text),), None, f"m-{key}")


NO_CHECKS = SupervisorRules(check_interval=86_400.0, claim_interval=86_400.0)
NO_POLLING = GatewayRules(
    progress=False, poll_interval=86_400.0, supervisor=NO_CHECKS
)  # fmt: skip
"""No periodic polling: each poll costs real time when hours of fake time pass."""


def gateway_rules(busy: BusyMode, **more: float) -> GatewayRules:
    return structs.replace(NO_POLLING, actors=ActorRules(busy=busy, **more))


def gated_tool() -> tuple[GatedBody, FakeTool]:
    """A tool that waits until its gate is opened."""
    gates = GatedBody()
    return gates, FakeTool("wait", gates)


async def start_gated_turn(harness: GatewayHarness, gates: GatedBody, text: str = "work") -> None:
    await harness.channel.say(text)
    await gates.reached("a")


NO_TRANSCRIPTS = Transcripts(None, FileBlobs(Path("/nonexistent")))


def gateway_composition(
    store: Store,
    clock: Clock,
    bus: Bus,
    runner: Runner,
    channel: FakeChannel,
    rules: GatewayRules,
    approvals: ApprovalService,
    transcripts: Transcripts = NO_TRANSCRIPTS,
) -> GatewayComposition:
    """A gateway with one channel that admits everyone."""
    channels = {channel.name: channel}
    return GatewayComposition(
        store=store,
        clock=clock,
        bus=bus,
        runner=runner,
        supervisor=Supervisor(channels, clock, rules.supervisor, workers=store.workers),
        channels=channels,
        authorize=admit_everyone,
        approvals=approvals,
        rejection=TurnQuotas(store, clock, unlimited).rejection,
        registry=standard_commands(),
        context=fake_context,
        shortcuts=Shortcuts(),
        footer=AnswerFooter(),
        resolve_targets=lambda targets: (),
        on_contact=lambda inbound: None,
        running_processes=lambda session: (),
        tools=lambda platform: {},
        profile="default",
        namespace="",
        cwd="/work",
        rules=rules,
        transcripts=transcripts,
    )


class OwnerChatForwarder:
    """Posts members' questions to the owner's own chat, if there is one."""

    def __init__(self, store: Store, clock: Clock, bus: Bus, home: Address | None) -> None:
        self._store, self._clock, self._bus, self._home = store, clock, bus, home

    def owner_chat(self, scope: Scope) -> Address | None:
        return self._home

    async def forward(self, question: str, address: Address, text: str) -> None:
        reply = OutboxMessage(address=address, text=text, at=self._clock.now(), question=question)
        await self._store.commit(outbox_post(f"{question}:carried", reply))
        wake_outbox(self._bus, address)


@asynccontextmanager
async def gateway_harness(
    path: Path,
    *scripts: Script,
    tools: Sequence[FakeTool] = (),
    channel: FakeChannel | None = None,
    rules: GatewayRules | None = None,
    clock: Clock | None = None,
    authorize: Authorize = admit_everyone,
    own_commands: Mapping[str, GatewayCommand] | None = None,
    rejection: Rejection | None = None,
    approval_rules: ApprovalRules | None = None,
    owner_chat: Address | None = None,
    footer: AnswerFooter = AnswerFooter(),  # noqa: B008 - a frozen value
    running: Callable[[Session], Sequence[datetime]] = lambda session: (),
    runs: type[Runner] = Runner,
    hooks: Hooks | None = None,
    shortcuts: Shortcuts = Shortcuts(),  # noqa: B008 - a frozen value
    context: Callable[[Conversation], CommandContext] | None = None,
    transcripts: Transcripts = NO_TRANSCRIPTS,
) -> AsyncGenerator[GatewayHarness]:
    """Run a gateway during the block, then end it like a power failure."""
    clock = clock or FakeClock()
    channel = channel or FakeFaultyChannel()
    bus = MemoryBus()
    async with open_store(path / "hermes.db", clock) as store:
        model = EchoModel(*scripts)
        planner = FakePlanner(model, {tool.spec.name: tool for tool in tools})
        forwarder = OwnerChatForwarder(store, clock, bus, owner_chat)
        approvals = ApprovalService(
            store, clock, approval_rules or ApprovalRules(), forwarder=forwarder
        )
        if approval_rules is not None:
            planner.approvals = approvals
        runner = runs(
            store=store, clock=clock, planner=planner, price=fixed_price, profile="default",
            bus=bus,
        )  # fmt: skip

        def command_context(conversation: Conversation) -> CommandContext:
            services = CommandServices(approvals=approvals if approval_rules else None)
            return structs.replace(fake_context(conversation), services=services)

        composition = gateway_composition(
            store, clock, bus, runner, channel, rules or NO_POLLING, approvals, transcripts
        )
        composition = structs.replace(
            composition,
            authorize=authorize,
            rejection=rejection or composition.rejection,
            context=context or command_context,
            shortcuts=shortcuts,
            footer=footer,
            running_processes=running,
            tools=lambda platform: planner.tools,
            hooks=hooks,
            own_commands=own_commands or {},
        )
        one = GatewayHarness(composition.gateway, store, clock, bus)
        one.model, one.planner, one.channel, one.runner = model, planner, channel, runner
        async with anyio.create_task_group() as group:
            group.start_soon(one.gateway.run)
            yield one
            group.cancel_scope.cancel()
