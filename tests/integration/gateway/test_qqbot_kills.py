"""A gateway on QQ that is killed repeatedly loses no message and answers none twice."""

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulators.qqbot.check import kill_run, own_posts, qqbot_home
from emulators.qqbot.server import serve_qq
from emulators.qqbot.state import EmulatedQq, openid
from support.chat_platform.state import FaultRates
from support.delivery_check import answered_pieces
from support.gateway_instances import GatewayInstance, fork_server, run_instance
from support.kill_run import Kill, Said, drawn_kills, run_with_kills
from support.profile_gateway import session_key_of

PEOPLE = [openid(number) for number in range(1001, 1041)]
FAULTS = FaultRates(repeated=0.3, throttled=0.01, dropped=0.01, lost_reply=0.01)


async def killed_run(folder: Path, updates: int, kills: Sequence[Kill], seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    qq = EmulatedQq(seed=seed)
    # Only replies: messages that are none would use up the few of a month.
    qq.push_quota = 0
    async with serve_qq(qq) as server, fork_server(folder) as start:
        spec = qqbot_home(folder, server.url, PEOPLE, {})
        run = kill_run(server, folder / "home" / "hermes.db")

        def say(person: str, more: str = "") -> None:
            text = f"q-{len(run.said)}{more}"
            qq.say(text, chat=person)
            run.add(Said(person, person, text))

        async def greet(instance: GatewayInstance) -> None:
            """QQ keeps events for a session that exists."""
            await instance.wait_ready()
            await server.until(lambda: bool(server.connections))
            say(PEOPLE[0])
            await run.end(instance)

        async def ask(count: int) -> None:
            for _ in range(count):
                say(chance.choice(PEOPLE), " long" if chance.random() < 0.02 else "")

        await run_instance(spec, greet, start)
        qq.faults = FAULTS
        await run_with_kills(run, spec, start, ask, updates=updates, kills=kills)
    keys = {person: session_key_of("qqbot", person, "") for person in PEOPLE}
    verdict = await run.judge(own_posts(qq), keys)
    shown = Counter(piece for post in own_posts(qq) for piece in answered_pieces(post, {}))
    assert max(shown.values()) == 1, "QQ recognizes a reply that is sent again by its number"
    return f"QQ, {updates} updates, {len(kills)} kills: {verdict}; {len(server.logins)} logins"


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_qq(tmp_path: Path) -> None:
    sys.stdout.write(await killed_run(tmp_path, updates=80, kills=drawn_kills(2, 1), seed=1))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_nothing_on_qq(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await killed_run(tmp_path, updates=5_000, kills=drawn_kills(30, 2), seed=2))
