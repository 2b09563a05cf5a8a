"""A gateway on Telegram that is killed repeatedly loses no update and answers none twice."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store
from hermes.testing.delivery_check import UNSETTLED, check_delivery, check_outbox, check_store
from hermes.testing.failpoints import failpoints
from hermes.testing.gateway_instances import (
    POLL_INTERVAL,
    GatewayInstance,
    fork_server,
    run_instance,
)
from hermes.testing.platform.state import FaultRates
from hermes.testing.profile_gateway import session_key_of
from hermes.testing.telegram.check import Said, WaitingQuestions, as_platform, ask, telegram_home
from hermes.testing.telegram.limits import FloodLimits
from hermes.testing.telegram.server import TelegramServer, serve_telegram
from support.telegram import TOKEN, emulator

pytestmark = pytest.mark.anyio

PRIVATE = range(1001, 1061)
GROUPS = range(-100_005, -100_000)
MAX_WAITING = 300
FAULTS = FaultRates(
    repeated=0.3, shuffled=True, throttled=0.01, dropped=0.01, lost_reply=0.01, cut_poll=0.05
)


class Conversation:
    """Asks questions and waits for their answers."""

    def __init__(self, server: TelegramServer, database: Path, seed: int) -> None:
        self.said: list[Said] = []
        self._server = server
        self._database = database
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable
        self._waiting = WaitingQuestions(server.telegram)

    @property
    def waiting(self) -> int:
        return self._waiting.count

    def ask(self, count: int) -> None:
        for _ in range(count):
            number = len(self.said)
            text = f"q-{number}" + (" long" if self._chance.random() < 0.02 else "")
            group = self._chance.random() < 0.03
            chat = self._chance.choice(GROUPS if group else PRIVATE)
            person = self._chance.choice(PRIVATE) if group else chat
            one = ask(self._server.telegram, chat, person, text)
            self.said.append(one)
            self._waiting.add(one)

    async def wait_for_all(self) -> None:
        while True:
            with anyio.move_on_after(POLL_INTERVAL):
                await self._server.until(self._waiting.all_answered)
                return
            if self._database.exists():
                self._waiting.give_up(check_outbox(self._database).parked)

    async def wait_settled(self) -> None:
        while any(error.endswith(UNSETTLED) for error in check_outbox(self._database).wrong):  # noqa: ASYNC110 - another process writes the outbox
            await anyio.sleep(POLL_INTERVAL)


async def run_with_kills(folder: Path, updates: int, kills: int, seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    limits = FloodLimits(SystemClock())
    telegram = emulator(faults=FAULTS, seed=seed, limits=limits)
    places, database = sorted(failpoints()), folder / "home" / "hermes.db"
    async with serve_telegram(telegram) as server, fork_server(folder) as start:
        settings: dict[str, object] = {"group_sessions_per_user": False}
        spec = telegram_home(folder, server.url, TOKEN, PRIVATE, settings)
        talk = Conversation(server, database, seed)

        async def kill(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await talk.wait_for_all()
            instance.kill()

        async def end(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await talk.wait_for_all()
            await talk.wait_settled()
            instance.end()

        for number in range(kills):
            talk.ask(updates * (number + 1) // kills - len(talk.said))
            plan = structs.replace(spec, die_at=chance.choice(places), nth=chance.randrange(1, 60))
            assert (await run_instance(plan, kill, start)).killed
            if talk.waiting > MAX_WAITING:
                # Telegram's limits: more would not be answered in the time of one process.
                await run_instance(spec, end, start)
        ended = await run_instance(spec, end, start)
    assert ended.report is not None
    truth = as_platform(telegram, talk.said)
    outbox = check_outbox(database)
    verdict = check_delivery(truth, outbox.parked)
    async with open_store(database, SystemClock()) as store:
        keys = {str(chat): session_key_of("telegram", str(chat), "") for chat in PRIVATE}
        wrong = await check_store(store, truth.written, keys, set())
    verdict.check()
    assert wrong == []
    calls = telegram.calls.count("sendMessage")
    return f"{updates} updates, {kills} kills: {verdict}; {calls} sends, {limits.refused} refused"


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_telegram(tmp_path: Path) -> None:
    sys.stdout.write(await run_with_kills(tmp_path, updates=200, kills=3, seed=1))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_nothing_on_telegram(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await run_with_kills(tmp_path, updates=5_000, kills=30, seed=2))
