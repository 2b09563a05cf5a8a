"""Turns do not grow memory, and inactive sessions use none."""

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from hermes.kit.clock import SystemClock
from hermes.ports.store import OpenSession
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store
from support.chat_platform.server import PlatformServer, serve_platform
from support.gateway_instances import AnswerWaiter, GatewayInstance, gateway_instance
from support.gateway_process import single_profile_spec
from support.homes import CHANNEL_NAME, ProfileSettings, write_profile
from support.profile_gateway import profile_gateway, session_key_of

ACCOUNT = "main"
CONCURRENT = 64
BATCH = 100
GROWTH = 1.15
FEW = 10
REVIEWED_AFTER = 15
"""Turns after which a session has been reviewed."""


class Askers:
    """Asks a number of questions, a few at a time, and waits for the answers."""

    def __init__(self, server: PlatformServer, chats: int) -> None:
        self._server = server
        self._answers = AnswerWaiter(server)
        self.chats = chats
        self._asked = 0

    async def ask(self, turns: int) -> None:
        last = self._asked + turns
        while self._asked < last:
            numbers = range(self._asked, min(self._asked + CONCURRENT, last))
            self._asked = numbers.stop
            self._server.platform.say_all(
                [(ACCOUNT, f"c{number % self.chats}", "ann", f"q-{number}") for number in numbers]
            )
            self._server.changed()
            await self._answers.wait_for_all()


def resident(instance: GatewayInstance) -> int:
    """Return the resident bytes without file pages, which the system can reclaim."""
    lines = Path(f"/proc/{instance.process.pid}/status").read_text().splitlines()
    (taken,) = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(taken) * 1024


async def sizes(folder: Path, turns: Sequence[int], chats: int) -> list[int]:
    """Return the gateway's memory after each number of further turns.

    It starts with a few chats that are reviewed, so that every kind of work was done once.
    """
    found: list[int] = []
    async with (
        serve_platform() as server,
        gateway_instance(single_profile_spec(folder, server.url, ACCOUNT)) as instance,
    ):
        people = Askers(server, FEW)
        async with anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await people.ask(FEW * REVIEWED_AFTER)
            people.chats = chats
            for more in turns:
                await people.ask(more)
                found.append(resident(instance))
            instance.end()
    assert instance.report is not None
    instance.report.check_loop()
    return found


async def test_turns_do_not_leak_memory(tmp_path: Path) -> None:
    before, after = await sizes(tmp_path, (300, 300), chats=30)
    sys.stdout.write(f"{before >> 20} MB, after 300 more turns {after >> 20} MB")
    assert after <= before * GROWTH


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_twenty_thousand_turns_do_not_leak_memory(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    before, *after = await sizes(tmp_path, (2_000, *[3_000] * 6), chats=500)
    later = ", ".join(f"{one / 2**20:.1f}" for one in after)
    prove(
        f"{before / 2**20:.1f} MB after 2,000 turns, then, every 3,000, {later} MB: at most "
        f"{max(after) / before:.2f} times as much"
    )
    assert max(after) <= before * GROWTH


async def store_sessions(home: Path, sessions: int) -> None:
    async with open_store(home / "hermes.db", SystemClock()) as store:
        for first in range(0, sessions, BATCH):
            numbers = range(first, min(first + BATCH, sessions))
            await store.commit(*[OpenSession(stored_session(number)) for number in numbers])


def stored_session(number: int) -> Session:
    key = session_key_of(CHANNEL_NAME, f"known{number}")
    return Session(id=f"s{number}", started_at=SystemClock().now(), source=CHANNEL_NAME, key=key)


async def objects_with(folder: Path, known: int) -> int:
    """Return the number of live objects after one turn, with so many stored sessions."""
    home = folder / "home"
    async with serve_platform() as server:
        write_profile(home, ProfileSettings(account=ACCOUNT, url=server.url))
        await store_sessions(home, known)
        async with profile_gateway(home):
            await Askers(server, 1).ask(1)
            gc.collect()
            return len(gc.get_objects())


async def test_stored_sessions_use_no_memory(tmp_path: Path) -> None:
    await objects_with(tmp_path / "warm", 10)
    few = await objects_with(tmp_path / "few", 10)
    many = await objects_with(tmp_path / "many", 10_000)
    assert many - few < 1_000
