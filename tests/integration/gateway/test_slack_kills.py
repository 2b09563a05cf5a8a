"""A gateway on Slack that is killed repeatedly loses no message and answers none twice."""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulators.slack.check import kill_run, own_posts, slack_home
from emulators.slack.server import serve_slack
from support.chat_platform.state import FaultRates
from support.gateway_instances import GatewayInstance, fork_server, run_instance
from support.kill_run import THREE_KILLS, Kill, Said, drawn_kills, run_with_kills
from support.profile_gateway import session_key_of
from support.slack import APP_TOKEN, TOKEN, emulator

WORKSPACES = 5
"""Slack limits the posts and the reads of each workspace on its own."""
PEOPLE_EACH = 8
FAULTS = FaultRates(
    repeated=0.3, shuffled=True, throttled=0.02, dropped=0.01, lost_reply=0.01, cut_poll=0.005
)


async def killed_run(folder: Path, updates: int, kills: Sequence[Kill], seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    slack = emulator(seed=seed)
    tokens = [TOKEN, *(f"{TOKEN}-{number}" for number in range(1, WORKSPACES))]
    teams = [slack.workspace.team, *(slack.install(token).team for token in tokens[1:])]
    people = [f"U{1001 + number}" for number in range(WORKSPACES * PEOPLE_EACH)]
    slack.people |= {person: person for person in people}
    direct = {one: slack.direct(one, teams[n % WORKSPACES]) for n, one in enumerate(people)}
    rooms = {slack.add_channel(f"room-{team}", team): team for team in teams}
    async with serve_slack(slack) as server, fork_server(folder) as start:
        # One session per chat, so that the order of its answers can be checked.
        own = {"free_response_channels": [*rooms], "reply_in_thread": False}
        settings: dict[str, object] = {"group_sessions_per_user": False, "slack": own}
        urls, secrets = (server.url, server.api_url), (",".join(tokens), APP_TOKEN)
        spec = slack_home(folder, urls, secrets, people, settings)
        run = kill_run(server, folder / "home" / "hermes.db")

        async def ask(count: int) -> None:
            for _ in range(count):
                text = f"q-{len(run.said)}" + (" long" if chance.random() < 0.02 else "")
                person = chance.choice(people)
                team = teams[people.index(person) % WORKSPACES]
                room = next(room for room, its_team in rooms.items() if its_team == team)
                chat = room if chance.random() < 0.03 else direct[person]
                slack.say(chat, text, person=person)
                run.add(Said(chat, person, text))

        async def start_once(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await server.connected()
            await ask(1)
            await run.end(instance)

        await run_instance(spec, start_once, start)
        slack.faults = FAULTS
        # A third while nobody listens: Slack keeps nothing, so it is found in the history.
        await run_with_kills(
            run, spec, start, ask, updates=updates, kills=kills, listening=server.connected
        )
    keys = {chat: session_key_of("slack", chat, "") for chat in direct.values()}
    unconfirmed = [server.changes[number] for number in server.unconfirmed]
    verdict = await run.judge(own_posts(slack), keys, unconfirmed)
    # Events of a chat wait until what was missed there is found: Slack sends them again meanwhile.
    assert [one for one in server.violations if "not acknowledged" not in one] == []
    sockets = server.sockets
    return (
        f"Slack, {updates} updates, {len(kills)} kills: {verdict}; {sockets.opened} connections, "
        f"{sockets.cut} cut, {sockets.redelivered} envelopes again, {sockets.lost} lost by Slack; "
        f"{len(server.calls)} calls, {server.limits.refused} over the limit, {dict(server.faults)}"
    )


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_slack(tmp_path: Path) -> None:
    sys.stdout.write(await killed_run(tmp_path, updates=500, kills=THREE_KILLS, seed=1))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_nothing_on_slack(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await killed_run(tmp_path, updates=5_000, kills=drawn_kills(30, 2), seed=2))
