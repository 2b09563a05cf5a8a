"""The gateway in a world: what is said in its chats, and what it tells who starts it."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from fault_models import SCRIPT
from fault_places import Heard, Place, told_by
from fault_worlds import SILENCE, Moment, Said, Surface, Switch, messages
from hermes.daemon.options import RunOptions
from hermes.daemon.process import run_gateway
from hermes.testing.history import PROGRESS
from hermes.testing.homes import CHANNEL, Furniture, furnish
from hermes.testing.household import at_work
from hermes.testing.platform.server import PlatformServer, serve
from processes import PATIENCE, Hermes

ACCOUNT = "main"
LOOK = 0.02


def gateway_chat(place: Place) -> Iterator[Heard]:
    with place.world.trouble(place.path) as trouble:
        if trouble == Switch():
            yield from anyio.run(_chatted, place)
        else:
            yield anyio.run(_troubled, place, trouble)


async def _troubled(place: Place, trouble: Switch) -> Heard:
    """What cannot be stored is not acknowledged: it is answered once, when that is over."""
    (said,) = place.world.at(Surface.CHAT)
    async with serve() as server:
        let_in(place, server.url)
        async with at_work(place.path) as tenant:
            supervisor = tenant.gateway.supervisor
            # Whoever waits for half a minute each time is not asked twice.
            tries = 0 if place.world.long else 2

            async def is_listening() -> bool:
                return supervisor.online(CHANNEL)

            async def is_told() -> bool:
                again = supervisor.snapshot()[CHANNEL].failures >= tries
                return bool(posts(server, "chat")) and again

            async def is_answered() -> bool:
                return posts(server, "chat")[-1:] == [SCRIPT.default.text]

            await until(is_listening)
            trouble.on()
            server.say(ACCOUNT, "chat", "ann", said.name)
            await until(is_told)
            told = posts(server, "chat")
            trouble.off()
            await until(is_answered)
            assert posts(server, "chat") == [*told, SCRIPT.default.text]
    return Heard(said, told)


async def _chatted(place: Place) -> list[Heard]:
    """Each fault in a chat of its own, all of them at once."""
    chats = {f"chat{number}": said for number, said in enumerate(place.world.faults)}
    async with serve() as server:
        let_in(place, server.url)
        async with at_work(place.path) as tenant:
            for chat, said in chats.items():
                server.say(ACCOUNT, chat, "ann", said.name)
            lanes = tenant.app.store.lanes

            async def is_calm() -> bool:
                if not all(posts(server, chat) for chat in chats):
                    return False
                lane = f"outbox:{CHANNEL}"
                return not [*await lanes.topics("inbox"), *await lanes.topics(lane)]

            await until(is_calm)
    return [Heard(said, posts(server, chat)) for chat, said in chats.items()]


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(PATIENCE):
        while not await true():  # noqa: ASYNC110 - a database tells nobody
            await anyio.sleep(LOOK)


def let_in(place: Place, platform: str) -> None:
    """The world as a home of the gateway, in which the test platform is a channel."""
    world = place.world
    env = {
        name: place.env.get(name, "")
        for name in ("OPENAI_BASE_URL", "HERMES_INFERENCE_PROVIDER", "HERMES_INFERENCE_MODEL")
    }
    mind = {"default": "", "provider": "", "base_url": ""}
    agent: dict[str, float] = {"api_max_retries": 1}
    if world.silence is not None:
        agent[SILENCE] = world.silence
    furnish(
        place.path,
        Furniture(
            account=ACCOUNT,
            url=platform,
            key=place.env.get("OPENAI_API_KEY", ""),
            env={**env, "MESSAGING_CWD": str(place.work)},
            settings={"model": mind, "agent": agent},
        ),
    )


def posts(server: PlatformServer, chat: str) -> list[str]:
    """What stands there for good."""
    shown = [post.text for post in server.truth.seen(ACCOUNT, chat)]
    return [text for text in shown if not text.startswith(PROGRESS)]


def gateway_run(place: Place) -> Iterator[Heard]:
    world = place.world
    (said,) = world.at(Surface.GATEWAY)
    if world.moment is not Moment.OPENING:
        yield from _taken(place, said)
        return
    context = place.context()
    with world.trouble(place.path) as trouble:
        trouble.on()
        options = RunOptions(force=True)
        shown, code = told_by(lambda: run_gateway(place.home, place.env, options), context)
    yield Heard(said, messages(shown), code)


def _taken(place: Place, said: Said) -> Iterator[Heard]:
    """With a port that another program has; it goes on serving what else there is."""
    with another_program(place):
        (place.root / "own").mkdir()
        person = Hermes(place.root / "own", place.url)
        person.env |= {"HERMES_HOME": str(place.path)}
        with person.running("gateway", "run") as running:
            running.hears("is logged in")
            ran = running.told(15)
    told = [line for line in ran.out.splitlines() if said.name in line]
    yield Heard(said, told, ran.code)


@contextmanager
def another_program(place: Place) -> Iterator[None]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = place.path / "config.yaml"
        config.write_text(config.read_text().replace("PORT", str(other.getsockname()[1])))
        yield
