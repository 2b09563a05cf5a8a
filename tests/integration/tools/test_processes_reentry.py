"""The end of a background process reaches the conversation that began it, once, in every state.

Two hundred ends in each state: the chat is idle, busy, was reset, went on elsewhere, or the whole
gateway was killed and started again. The processes are played, everything else is real.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.followup_router import FollowupRouter
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import BusyMode
from hermes.kit.ids import process_id
from hermes.ports.model import ModelRequest
from hermes.ports.processes import AddProcess, BackgroundProcess
from hermes.schema.messages import User, text_of
from hermes.schema.scope import OWNER, Address, Scope
from hermes.schema.sessions import Session, SessionFilter
from hermes.session.keys import SessionSource, build_session_key
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptStep
from hermes.tools.processes.registry import ProcessDeps, ProcessRegistry
from support.fake_processes import FakeSandbox, open_process_registry, process_request
from support.gateway import GatewayHarness, gateway_harness, wait_until
from support.turns import FakeTool, GatedBody, assistant_message, tool_call

CHATS = [str(number) for number in range(1, 21)]
EACH = 10
BUSY_MODES = (BusyMode.INTERRUPT, BusyMode.QUEUE, BusyMode.STEER, BusyMode.COLLECT)
TIMEOUT = 60.0


def key_at(chat: str) -> str:
    return build_session_key(SessionSource(platform="fake", chat_id=chat))


class GatewayWithProcesses:
    """A gateway, its registry, and processes that end on demand."""

    def __init__(
        self, one: GatewayHarness, registry: ProcessRegistry, sandbox: FakeSandbox
    ) -> None:
        self.one = one
        self.registry = registry
        self.sandbox = sandbox
        self.begun: dict[str, list[str]] = {}

    async def session(self, chat: str) -> Session:
        found = await self.one.store.archive_for(OWNER).by_key(key_at(chat))
        assert found is not None
        return found

    async def scope(self, chat: str) -> Scope:
        session = await self.session(chat)
        address = Address("fake", chat)
        return Scope("default", session.id, "run", "/", address=address, key=key_at(chat))

    async def begin(self) -> None:
        """Start some processes for a session in each chat."""
        for chat in CHATS:
            await self.one.channel.say(f"hello {chat}", chat=chat)
        await wait_until(lambda: all(self.one.channel.texts_in(chat) for chat in CHATS))
        for chat in CHATS:
            scope = await self.scope(chat)
            records = [
                await self.registry.start(process_request(self.sandbox, scope, notify=True))
                for _ in range(EACH)
            ]
            self.begun[chat] = [record.id for record in records]

    async def end(self) -> None:
        for process in self.sandbox.started:
            process.exit(7)
        with anyio.fail_after(TIMEOUT):
            await wait_until(lambda: not self.registry.running)

    async def assert_reported(self, where: Sequence[str] = CHATS) -> None:
        """Each end was reported once, in the right session, and answered in the chat."""
        with anyio.fail_after(TIMEOUT):
            await wait_until(
                lambda: all(self._is_seen(chat, target) for chat, target in self._targets(where))
            )
            await self.one.wait_until_idle()
        for chat, target in self._targets(where):
            texts = "".join(await self._user_texts(target))
            seen = "".join(self.one.channel.texts_in(target))
            for name in self.begun[chat]:
                assert (texts.count(name), seen.count(name)) == (1, 1), (chat, target)
        assert await self.one.open_rows() == []
        everything = await self._everything()
        names = [name for some in self.begun.values() for name in some]
        assert sum(map(everything.count, names)) == len(CHATS) * EACH

    def _targets(self, where: Sequence[str]) -> list[tuple[str, str]]:
        return list(zip(CHATS, where, strict=True))

    def _is_seen(self, chat: str, target: str) -> bool:
        seen = "".join(self.one.channel.texts_in(target))
        return all(name in seen for name in self.begun[chat])

    async def _user_texts(self, chat: str) -> list[str]:
        transcript = await self.one.transcript(chat)
        return [text_of(message) for message in transcript if isinstance(message, User)]

    async def _everything(self) -> str:
        """All user messages in any session."""
        archive = self.one.store.archive_for(OWNER)
        rows = [
            row.message
            for digest in await archive.list(SessionFilter(), limit=1000)
            for row in await archive.messages(digest.session.id)
        ]
        return "\n".join(text_of(one) for one in rows if isinstance(one, User))


@asynccontextmanager
async def world(
    path: Path, busy: BusyMode = BusyMode.INTERRUPT, tools: Sequence[FakeTool] = ()
) -> AsyncGenerator[GatewayWithProcesses]:
    clock, sandbox = FakeClock(), FakeSandbox()
    rules = GatewayRules(actors=ActorRules(busy=busy), progress=False)
    async with gateway_harness(path, rules=rules, clock=clock, tools=tools) as one:
        followups = FollowupRouter(one.store, one.bus)
        deps = ProcessDeps(
            store=one.store,
            clock=clock,
            logs=path / "logs",
            followups=followups,
            current_scope=followups.current_scope,
            redact=str,
            max_processes=10_000,
        )
        async with open_process_registry(deps) as registry:
            yield GatewayWithProcesses(one, registry, sandbox)


async def test_idle_session_starts_a_turn(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.begin()
        await one.end()
        await one.assert_reported()


@pytest.mark.parametrize("busy", BUSY_MODES)
async def test_busy_session_queues_the_report(tmp_path: Path, busy: BusyMode) -> None:
    gates = GatedBody()

    def works(request: ModelRequest) -> Sequence[ScriptStep]:
        gate = text_of(request.messages[-1]).split()[-1]
        return [assistant_message(tool_call("wait", gate=gate))]

    async with world(tmp_path, busy=busy, tools=[FakeTool("wait", gates)]) as one:
        await one.begin()
        one.one.model.scripts += [works] * len(CHATS)
        for chat in CHATS:
            await one.one.channel.say(f"work {chat}", chat=chat)
        with anyio.fail_after(TIMEOUT):
            for chat in CHATS:
                await gates.reached(chat)
        runs = {chat: one.one.running(chat) for chat in CHATS}
        await one.end()
        await anyio.wait_all_tasks_blocked()
        assert {chat: one.one.running(chat) for chat in CHATS} == runs
        assert not any("proc_" in text for chat in CHATS for text in one.one.channel.texts_in(chat))
        for chat in CHATS:
            gates.open(chat)
        await one.assert_reported()
        for chat in CHATS:
            # The running turn was answered first, the report in a turn of its own.
            assert one.one.channel.texts_in(chat)[1] == f"re: through {chat}"


async def test_report_goes_to_the_session_after_a_reset(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.begin()
        old = [(await one.session(chat)).id for chat in CHATS]
        for chat in CHATS:
            await one.one.channel.say("/new", chat=chat)
        await wait_until(lambda: all(len(one.one.channel.texts_in(chat)) == 2 for chat in CHATS))
        new = [(await one.session(chat)).id for chat in CHATS]
        assert not set(old) & set(new)
        await one.end()
        await one.assert_reported()


async def test_report_follows_a_moved_session(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.begin()
        target = [f"1{chat}00" for chat in CHATS]
        for chat, new in zip(CHATS, target, strict=True):
            session = await one.session(chat)
            await one.one.channel.say(f"/resume {session.id}", chat=new)
        await wait_until(lambda: all(one.one.channel.texts_in(new) for new in target))
        await one.end()
        await one.assert_reported(target)
        assert not any("proc_" in text for chat in CHATS for text in one.one.channel.texts_in(chat))


async def test_lost_processes_are_reported_after_restart(tmp_path: Path) -> None:
    host, boot, _ = process_id().split("/", 2)
    dead = f"{host}/{boot}/4194999/1/x"
    begun: dict[str, list[str]] = {}
    async with world(tmp_path) as one:
        for chat in CHATS:
            await one.one.channel.say(f"hello {chat}", chat=chat)
        await wait_until(lambda: all(one.one.channel.texts_in(chat) for chat in CHATS))
        for chat in CHATS:
            begun[chat] = [f"proc_{chat:0>4}{number:08}" for number in range(EACH)]
            scope, now = await one.scope(chat), one.one.clock.now()
            records = [
                BackgroundProcess(
                    id=name, command="job", folder="/", scope=scope, started=now, pid=1
                )
                for name in begun[chat]
            ]
            await one.one.store.commit(*(AddProcess(record, dead) for record in records))
    async with world(tmp_path) as one:
        one.begun = begun
        await one.assert_reported()
    async with world(tmp_path) as one:
        await one.one.wait_until_idle()
        assert not any(one.one.channel.texts_in(chat) for chat in CHATS)
