"""Several profiles with several people each in one process, every secret of theirs a canary.

The world is built from a `Walls` of what keeps them apart; a test that replaces one of them by
a leaky one shows that the scanner would find the leak.
"""

import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Raw, Struct

from hermes.agent.plan import Plan
from hermes.gateway.gateway import Gateway
from hermes.gateway.intake import Door as ChatDoor
from hermes.gateway.letters import TurnedAway, Welcome
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.redact import Redactor
from hermes.ports.channel import Channel, Inbound
from hermes.ports.model import Request
from hermes.ports.store import Store
from hermes.ports.tool import Output, Tool, ToolContext
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect, ToolSpec
from hermes.session.context import get_session_env
from hermes.session.keys import SessionSource, build_session_key
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import open_store
from hermes.telemetry.logs import LogSettings, LogShare, at_work_for, set_up_logs
from hermes.testing.canaries import Canaries
from hermes.testing.household import Household, patient_rules
from hermes.testing.lives import all_is_answered
from hermes.testing.obliging import Obliging
from hermes.testing.platform.server import PlatformServer, serve
from hermes.testing.platform_channel import open_channel
from hermes.tools.catalog import ToolDeps, first_tools
from hermes.tools.terminal.shell import find_shell

CHANNEL = "test"
PATH = "/usr/local/bin:/usr/bin:/bin"
SECRETS = ".env"
log = logging.getLogger("hermes.plugins.chatty")

Env = Callable[[EnvRules, Scope], dict[str, str]]


def _redactor(secrets: Sequence[str]) -> Callable[[str], str]:
    return Redactor(secrets).redact


def _key(profile: str, inbound: Inbound) -> str:
    source = SessionSource(
        platform=inbound.address.channel,
        chat_id=inbound.address.chat,
        user_id=inbound.sender,
        profile=profile,
    )
    return build_session_key(source, profile=profile)


def _principal(inbound: Inbound) -> str:
    return inbound.sender


def _as_it_is(store: Store) -> Store:
    return store


def _straight(channel: Channel) -> Channel:
    return channel


def _own_file(profile: str, home: Path) -> Path:
    return home / "MEMORY.md"


def _whose_turn() -> str:
    return get_session_env("HERMES_SESSION_USER_ID")


class Walls(Struct, frozen=True, kw_only=True):
    """What keeps profiles and people apart, each as the product has it."""

    env: Env = child_env
    redactor: Callable[[Sequence[str]], Callable[[str], str]] = _redactor
    key: Callable[[str, Inbound], str] = _key
    principal: Callable[[Inbound], str] = _principal
    store: Callable[[Store], Store] = _as_it_is
    database: Callable[[str], str] = str
    channel: Callable[[Channel], Channel] = _straight
    logs: LogShare = LogShare.OWN
    memory: Callable[[str, Path], Path] = _own_file
    whose: Callable[[], str] = _whose_turn


class _Tool:
    """`work` gives what the model reads."""

    def __init__(self, name: str, work: Callable[[Scope], str]) -> None:
        self.spec = ToolSpec(name, name, {"type": "object"}, Effect.READ)
        self._work = work

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        await anyio.lowlevel.checkpoint()
        return Output.text(self._work(ctx.scope))


class _Search:
    """Everything the asking person may find."""

    spec = ToolSpec("search", "search", {"type": "object"}, Effect.READ)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        hits = await self._store.seen_by(ctx.scope.principal).search("mine", 10)
        return Output.text("\n".join(hit.snippet for hit in hits) or "nothing")


class _WatchedPlanner:
    """Shows each request to the scanner, as what the asking person's model reads."""

    def __init__(self, tenant: "Tenant", tools: Sequence[Tool], clock: Clock) -> None:
        self._tenant = tenant
        self._tools: Mapping[str, Tool] = {tool.spec.name: tool for tool in tools}
        self._clock = clock

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        tenant = self._tenant
        reader = f"{tenant.profile}/{scope.asker.user}"

        def heard(request: Request) -> None:
            tenant.canaries.look(reader, "request", msgspec.json.encode(request))

        return Plan(
            scope=scope,
            model=Obliging(heard),
            system=f"You serve {tenant.prompt}.",
            history=history,
            tools=self._tools,
            clock=self._clock,
        )


class Tenant:
    """One profile: its home with secrets, memory and notes on people, and its gateway."""

    def __init__(self, profile: str, home: Path, people: Sequence[str], canaries: Canaries) -> None:
        self.profile = profile
        self.home = home
        self.canaries = canaries
        self.prompt = canaries.plant(profile, "prompt")
        self.secret = canaries.plant(profile, "secret", hidden=True)
        self.words = {one: canaries.plant(f"{profile}/{one}", "words") for one in people}
        self.notes = {one: canaries.plant(f"{profile}/{one}", "notes") for one in people}
        home.mkdir(parents=True)
        (home / SECRETS).write_text(f"API_KEY={self.secret}\n")
        (home / "MEMORY.md").write_text(f"Remember {canaries.plant(profile, 'memory')}.\n")

    async def open(self, stack: AsyncExitStack, server: PlatformServer, world: "_World") -> Gateway:
        clock, walls = world.clock, world.walls
        path = self.home.parent / walls.database(self.profile) / "state.db"
        store = walls.store(await stack.enter_async_context(open_store(path, clock)))
        channel = await stack.enter_async_context(
            open_channel(server.url, self.profile, clock, CHANNEL)
        )
        tools = self._tools(store, world)
        household = Household(
            profile=self.profile,
            store=store,
            clock=clock,
            channels={CHANNEL: walls.channel(channel)},
            model=Obliging(),
            cwd=str(self.home),
            door=self._door(walls),
            planner=_WatchedPlanner(self, tools, clock),
        )
        return Gateway(household.build(), patient_rules())

    def _door(self, walls: Walls) -> ChatDoor:
        async def door(inbound: Inbound) -> Welcome | TurnedAway:
            key, principal = walls.key(self.profile, inbound), walls.principal(inbound)
            return Welcome(key=key, principal=principal)

        return door

    def _tools(self, store: Store, world: "_World") -> list[Tool]:
        walls = world.walls
        process = {"PATH": PATH, "HOME": str(self.home), "API_KEY": self.secret}
        deps = ToolDeps(
            sandbox=LocalSandbox(world.sandbox_door),
            blobs=FileBlobs(self.home / "blobs"),
            clock=world.clock,
            env=lambda scope: self._seen_env(walls.env(EnvRules(process=process), scope), scope),
            redact=walls.redactor([self.secret]),
            home=self.home,
            spill_folder=self.home / "spill",
            shell=find_shell(PATH),
            rg=None,
        )
        memory = walls.memory(self.profile, self.home)
        return [
            first_tools(deps)["terminal"],
            _Tool("memory", lambda scope: memory.read_text()),
            _Tool("notes", lambda scope: self.notes.get(walls.whose(), "nobody")),
            _Tool("chatty", self._log),
            _Search(store),
        ]

    def _seen_env(self, env: dict[str, str], scope: Scope) -> dict[str, str]:
        reader = f"{self.profile}/{scope.asker.user}"
        self.canaries.look(reader, "child's environment", msgspec.json.encode(env))
        return env

    def _log(self, scope: Scope) -> str:
        log.info("at work with %s for %s", self.prompt, self.notes.get(scope.asker.user, ""))
        return "logged"


class _World(Struct, frozen=True):
    walls: Walls
    clock: Clock
    sandbox_door: Door


QUESTIONS = (
    "{} mine {}",
    "{} mine {} use:memory",
    "{} mine {} use:notes use:notes",
    "{} mine {} use:chatty",
    "{} mine {} use:search",
    '{} mine {} use:terminal {{"command": "env"}}',
    '{} mine {} use:terminal {{"command": "cat .env; base64 .env"}}',
)


class Tenants:
    """The world at work; `live` lets its people talk."""

    def __init__(self, server: PlatformServer, tenants: Sequence[Tenant], seed: int) -> None:
        self.server = server
        self.tenants = tenants
        self._chance = random.Random(seed)  # noqa: S311 - it must be repeatable, not secret
        self._count = 0

    async def live(self, steps: int, at_once: int = 40) -> None:
        while steps > 0:
            said: list[tuple[str, str, str, str]] = []
            for _ in range(min(steps, at_once)):
                tenant = self._chance.choice(self.tenants)
                person = self._chance.choice(sorted(tenant.words))
                self._count += 1
                text = self._chance.choice(QUESTIONS)
                text = text.format(f"q-{self._count}", tenant.words[person])
                # People have the same names everywhere, and so have their chats.
                said.append((tenant.profile, person, person, text))
            steps -= len(said)
            self.server.truth.say_all(said)
            self.server.changed()
            await all_is_answered(self.server)

    def scan_chats(self, canaries: Canaries) -> None:
        for shown in self.server.truth.shown.values():
            for form in shown.forms:
                canaries.look(f"{shown.account}/{shown.chat}", "chat", form)


@asynccontextmanager
async def tenants(
    folder: Path, profiles: int, people: int, walls: Walls | None = None, seed: int = 0
) -> AsyncGenerator[tuple[Tenants, Canaries]]:
    """Profiles at work while the block runs; afterwards everything that is left is scanned."""
    walls, canaries, clock = walls or Walls(), Canaries(seed), SystemClock()
    names = [f"person{number}" for number in range(people)]
    all_of_them = [
        Tenant(f"profile{number}", folder / f"profile{number}", names, canaries)
        for number in range(profiles)
    ]
    logs = [
        set_up_logs(tenant.home / "logs", LogSettings(), Redactor(), walls.logs)
        for tenant in all_of_them
    ]
    with Door(grace=0.2) as door:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(serve(seed=seed))
            world = _World(walls, clock, door)
            group = await stack.enter_async_context(anyio.create_task_group())
            for tenant in all_of_them:
                with at_work_for(tenant.home / "logs"):
                    gateway = await tenant.open(stack, server, world)
                    group.start_soon(gateway.run)
            one = Tenants(server, all_of_them, seed)
            yield one, canaries
            group.cancel_scope.cancel()
    for log_files in logs:
        log_files.close()
    one.scan_chats(canaries)
    for tenant in all_of_them:
        canaries.look_at_files(tenant.profile, tenant.home, but=[SECRETS])
        database = tenant.home / "state.db"
        if database.exists():
            canaries.look_at_database(tenant.profile, database)
