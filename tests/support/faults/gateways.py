"""The gateway in a world: what is said in its chats, and what it tells who starts it."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from hermes.app.service.main import run_gateway
from hermes.app.service.options import RunOptions
from hermes.testing.delivery_check import PROGRESS_PREFIX
from hermes.testing.homes import CHANNEL_NAME, ProfileSettings, write_profile
from hermes.testing.platform.server import PlatformServer, serve_platform
from hermes.testing.profile_gateway import profile_gateway
from support.cli_process import TEST_TIMEOUT, HermesCli
from support.faults.homes import FaultHome, ObservedMessages, run_verb
from support.faults.models import SCRIPT
from support.faults.scenarios import (
    STALE_TIMEOUT_KEY,
    ExpectedMessage,
    FaultMoment,
    FaultSwitch,
    Surface,
    split_messages,
)

ACCOUNT = "main"
POLL_INTERVAL = 0.02


def gateway_chat(place: FaultHome) -> Iterator[ObservedMessages]:
    with place.world.trouble(place.path) as trouble:
        if trouble == FaultSwitch():
            yield from anyio.run(_chat_per_fault, place)
        else:
            yield anyio.run(_chat_with_fault, place, trouble)


async def _chat_with_fault(place: FaultHome, trouble: FaultSwitch) -> ObservedMessages:
    """What cannot be stored is not acknowledged: it is answered once, when that is over."""
    (said,) = place.world.at(Surface.CHAT)
    async with serve_platform() as server:
        write_gateway_home(place, server.url)
        async with profile_gateway(place.path) as tenant:
            supervisor = tenant.gateway.supervisor
            # Whoever waits for half a minute each time is not asked twice.
            tries = 0 if place.world.long else 2

            async def is_listening() -> bool:
                return supervisor.online(CHANNEL_NAME)

            async def is_told() -> bool:
                again = supervisor.snapshot()[CHANNEL_NAME].failures >= tries
                return bool(final_posts(server, "chat")) and again

            async def is_answered() -> bool:
                return final_posts(server, "chat")[-1:] == [SCRIPT.default.text]

            await wait_until_async(is_listening)
            trouble.on()
            server.say(ACCOUNT, "chat", "ann", said.name)
            await wait_until_async(is_told)
            told = final_posts(server, "chat")
            trouble.off()
            await wait_until_async(is_answered)
            assert final_posts(server, "chat") == [*told, SCRIPT.default.text]
    return ObservedMessages(said, told)


async def _chat_per_fault(place: FaultHome) -> list[ObservedMessages]:
    """Each fault in a chat of its own, all of them at once."""
    chats = {f"chat{number}": said for number, said in enumerate(place.world.faults)}
    async with serve_platform() as server:
        write_gateway_home(place, server.url)
        async with profile_gateway(place.path) as tenant:
            for chat, said in chats.items():
                server.say(ACCOUNT, chat, "ann", said.name)
            queues = tenant.app.store.queues

            async def is_calm() -> bool:
                if not all(final_posts(server, chat) for chat in chats):
                    return False
                lane = f"outbox:{CHANNEL_NAME}"
                return not [*await queues.topics("inbox"), *await queues.topics(lane)]

            await wait_until_async(is_calm)
    return [ObservedMessages(said, final_posts(server, chat)) for chat, said in chats.items()]


async def wait_until_async(true: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        while not await true():  # noqa: ASYNC110 - a database tells nobody
            await anyio.sleep(POLL_INTERVAL)


def write_gateway_home(place: FaultHome, platform: str) -> None:
    """The world as a home of the gateway, in which the test platform is a channel."""
    world = place.world
    env = {
        name: place.env.get(name, "")
        for name in ("OPENAI_BASE_URL", "HERMES_INFERENCE_PROVIDER", "HERMES_INFERENCE_MODEL")
    }
    mind = {"default": "", "provider": "", "base_url": ""}
    agent: dict[str, float] = {"api_max_retries": 1}
    if world.silence is not None:
        agent[STALE_TIMEOUT_KEY] = world.silence
    write_profile(
        place.path,
        ProfileSettings(
            account=ACCOUNT,
            url=platform,
            key=place.env.get("OPENAI_API_KEY", ""),
            env={**env, "MESSAGING_CWD": str(place.work)},
            settings={"model": mind, "agent": agent},
        ),
    )


def final_posts(server: PlatformServer, chat: str) -> list[str]:
    """What stands there for good."""
    shown = [post.text for post in server.truth.seen(ACCOUNT, chat)]
    return [text for text in shown if not text.startswith(PROGRESS_PREFIX)]


def gateway_run(place: FaultHome) -> Iterator[ObservedMessages]:
    world = place.world
    (said,) = world.at(Surface.GATEWAY)
    if world.moment is not FaultMoment.OPENING:
        yield from _run_with_taken_port(place, said)
        return
    context = place.context()
    with world.trouble(place.path) as trouble:
        trouble.on()
        options = RunOptions(force=True)
        shown, code = run_verb(lambda: run_gateway(place.home, place.env, options), context)
    yield ObservedMessages(said, split_messages(shown), code)


def _run_with_taken_port(place: FaultHome, said: ExpectedMessage) -> Iterator[ObservedMessages]:
    """With a port that another program has; it goes on serving what else there is."""
    with taken_port(place):
        (place.root / "own").mkdir()
        person = HermesCli(place.root / "own", place.url)
        person.env |= {"HERMES_HOME": str(place.path)}
        with person.running("gateway", "run") as running:
            running.hears("Log: ")
            ran = running.told(15)
    told = [line for line in ran.out.splitlines() if said.name in line]
    yield ObservedMessages(said, told, ran.code)


@contextmanager
def taken_port(place: FaultHome) -> Iterator[None]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = place.path / "config.yaml"
        config.write_text(config.read_text().replace("PORT", str(other.getsockname()[1])))
        yield
