"""Measure how soon people see something: a sign after their message, words after the first token.

The gateway is a process; the platforms and their model are emulators in this one, on loopback.
Matrix is a real Synapse; what people see there is what another client has received and decrypted.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from bench.gateway import bench_env, running_gateway
from bench.report import Number
from emulators.discord.server import serve_discord
from emulators.discord.state import EmulatedDiscord
from emulators.mattermost.server import serve_mattermost
from emulators.mattermost.state import TOKEN as MATTERMOST_TOKEN
from emulators.mattermost.state import EmulatedMattermost
from emulators.slack.mrkdwn import shown_text
from emulators.slack.server import serve_slack
from emulators.slack.state import EmulatedSlack
from emulators.telegram.server import serve_telegram
from emulators.telegram.state import EmulatedTelegram
from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer, ModelCall
from support.matrix import PASSWORD as MATRIX_PASSWORD
from support.matrix import new_user, running_person
from support.matrix_person import Person
from support.synapse import start, stop, wait_until_ready

DISCORD_TOKEN = "emulated.bot.token"  # noqa: S105 - of the emulator
TELEGRAM_TOKEN = "4242:AAtoken_of-the-emulator"  # noqa: S105 - of the emulator
ROUNDS = 10
TRIPS = 50
TIMEOUT = 20.0
REST = 2.0
"""Seconds between two rounds, so that the account's rate limit does not delay them."""
LOOK = 0.0002
"""Seconds between two looks at an emulator."""


class _Chat(Struct, frozen=True):
    """`say` writes a message; the others tell whether people see a sign of it, and a text."""

    say: Callable[[str], None]
    has_sign: Callable[[], bool]
    has_text: Callable[[str], bool]


class _Platform(Struct, frozen=True, kw_only=True):
    """`url` and `model` are those of the emulator; the bot receives messages once `connected`.

    `model_url` is where the model is served, if not by the emulator.
    """

    name: str
    url: str
    model: FakeModelServer
    model_url: str = ""
    connected: Callable[[], bool] = lambda: True
    variables: dict[str, str]
    extra: dict[str, object]
    new_chat: Callable[[int], _Chat]


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_measure, Path(folder))


async def _measure(folder: Path) -> list[Number]:
    numbers: list[Number] = []
    async with AsyncExitStack() as stack:
        for opened in (_telegram, _discord, _slack, _mattermost, _matrix):
            platform = await opened(stack)
            numbers += await _measure_platform(platform, folder / platform.name)
    return numbers


async def _telegram(stack: AsyncExitStack) -> _Platform:
    telegram = EmulatedTelegram()
    telegram.add_bot(TELEGRAM_TOKEN)
    server = await stack.enter_async_context(serve_telegram(telegram))

    def new_chat(number: int) -> _Chat:
        person = 2001 + number
        calls = len(server.calls)
        signs = {"setMessageReaction", "sendChatAction"}
        return _Chat(
            say=lambda text: void(telegram.say(person, text)),
            has_sign=lambda: not signs.isdisjoint(server.calls[calls:]),
            has_text=lambda text: any(text in one.text for one in telegram.posts(person)),
        )

    return _Platform(
        name="telegram",
        url=server.url,
        model=server.model,
        variables={"TELEGRAM_BOT_TOKEN": TELEGRAM_TOKEN},
        extra={"base_url": server.url},
        new_chat=new_chat,
    )


async def _discord(stack: AsyncExitStack) -> _Platform:
    discord = EmulatedDiscord()
    discord.add_bot(DISCORD_TOKEN)
    server = await stack.enter_async_context(serve_discord(discord))

    def new_chat(number: int) -> _Chat:
        person = str(2001 + number)
        direct = discord.direct(person)

        def has_sign() -> bool:
            asked = (one.reactions for (at, _), one in discord.messages.items() if at == direct)
            return direct in discord.typing or any(asked)

        return _Chat(
            say=lambda text: void(discord.say(direct, text, person=person)),
            has_sign=has_sign,
            has_text=lambda text: any(text in one.text for one in discord.posts(direct)),
        )

    return _Platform(
        name="discord",
        url=server.url,
        model=server.model,
        connected=lambda: bool(server.gateway.sessions),
        variables={"DISCORD_BOT_TOKEN": DISCORD_TOKEN},
        extra={"base_url": server.api_url},
        new_chat=new_chat,
    )


async def _slack(stack: AsyncExitStack) -> _Platform:
    slack = EmulatedSlack()
    slack.app_tokens.add("xapp-1-emulated")
    slack.install("xoxb-emulated-1")
    server = await stack.enter_async_context(serve_slack(slack))

    def new_chat(number: int) -> _Chat:
        person = f"U{2001 + number}"
        slack.people[person] = person
        direct = slack.direct(person)
        threads: list[str] = []

        def say(text: str) -> None:
            """A message and the answer to it are a thread."""
            threads.append(slack.say(direct, text, person=person, thread="".join(threads[:1])))

        def has_sign() -> bool:
            (asked,) = threads
            return bool(slack.status(direct, asked) or slack.messages[direct, asked].reactions)

        return _Chat(
            say=say,
            has_sign=has_sign,
            has_text=lambda text: any(text in shown_text(one) for one in slack.posts(direct)),
        )

    return _Platform(
        name="slack",
        url=server.url,
        model=server.model,
        connected=lambda: bool(server.sockets.open),
        variables={"SLACK_BOT_TOKEN": "xoxb-emulated-1", "SLACK_APP_TOKEN": "xapp-1-emulated"},
        extra={"base_url": server.api_url},
        new_chat=new_chat,
    )


async def _mattermost(stack: AsyncExitStack) -> _Platform:
    mattermost = EmulatedMattermost()
    server = await stack.enter_async_context(serve_mattermost(mattermost))

    def new_chat(number: int) -> _Chat:
        person = f"person{number:020}"
        mattermost.users[person] = person
        direct = mattermost.direct(person)

        def has_sign() -> bool:
            reacted = (one.reactions for one in mattermost.posts.values() if one.channel == direct)
            return any(reacted) or any(one == direct for one, _ in mattermost.typing)

        return _Chat(
            say=lambda text: void(mattermost.say(direct, text, person=person)),
            has_sign=has_sign,
            has_text=lambda text: any(text in one.text for one in mattermost.shown(direct)),
        )

    return _Platform(
        name="mattermost",
        url=server.url,
        model=server.model,
        variables={"MATTERMOST_URL": server.url, "MATTERMOST_TOKEN": MATTERMOST_TOKEN},
        extra={},
        new_chat=new_chat,
    )


async def _matrix(stack: AsyncExitStack) -> _Platform:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="synapse-"))
    synapse = start(Path(folder) / "synapse")
    stack.callback(stop, synapse)
    server = await run_sync(wait_until_ready, synapse)
    agent = await run_sync(new_user, server, "agent")
    ann = await run_sync(stack.enter_context, running_person(server, "ann"))
    model = FakeModelServer()
    app = web.Application()
    app.router.add_routes(model.routes())
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
    model_url = await stack.enter_async_context(listen(runner, "127.0.0.1", 0))
    return _Platform(
        name="matrix",
        url=server.url,
        model=model,
        model_url=model_url,
        connected=lambda: bool(ann.wait(ann.devices_of(agent))),
        variables={
            "MATRIX_HOMESERVER": server.url,
            "MATRIX_USER_ID": agent,
            "MATRIX_PASSWORD": MATRIX_PASSWORD,
        },
        extra={},
        new_chat=_MatrixRoom(ann, agent).new_chat,
    )


class _MatrixRoom:
    """One encrypted room for all rounds: keys are exchanged in the first one only."""

    def __init__(self, ann: Person, agent: str) -> None:
        self._ann = ann
        self._agent = agent
        self._room = ""

    def new_chat(self, number: int) -> _Chat:
        ann = self._ann
        if not self._room:
            self._room = ann.create_room(self._agent)
            ann.wait(ann.wait_for(self._has_joined))
        first = len(ann.events)

        def found(kind: str) -> list[dict[str, Any]]:
            events = ann.of(self._room, self._agent, first)
            return [one["content"] for one in events if one["type"] == kind]

        def say(text: str) -> None:
            content = {"msgtype": "m.text", "body": text}
            sent = ann.client.room_send(
                self._room, "m.room.message", content, ignore_unverified_devices=True
            )
            ann.wait(sent)

        return _Chat(
            say=say,
            has_sign=lambda: bool(ann.typing.get(self._room) or found("m.reaction")),
            has_text=lambda text: any(text in str(one) for one in found("m.room.message")),
        )

    def _has_joined(self) -> bool:
        known = self._ann.client.rooms[self._room]
        return self._agent in known.users and self._agent not in known.invited_users


def void(_: object) -> None:
    """Drop a result."""


async def _measure_platform(platform: _Platform, folder: Path) -> list[Number]:
    await anyio.Path(folder).mkdir()
    env = bench_env(folder / "home", f"{platform.model_url or platform.url}/bench/v1")
    settings = {
        "platforms": {platform.name: {"enabled": True, "extra": platform.extra}},
        "display": {"platforms": {platform.name: {"streaming": True}}},
    }
    await anyio.Path(folder / "home" / "config.yaml").write_bytes(msgspec.json.encode(settings))
    env |= {**platform.variables, "GATEWAY_ALLOW_ALL_USERS": "true"}
    trip = await _round_trip(platform.url)
    gateway = running_gateway(env)
    await run_sync(gateway.__enter__)
    try:
        await _until(platform.connected)
        await anyio.sleep(REST)
        pairs = [await _ask(platform, number) for number in range(ROUNDS + 1)][1:]
    finally:
        await run_sync(gateway.__exit__, None, None, None)
    signs, words = zip(*pairs, strict=True)
    return [
        *_rows(f"{platform.name}, message to first sign", signs, trip, 100),
        *_rows(f"{platform.name}, first token to first words", words, trip, 150),
    ]


async def _ask(platform: _Platform, number: int) -> tuple[float, float]:
    """Return the seconds from the message to a sign, and from the first token to the words."""
    called: list[float] = []

    def on_call(call: ModelCall) -> None:
        called.append(time.perf_counter())

    platform.model.on_call = on_call
    chat = platform.new_chat(number)
    chat.say("q-1 hang:stream")
    asked = time.perf_counter()
    signed = await _until(chat.has_sign)
    shown = await _until(lambda: chat.has_text("I begin"))
    chat.say("!stop" if platform.name == "slack" else "/stop")
    await _until(lambda: chat.has_text("Stopped."))
    await anyio.sleep(REST)
    return signed - asked, shown - called[0]


async def _until(condition: Callable[[], bool]) -> float:
    with anyio.fail_after(TIMEOUT):
        while not condition():  # noqa: ASYNC110 - the moment is measured
            await anyio.sleep(LOOK)
    return time.perf_counter()


async def _round_trip(url: str) -> float:
    times: list[float] = []
    async with aiohttp.ClientSession() as session:
        for _ in range(TRIPS):
            begun = time.perf_counter()
            async with session.get(f"{url}/unknown") as response:
                await response.read()
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _rows(name: str, seconds: tuple[float, ...], trip: float, bar: float) -> list[Number]:
    value = statistics.median(seconds)
    worst = f"at most {max(seconds) * 1000:.0f} ms in {len(seconds)} rounds"
    return [
        Number(name=name, value=value * 1000, unit="ms", bar=bar, note=worst),
        Number(name="the same / loopback HTTP round trip", value=value / trip, unit="x"),
    ]
