"""Turns leave nothing behind in memory, and sessions that are only known cost none."""

import gc
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.gateway.gateway import Gateway
from hermes.kit.clock import SystemClock
from hermes.ports.channel import Caps, Inbound, Outgoing, Receipt
from hermes.ports.store import OpenSession
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.schema.sessions import Session
from hermes.session.recall import EACH, LIMIT
from hermes.store.sqlite import open_store
from hermes.testing.household import Household, key_of, patient_rules
from hermes.testing.loop_guard import guarded
from hermes.testing.obliging import Obliging

pytestmark = pytest.mark.anyio

AT_ONCE = 32
GROWTH = 1.15
SETTLING = 1000
"""Turns in which the index of what was said comes up with it, and the database's cache fills."""


class Forgetful:
    """A platform that counts what it is sent and keeps nothing."""

    def __init__(self) -> None:
        self.caps = Caps(max_text=100_000)
        self.sent = 0
        self._asked = 0
        self._more = anyio.Event()
        self._deliver: Callable[[Inbound], Awaitable[None]] | None = None
        self._listening = anyio.Event()

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        self._deliver = deliver
        self._listening.set()
        await anyio.sleep_forever()

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        self.sent += 1
        self._more.set()
        self._more = anyio.Event()
        return Receipt(to, f"p{self.sent}")

    async def ask(self, turns: int, chats: int, words: str = "") -> None:
        """So many questions, a few at a time, and all their answers."""
        await self._listening.wait()
        assert self._deliver is not None
        goal = self.sent + turns
        for number in range(turns):
            self._asked += 1
            where = Address("fake", f"c{number % chats}")
            text = (Text(f"q-{self._asked} {words}"),)
            await self._deliver(Inbound(f"u{self._asked}", where, "ann", text))
            while self.sent < goal - turns + number - AT_ONCE:
                await self._more.wait()
        while self.sent < goal:
            await self._more.wait()


@asynccontextmanager
async def at_work(folder: Path, known: int = 0) -> AsyncGenerator[Forgetful]:
    clock, channel = SystemClock(), Forgetful()
    async with open_store(folder / "state.db", clock) as store:
        now = clock.now()
        await store.commit(
            *[
                OpenSession(
                    Session(
                        id=f"s{number}",
                        started_at=now,
                        source="fake",
                        key=key_of("fake", f"known{number}", "default"),
                    )
                )
                for number in range(known)
            ]
        )
        household = Household(
            profile="default",
            store=store,
            clock=clock,
            channels={"fake": channel},
            model=Obliging(),
        )
        gateway = Gateway(household.build(), patient_rules())
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            yield channel
            group.cancel_scope.cancel()


def resident() -> int:
    """Bytes of memory this process has taken; pages of files are the system's to take back."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    (taken,) = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(taken) * 1024


async def grows(folder: Path, turns: int, chats: int, long: int = 0) -> tuple[int, int]:
    """From when what is kept of transcripts on purpose is full; `long` words fill it sooner."""
    async with at_work(folder) as channel:
        await channel.ask(LIMIT // (2 * (EACH + long)), chats, "x" * long)
        await channel.ask(SETTLING, chats)
        before = resident()
        # Looking for garbage, as the measuring does, holds up the loop; turns must not.
        async with guarded():
            await channel.ask(turns, chats)
        return before, resident()


async def objects_with(folder: Path, known: int) -> int:
    """How many objects are alive after one turn beside so many known sessions."""
    async with at_work(folder, known) as channel:
        await channel.ask(1, 1)
        gc.collect()
        return len(gc.get_objects())


async def test_turns_leave_nothing_behind(tmp_path: Path) -> None:
    before, after = await grows(tmp_path, turns=1000, chats=50, long=8_000)
    sys.stdout.write(f"{before >> 20} MB, after 1000 more turns {after >> 20} MB")
    assert after <= before * GROWTH


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_twenty_thousand_turns_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = await grows(tmp_path, turns=20_000, chats=500)
    with capsys.disabled():
        sys.stdout.write(f"\n{before >> 20} MB, after 20,000 more turns {after >> 20} MB\n")
    assert after <= before * GROWTH


async def test_sessions_that_are_only_known_cost_nothing(tmp_path: Path) -> None:
    await objects_with(tmp_path / "warm", 10)
    few = await objects_with(tmp_path / "few", 10)
    many = await objects_with(tmp_path / "many", 10_000)
    assert many - few < 1_000
