"""A gateway on Discord that is killed repeatedly loses no message and answers none twice."""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulators.discord.check import discord_home, kill_run, own_posts
from emulators.discord.server import serve_discord
from support.chat_platform.state import FaultRates
from support.discord import TOKEN, emulator
from support.gateway_instances import GatewayInstance, fork_server, run_instance
from support.kill_run import THREE_KILLS, Kill, Said, drawn_kills, run_with_kills
from support.profile_gateway import session_key_of

PEOPLE = [str(number) for number in range(1001, 1061)]
CHANNELS = 5
FAULTS = FaultRates(
    repeated=0.3, shuffled=True, throttled=0.02, dropped=0.01, lost_reply=0.01, cut_poll=0.02
)


async def killed_run(folder: Path, updates: int, kills: Sequence[Kill], seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    discord = emulator(seed=seed)
    async with serve_discord(discord) as server, fork_server(folder) as start:
        gateway = server.gateway
        direct = {person: discord.direct(person) for person in PEOPLE}
        guild = discord.add_guild()
        channels = [discord.add_channel(guild, f"room-{n}") for n in range(CHANNELS)]
        settings: dict[str, object] = {
            "group_sessions_per_user": False,
            "discord": {"free_response_channels": channels},
        }
        spec = discord_home(folder, server.url, server.api_url, TOKEN, PEOPLE, settings)
        run = kill_run(server, folder / "home" / "hermes.db")

        def say(chat: str, person: str, text: str) -> None:
            discord.say(chat, text, person=person)
            run.add(Said(chat, person, text))

        async def greet(instance: GatewayInstance) -> None:
            """Everybody writes once while the bot listens: it cannot find chats it never saw."""
            await instance.wait_ready()
            await server.until(lambda: bool(gateway.sessions))
            for person in PEOPLE:
                say(direct[person], person, f"q-{len(run.said)}")
            await run.end(instance)

        async def ask(count: int) -> None:
            for _ in range(count):
                text = f"q-{len(run.said)}" + (" long" if chance.random() < 0.02 else "")
                person = chance.choice(PEOPLE)
                in_server = chance.random() < 0.03
                say(chance.choice(channels) if in_server else direct[person], person, text)
            if chance.random() < 0.3:
                # Discord keeps a session only for a while: then history is all there is.
                gateway.forget_sessions()

        await run_instance(spec, greet, start)
        discord.faults = FAULTS
        await run_with_kills(run, spec, start, ask, updates=updates, kills=kills)
    keys = {chat: session_key_of("discord", chat, "") for chat in direct.values()}
    verdict = await run.judge(own_posts(discord), keys)
    assert server.violations == []
    return (
        f"Discord, {updates} updates, {len(kills)} kills: {verdict}; "
        f"{gateway.identified} sessions, "
        f"{gateway.resumed} resumed, {gateway.invalidated} refused; {len(server.calls)} calls, "
        f"{server.limits.refused} over the limit, {dict(server.faults)}"
    )


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_discord(tmp_path: Path) -> None:
    sys.stdout.write(await killed_run(tmp_path, updates=500, kills=THREE_KILLS, seed=1))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_nothing_on_discord(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await killed_run(tmp_path, updates=5_000, kills=drawn_kills(30, 2), seed=2))
