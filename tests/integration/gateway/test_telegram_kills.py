"""A gateway on Telegram that is killed repeatedly loses no update and answers none twice."""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulators.telegram.check import kill_run, own_posts, telegram_home
from emulators.telegram.limits import FloodLimits
from emulators.telegram.server import serve_telegram
from hermes.kit.clock import SystemClock
from support.chat_platform.state import FaultRates
from support.gateway_instances import fork_server
from support.kill_run import THREE_KILLS, Kill, Said, drawn_kills, run_with_kills
from support.profile_gateway import session_key_of
from support.telegram import TOKEN, emulator

PRIVATE = range(1001, 1101)
GROUPS = range(-100_005, -100_000)
FAULTS = FaultRates(
    repeated=0.3, shuffled=True, throttled=0.02, dropped=0.01, lost_reply=0.01, cut_poll=0.05
)


async def killed_run(folder: Path, updates: int, kills: Sequence[Kill], seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    limits = FloodLimits(SystemClock())
    telegram = emulator(faults=FAULTS, seed=seed, limits=limits)
    async with serve_telegram(telegram) as server, fork_server(folder) as start:
        settings: dict[str, object] = {"group_sessions_per_user": False}
        spec = telegram_home(folder, server.url, TOKEN, PRIVATE, settings)
        run = kill_run(server, folder / "home" / "hermes.db")

        async def ask(count: int) -> None:
            for _ in range(count):
                text = f"q-{len(run.said)}" + (" long" if chance.random() < 0.02 else "")
                in_group = chance.random() < 0.03
                chat = chance.choice(GROUPS if in_group else PRIVATE)
                person = chance.choice(PRIVATE) if in_group else chat
                telegram.say(chat, text, person=person)
                run.add(Said(str(chat), str(person), text))

        await run_with_kills(run, spec, start, ask, updates=updates, kills=kills)
    keys = {str(chat): session_key_of("telegram", str(chat), "") for chat in PRIVATE}
    unconfirmed = [server.changes[number] for number in server.unconfirmed]
    verdict = await run.judge(own_posts(telegram), keys, unconfirmed)
    assert server.violations == []
    calls = server.calls.count("sendMessage")
    return (
        f"Telegram, {updates} updates, {len(kills)} kills: {verdict}; {calls} sends, "
        f"{limits.refused} over the limit, {dict(server.faults)}"
    )


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_telegram(tmp_path: Path) -> None:
    sys.stdout.write(await killed_run(tmp_path, updates=500, kills=THREE_KILLS, seed=1))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_nothing_on_telegram(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await killed_run(tmp_path, updates=5_000, kills=drawn_kills(30, 2), seed=2))
