"""A gateway process that is killed again and again loses nothing and doubles nothing unmarked."""

import random
import sys
from pathlib import Path

import pytest

from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store
from hermes.testing.failpoints import failpoints
from hermes.testing.gateway_process import Spec
from hermes.testing.history import judge, judge_store
from hermes.testing.household import key_of
from hermes.testing.lives import Life, all_is_answered, live
from hermes.testing.platform.server import PlatformServer, serve
from hermes.testing.platform.weather import ROUGH

pytestmark = pytest.mark.anyio

CHATS = 40
ACCOUNT = "main"


def questions(chance: random.Random, first: int, count: int) -> list[tuple[str, str, str, str]]:
    said: list[tuple[str, str, str, str]] = []
    for number in range(first, first + count):
        text = f"q-{number}"
        drawn = chance.random()
        if drawn < 0.1:
            text += " use:act"
        elif drawn < 0.12:
            text += " long"
        elif drawn < 0.15:
            text = f"/queue {text}"
        said.append((ACCOUNT, f"c{chance.randrange(CHATS)}", "ann", text))
    return said


async def live_and_die(server: PlatformServer, spec: Spec) -> None:
    """Until the appointed place is reached, or there is nothing left to do."""

    async def kill(life: Life) -> None:
        await life.says("ready")
        await all_is_answered(server)
        life.kill()

    assert (await live(spec, kill)).killed


async def live_to_the_end(server: PlatformServer, spec: Spec) -> list[str]:
    """Until everything is answered, and then an orderly end; returns who blocked the loop."""

    async def end(life: Life) -> None:
        await life.says("ready")
        await all_is_answered(server)
        life.end()

    life = await live(spec, end)
    assert life.report is not None
    return life.report.blocks


async def many_lives(folder: Path, updates: int, kills: int, seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311
    places = sorted(failpoints())
    async with serve(ROUGH, seed) as server:
        for number in range(kills):
            first, last = updates * number // kills, updates * (number + 1) // kills
            server.truth.say_all(questions(chance, first, last - first))
            place, nth = chance.choice(places), chance.randrange(1, 150)
            spec = Spec(url=server.url, folder=str(folder), die_at=place, nth=nth)
            await live_and_die(server, spec)
        blocks = await live_to_the_end(server, Spec(url=server.url, folder=str(folder)))
        verdict = judge(server.truth)
        told = {name.rpartition(" ")[2] for name in verdict.told}
        async with open_store(folder / ACCOUNT / "state.db", SystemClock()) as store:
            keys = {f"c{chat}": key_of("test", f"c{chat}", ACCOUNT) for chat in range(CHATS)}
            wrong = await judge_store(store, server.truth.spoken, keys, told)
            wrong += await store.integrity()
        given = server.truth.feed(ACCOUNT).given
    effects = (folder / ACCOUNT / "effects").read_text().splitlines()
    verdict.check()
    assert wrong == []
    assert blocks == []
    assert len(effects) == len(set(effects))
    return f"{updates} updates given out {given} times, {kills} kills: {verdict}"


async def test_nothing_is_lost_however_often_it_is_killed(tmp_path: Path) -> None:
    sys.stdout.write(await many_lives(tmp_path, updates=2000, kills=20, seed=1))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_in_a_hundred_kills(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = await many_lives(tmp_path, updates=20_000, kills=100, seed=seed)
    with capsys.disabled():
        sys.stdout.write(f"\n{numbers}\n")
