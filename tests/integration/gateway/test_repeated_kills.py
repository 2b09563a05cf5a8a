"""A gateway that is killed repeatedly loses nothing and repeats nothing without a mark."""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import structs

from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store
from support.chat_platform.server import serve_platform
from support.chat_platform.state import SOME_FAULTS
from support.delivery_check import check_delivery, check_outbox, check_store
from support.failpoints import failpoints
from support.gateway_instances import (
    AnswerWaiter,
    GatewayInstance,
    StartInstance,
    fork_server,
    run_instance,
)
from support.gateway_process import GatewayReport, GatewaySpec, single_profile_spec
from support.homes import OWNER, ProfileSettings, write_profile
from support.profile_gateway import session_key_of

CHATS = 100
ACCOUNT = "main"
ACT = '{} use:terminal {{"command": "echo {} >> effects"}}'


def questions(
    chance: random.Random, first: int, count: int, people: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    said: list[tuple[str, str, str, str]] = []
    for number in range(first, first + count):
        text = f"q-{number}"
        drawn = chance.random()
        if drawn < 0.1:
            text = ACT.format(text, text)
        elif drawn < 0.12:
            text += " long"
        elif drawn < 0.15:
            text = f"/queue {text}"
        chat = chance.randrange(CHATS)
        said.append((ACCOUNT, f"c{chat}", people[chat % len(people)], text))
    return said


async def run_until_killed(
    answers: AnswerWaiter, spec: GatewaySpec, start_instance: StartInstance
) -> None:
    """Run until the failpoint is reached or there is nothing left to do."""

    async def kill(instance: GatewayInstance) -> None:
        await instance.wait_ready()
        await answers.wait_for_all()
        instance.kill()

    assert (await run_instance(spec, kill, start_instance)).killed


async def run_until_answered(
    answers: AnswerWaiter, spec: GatewaySpec, start_instance: StartInstance
) -> GatewayReport:
    """Run until everything is answered, then shut down."""

    async def end(instance: GatewayInstance) -> None:
        await instance.wait_ready()
        await answers.wait_for_all()
        await answers.wait_settled()
        instance.end()

    instance = await run_instance(spec, end, start_instance)
    assert instance.report is not None
    return instance.report


async def run_with_kills(
    folder: Path, updates: int, kills: int, seed: int, members: Sequence[str] = ()
) -> str:
    """Without members, the owner asks in every chat."""
    chance = random.Random(seed)  # noqa: S311
    places, database = sorted(failpoints()), folder / "home" / "hermes.db"
    async with serve_platform(SOME_FAULTS, seed) as server, fork_server(folder) as start_instance:
        spec = single_profile_spec(folder, server.url, ACCOUNT)
        if members:
            env = {"MESSAGING_CWD": str(folder / "work")}
            given = ProfileSettings(
                account=ACCOUNT, url=server.url, people=members, owners=(), env=env
            )
            write_profile(folder / "home", given)
        answers = AnswerWaiter(server, database)
        for number in range(kills):
            first, last = updates * number // kills, updates * (number + 1) // kills
            said = questions(chance, first, last - first, members or (OWNER,))
            server.platform.say_all(said)
            failpoint, nth = chance.choice(places), chance.randrange(1, 150)
            await run_until_killed(
                answers, structs.replace(spec, die_at=failpoint, nth=nth), start_instance
            )
        report = await run_until_answered(answers, spec, start_instance)
        truth = server.platform
    outbox = check_outbox(database, truth.written)
    verdict = check_delivery(truth, outbox.parked, outbox.receipts)
    async with open_store(database, SystemClock()) as store:
        keys = {f"c{chat}": session_key_of("test", f"c{chat}", "") for chat in range(CHATS)}
        reply = {name.rpartition(" ")[2] for name in verdict.reported}
        wrong = outbox.wrong + await check_store(store, truth.written, keys, reply)
        wrong += await store.maintenance.integrity()
    effects = (folder / "work" / "effects").read_text().splitlines()
    verdict.check()
    assert wrong == []
    report.check_loop()
    assert len(effects) == len(set(effects))
    given = truth.feed(ACCOUNT).given
    return f"{updates} updates given out {given} times, {kills} kills: {verdict}; {report.loop}"


@pytest.mark.timeout(900)
async def test_repeated_kills_lose_nothing(tmp_path: Path) -> None:
    sys.stdout.write(await run_with_kills(tmp_path, updates=500, kills=10, seed=1))


@pytest.mark.timeout(600)
async def test_repeated_kills_lose_nothing_of_a_member(tmp_path: Path) -> None:
    """Members have a lower inbound limit, and repetitions do not count against it."""
    four = ("bob", "cat", "dan", "eve")
    sys.stdout.write(await run_with_kills(tmp_path, updates=200, kills=4, seed=2, members=four))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(2))
async def test_a_hundred_kills_lose_nothing(
    tmp_path: Path, seed: int, prove: Callable[[str], None]
) -> None:
    numbers = await run_with_kills(tmp_path, updates=20_000, kills=100, seed=seed)
    prove(numbers)
