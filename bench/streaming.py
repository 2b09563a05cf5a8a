"""Measure how soon people see something: a sign after their message, words after the first token.

The gateway is a process; the platforms and their model are emulators in this one, on loopback.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from bench.gateway import bench_env, running_gateway
from bench.report import Number
from emulators.http_emulator import HttpEmulator
from emulators.mattermost.server import serve_mattermost
from emulators.mattermost.state import TOKEN as MATTERMOST_TOKEN
from emulators.mattermost.state import EmulatedMattermost
from emulators.telegram.server import serve_telegram
from emulators.telegram.state import EmulatedTelegram
from support.chat_platform.model import ModelCall

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


class _Platform(Struct, frozen=True):
    name: str
    server: HttpEmulator
    variables: dict[str, str]
    extra: dict[str, object]
    new_chat: Callable[[int], _Chat]


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_measure, Path(folder))


async def _measure(folder: Path) -> list[Number]:
    numbers: list[Number] = []
    async with AsyncExitStack() as stack:
        for platform in (await _telegram(stack), await _mattermost(stack)):
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

    variables = {"TELEGRAM_BOT_TOKEN": TELEGRAM_TOKEN}
    return _Platform("telegram", server, variables, {"base_url": server.url}, new_chat)


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

    variables = {"MATTERMOST_URL": server.url, "MATTERMOST_TOKEN": MATTERMOST_TOKEN}
    return _Platform("mattermost", server, variables, {}, new_chat)


def void(_: object) -> None:
    """Drop a result."""


async def _measure_platform(platform: _Platform, folder: Path) -> list[Number]:
    await anyio.Path(folder).mkdir()
    env = bench_env(folder / "home", f"{platform.server.url}/bench/v1")
    settings = {
        "platforms": {platform.name: {"enabled": True, "extra": platform.extra}},
        "streaming": {"enabled": True},
    }
    await anyio.Path(folder / "home" / "config.yaml").write_bytes(msgspec.json.encode(settings))
    env |= {**platform.variables, "GATEWAY_ALLOW_ALL_USERS": "true"}
    trip = await _round_trip(platform.server.url)
    gateway = running_gateway(env)
    await run_sync(gateway.__enter__)
    try:
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

    platform.server.model.on_call = on_call
    chat = platform.new_chat(number)
    asked = time.perf_counter()
    chat.say("q-1 hang:stream")
    signed = await _until(chat.has_sign)
    shown = await _until(lambda: chat.has_text("I begin, "))
    chat.say("/stop")
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
            async with session.get(f"{url}/emulator/calls") as response:
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
