"""A gateway on Slack that is killed repeatedly loses no message and answers none twice."""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from emulators.slack.check import Said, WaitingQuestions, as_platform, slack_home
from emulators.slack.server import SlackServer, serve_slack
from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store
from support.chat_platform.state import FaultRates
from support.delivery_check import UNSETTLED, check_delivery, check_outbox, check_store
from support.failpoints import failpoints
from support.gateway_instances import (
    POLL_INTERVAL,
    GatewayInstance,
    fork_server,
    run_instance,
)
from support.profile_gateway import session_key_of
from support.slack import APP_TOKEN, TOKEN, emulator

PEOPLE = [f"U{number}" for number in range(1001, 1013)]
CHANNELS = 3
MAX_WAITING = 300
FAULTS = FaultRates(
    repeated=0.3, shuffled=True, throttled=0.01, dropped=0.01, lost_reply=0.01, cut_poll=0.005
)


class Conversation:
    """Asks questions and waits for their answers."""

    def __init__(
        self, server: SlackServer, database: Path, seed: int, people: Sequence[str]
    ) -> None:
        self.said: list[Said] = []
        self._server = server
        self._slack = server.slack
        self._database = database
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable
        self._waiting = WaitingQuestions(server.slack)
        self._people = people
        self.direct = {person: self._slack.direct(person) for person in people}
        self.channels = [self._slack.add_channel(f"room-{n}") for n in range(CHANNELS)]
        self._slack.people |= {person: person for person in people}

    @property
    def waiting(self) -> int:
        return self._waiting.count

    def ask_until(self, count: int) -> None:
        """Ask further questions, until there are so many."""
        while len(self.said) < count:
            text = f"q-{len(self.said)}" + (" long" if self._chance.random() < 0.02 else "")
            person = self._chance.choice(self._people)
            in_server = self._chance.random() < 0.03
            chat = self._chance.choice(self.channels) if in_server else self.direct[person]
            self._say(chat, person, text)

    def _say(self, chat: str, person: str, text: str) -> None:
        self._slack.say(chat, text, person=person)
        one = Said(chat, person, text)
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


async def run_with_kills(
    folder: Path, updates: int, kills: int, seed: int, people: Sequence[str] = PEOPLE
) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    slack = emulator(seed=seed)
    places, database = sorted(failpoints()), folder / "home" / "hermes.db"
    async with serve_slack(slack) as server, fork_server(folder) as start:
        talk = Conversation(server, database, seed, people)
        # One session per chat, so that the order of its answers can be checked.
        own = {"free_response_channels": talk.channels, "reply_in_thread": False}
        settings: dict[str, object] = {"group_sessions_per_user": False, "slack": own}
        urls = (server.url, server.api_url)
        spec = slack_home(folder, urls, (TOKEN, APP_TOKEN), people, settings)

        async def start_once(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await server.connected()
            talk.ask_until(1)
            await end(instance)

        async def kill(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await server.connected()
            talk.ask_until(share.stop)
            await talk.wait_for_all()
            instance.kill()

        async def end(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await talk.wait_for_all()
            await talk.wait_settled()
            instance.end()

        share = range(1)
        await run_instance(spec, start_once, start)
        slack.faults = FAULTS
        for number in range(kills):
            # A third while nobody listens: Slack keeps nothing, so it is found in the history.
            share = range(len(talk.said), updates * (number + 1) // kills)
            talk.ask_until(share.start + len(share) // 3)
            plan = structs.replace(spec, die_at=chance.choice(places), nth=chance.randrange(1, 60))
            assert (await run_instance(plan, kill, start)).killed
            if talk.waiting > MAX_WAITING:
                await run_instance(spec, end, start)
        talk.ask_until(updates)
        ended = await run_instance(spec, end, start)
    assert ended.report is not None
    truth = as_platform(slack, talk.said)
    outbox = check_outbox(database)
    verdict = check_delivery(truth, outbox.parked)
    async with open_store(database, SystemClock()) as store:
        keys = {chat: session_key_of("slack", chat, "") for chat in talk.direct.values()}
        wrong = await check_store(store, truth.written, keys, set())
    verdict.check()
    assert wrong == []
    assert server.violations == []
    sockets = server.sockets
    return (
        f"{updates} updates, {kills} kills: {verdict}; {sockets.opened} connections, "
        f"{sockets.cut} cut, {sockets.redelivered} envelopes again, {sockets.lost} lost by Slack; "
        f"{len(server.calls)} calls, {server.limits.refused} over the limit"
    )


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_slack(tmp_path: Path) -> None:
    sys.stdout.write(await run_with_kills(tmp_path, updates=40, kills=2, seed=1, people=PEOPLE[:6]))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_nothing_on_slack(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await run_with_kills(tmp_path, updates=5_000, kills=30, seed=2))
