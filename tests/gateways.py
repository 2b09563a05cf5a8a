"""A gateway on a real store, with a fake platform before it and a scripted model behind it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from msgspec import structs

from hermes.approvals.desk import ApprovalDesk
from hermes.approvals.policy import Rules as ApprovalRules
from hermes.commands.command import Context
from hermes.commands.registry import standard_commands
from hermes.commands.services import Services
from hermes.gateway.desk import Urgent
from hermes.gateway.gateway import Gateway, GatewayRules, House, no_refusal
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.intake import Door
from hermes.gateway.letters import Busy, Letter, TurnedAway, Welcome
from hermes.gateway.postscript import Postscript
from hermes.gateway.runs import ActorRules
from hermes.gateway.supervisor import SupervisorRules
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.channel import Inbound
from hermes.ports.model import Model, Request
from hermes.schema.messages import Message, Text, text_of
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.keys import SessionSource, build_session_key
from hermes.session.lease import Lease
from hermes.session.runner import Runner
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import Script, ScriptedModel, Step, says
from hermes.testing.world import RoughChannel
from talks import ScriptedPlanner, half_a_cent
from workbench import FakeTool, Gates, answer, call

PATIENCE = 60.0
KEY = "agent:main:fake:dm:1"
"""The session of the chat in which people speak unless another one is named."""

WAITS = [answer(call("wait", gate="a"))]
"""The model calls the tool of `gated`."""


def key_of(inbound: Inbound) -> str:
    source = SessionSource(platform=inbound.address.channel, chat_id=inbound.address.chat)
    return build_session_key(source)


async def open_door(inbound: Inbound) -> Welcome | TurnedAway:
    return Welcome(key=key_of(inbound))


def repeats(request: Request) -> Sequence[Step]:
    """A script that answers with what was asked, so that answers can be told apart."""
    return says(f"re: {text_of(request.messages[-1])}", id=new_id("msg"))


class Repeater(ScriptedModel):
    """Plays its scripts, then answers with what it was asked."""

    def stream(self, request: Request):
        if not self.scripts:
            self.scripts.append(repeats)
        return super().stream(request)


class NoModels:
    async def doubt(self, name: str, provider: str | None) -> str:
        return ""

    async def choose(self, name: str, provider: str | None) -> Model:
        return ScriptedModel(name=name, provider=provider or "scripted")

    async def keep(self, model: Model) -> Sequence[str]:
        raise AssertionError("nobody keeps a model here")

    def current(self, session: Session) -> str:
        return "scripted"


class NoFacts:
    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        return []


def surroundings(conversation: Conversation) -> Context:
    return Context(conversation, NoModels(), NoFacts())


async def until(true: Callable[[], bool]) -> None:
    """Let everybody work until it is so; fails after a while of real time."""
    with anyio.fail_after(PATIENCE):
        while not true():  # noqa: ASYNC110 - who asks without a pause keeps the store's thread off
            await anyio.sleep(0.0005)


class Lobby:
    """A gateway at work and everything around it."""

    def __init__(self, gateway: Gateway, store: SqliteStore, clock: Clock) -> None:
        self.gateway = gateway
        self.store = store
        self.clock = clock
        self.model: ScriptedModel
        self.planner: ScriptedPlanner
        self.channel: FakeChannel
        self.runner: Runner

    async def sees(self, *texts: str, chat: str = "1") -> None:
        """Wait until exactly these can be read in the chat."""
        try:
            await until(lambda: self.channel.seen_in(chat) == list(texts))
        except TimeoutError:
            assert self.channel.seen_in(chat) == list(texts)

    async def calm(self) -> None:
        """Wait until nobody has anything to do, and let what is on its way be settled."""
        await until(lambda: not self.gateway.actors.snapshot())
        await until(lambda: not any(one.busy for one in self.gateway.deliveries.values()))

    async def transcript(self, chat: str = "1") -> list[Message]:
        source = SessionSource(platform=self.channel.name, chat_id=chat)
        archive = self.store.seen_by(OWNER)
        session = await archive.by_key(build_session_key(source))
        assert session is not None
        return [row.message for row in await archive.messages(session.id)]

    async def texts(self, chat: str = "1") -> list[str]:
        return [text_of(message) for message in await self.transcript(chat)]

    async def open_rows(self, lane: str = "inbox") -> list[str]:
        rows = await self.store.lanes.claim(lane, None, "somebody", timedelta(0), 1000)
        return [row.key for row in rows]

    def running(self, chat: str = "1") -> str | None:
        source = SessionSource(platform=self.channel.name, chat_id=chat)
        return self.gateway.actors.activity(build_session_key(source)).run


class Robbed(Runner):
    """Whoever holds a session under it has lost it to another process right after."""

    @asynccontextmanager
    async def holding(self, session: str, *, new: bool = False) -> AsyncGenerator[Lease]:
        async with super().holding(session, new=new) as lease:
            if not new:
                leases = self._store.leases
                await leases.release(session, lease.generation)
                other = await leases.hold(session, "another", timedelta(minutes=1))
                await leases.release(session, other)
            yield lease


def update(text: str, key: str, *, chat: str = "1", channel: str = "fake") -> Inbound:
    return Inbound(key, Address(channel, chat), "ann", (Text(text),), None, f"m-{key}")


RARELY = GatewayRules(
    progress=False, look=86_400.0, supervisor=SupervisorRules(look=86_400.0)
)  # fmt: skip
"""Without looks for the sake of looking: each costs real time when hours of a clock go by."""


def rules(busy: Busy, **more: float) -> GatewayRules:
    return structs.replace(RARELY, actors=ActorRules(busy=busy, **more))


def gated() -> tuple[Gates, FakeTool]:
    """A tool that waits until its gate is opened."""
    gates = Gates()
    return gates, FakeTool("wait", gates)


async def busy_with_a_tool(one: Lobby, gates: Gates, text: str = "work") -> None:
    await one.channel.say(text)
    await gates.reached("a")


@asynccontextmanager
async def lobby(
    path: Path,
    *scripts: Script,
    tools: Sequence[FakeTool] = (),
    channel: FakeChannel | None = None,
    rules: GatewayRules | None = None,
    clock: Clock | None = None,
    door: Door = open_door,
    urgent: Mapping[str, Urgent] | None = None,
    refusal: Callable[[Letter], Awaitable[str]] = no_refusal,
    leave: ApprovalRules | None = None,
    postscript: Postscript = Postscript(),  # noqa: B008 - a frozen value
    running: Callable[[Session], Sequence[datetime]] | None = None,
    runs: type[Runner] = Runner,
    hooks: Hooks = NoHooks(),  # noqa: B008 - it has no state
) -> AsyncGenerator[Lobby]:
    """A gateway that runs while the block does, and is then cut off as by a power failure."""
    clock = clock or FakeClock()
    channel = channel or RoughChannel()
    async with open_store(path / "state.db", clock) as store:
        model = Repeater(*scripts)
        planner = ScriptedPlanner(model, {tool.spec.name: tool for tool in tools})
        approvals = ApprovalDesk(store, clock, leave) if leave else None
        planner.counsel = approvals
        runner = runs(store, clock, planner, half_a_cent, "default")

        def context(conversation: Conversation) -> Context:
            services = Services(approvals=approvals)
            return structs.replace(surroundings(conversation), services=services)

        house = House(
            store=store,
            clock=clock,
            runner=runner,
            channels={channel.name: channel},
            door=door,
            registry=standard_commands(),
            context=context,
            cwd="/work",
            approvals=approvals,
            urgent=urgent or {},
            refusal=refusal,
            postscript=postscript,
            running=running,
            tools=lambda platform: planner.tools,
            hooks=hooks,
        )
        one = Lobby(Gateway(house, rules or RARELY), store, clock)
        one.model, one.planner, one.channel, one.runner = model, planner, channel, runner
        async with anyio.create_task_group() as group:
            group.start_soon(one.gateway.run)
            yield one
            group.cancel_scope.cancel()
