"""Where people meet the agent, each brought into a world and asked what it says there."""

import io
import json
import os
import socket
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    asynccontextmanager,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aiohttp
import anyio

from api_house import House, Told, settings
from drawn import drawn
from fault_models import SCRIPT
from fault_worlds import SECRET, SILENCE, Moment, Said, Surface, Switch, World, messages
from hermes import Agent
from hermes.api.server import ApiServer
from hermes.app.archive import open_archive
from hermes.app.build import App, Choices, open_app
from hermes.cli import full_screen, interactive
from hermes.cli.boundary import run_guarded
from hermes.cli.checkup import doctor
from hermes.cli.context import CliContext
from hermes.cli.oneshot import answer, answer_with
from hermes.cli.style import Style
from hermes.cli.verbs import config
from hermes.cli.verbs.chat import add_arguments
from hermes.config.env import Env
from hermes.config.home import FIRST_FOLDERS, Home, resolve_home
from hermes.daemon.options import RunOptions
from hermes.daemon.process import run_gateway
from hermes.kit.clock import SystemClock
from hermes.library import collect
from hermes.local.here import open_here
from hermes.local.partner import Partner, Question, Start
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.testing.history import PROGRESS
from hermes.testing.homes import CHANNEL, Furniture, furnish
from hermes.testing.household import at_work
from hermes.testing.platform.server import PlatformServer, serve
from hermes.tui.widgets.transcript import Told as OnScreen
from processes import PATIENCE, Hermes

ACCOUNT = "main"
LOOK = 0.02
FIRST_WORDS = ("some wor", "some words")
"""What some models say before they fail."""
GREETING = "Type a request, or /help. Ctrl+C interrupts, Ctrl+D leaves."


class Heard(NamedTuple):
    """`told` are the messages, `code` is how a command ended, where it was one."""

    said: Said
    told: Sequence[str]
    code: int | None = None


class Place:
    """A home in a world."""

    def __init__(self, root: Path, world: World, url: str) -> None:
        self.world = world
        self.root = root
        self.path = root / "home"
        self.path.mkdir(mode=0o700)
        self.work = root / "work"
        self.work.mkdir()
        self.url = world.url or url
        self.env = Env(
            {
                "HOME": str(root),
                "PATH": os.environ["PATH"],
                "HERMES_HOME": str(self.path),
                "OPENAI_BASE_URL": self.url,
                "OPENAI_API_KEY": SECRET,
                "HERMES_INFERENCE_PROVIDER": "openai",
                "HERMES_INFERENCE_MODEL": "mock",
                **world.env,
            }
        )
        if world.config:
            (self.path / "config.yaml").write_text(world.config)
        world.broken(self.path)

    @property
    def home(self) -> Home:
        return resolve_home(self.env)

    @contextmanager
    def partner(self) -> Iterator[Partner]:
        start = Start(cwd=str(self.work), person=True)
        with open_here(self.home, self.env, start) as partner:
            yield partner

    @asynccontextmanager
    async def app(self) -> AsyncGenerator[App]:
        async with open_app(self.home, self.env, Choices(workspace=str(self.work))) as app:
            yield app

    def context(self, stdin: io.TextIOBase | None = None) -> CliContext:
        return CliContext(self.env, None, (stdin or io.StringIO(), io.StringIO(), io.StringIO()))

    def arguments(self, *words: str) -> Namespace:
        parser = ArgumentParser()
        add_arguments(parser)
        folder = () if "--cwd" in self.world.words else ("--cwd", str(self.work))
        return parser.parse_args([*words, *folder, *self.world.words])

    def contents(self) -> dict[str, bytes]:
        """What people have in their home; logs and locks are ours."""
        if self.path.is_file():
            return {"": self.path.read_bytes()}
        ours = {".log", ".lock", ".db-wal", ".db-shm"}
        files = [one for one in self.path.rglob("*") if one.is_file() and one.suffix not in ours]
        return {str(one.relative_to(self.path)): one.read_bytes() for one in files}

    def questions(self) -> list[str]:
        async def look() -> list[str]:
            async with open_archive(self.home, SystemClock()) as store:
                return [one.preview for one in await store.seen_by(OWNER).list(SessionFilter())]

        return anyio.run(look)


def told_by(verb: Callable[[], int], context: CliContext) -> tuple[str, int]:
    """All that a command shows, on whatever stream, and how it ends."""
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        code = run_guarded(verb)
    return context.stdout.getvalue() + context.stderr.getvalue() + screen.getvalue(), code


def prompt(place: Place) -> Iterator[Heard]:
    world = place.world
    if world.moment is not Moment.TURN:
        (said,) = world.faults
        context = place.context()
        args = place.arguments("-z", "hello")
        with world.trouble(place.path) as trouble:
            trouble.on()
            shown, code = told_by(lambda: answer(args, "hello", context), context)
        yield Heard(said, messages(shown, SCRIPT.default.text), code)
        return
    with world.trouble(place.path) as trouble, place.partner() as partner:
        trouble.on()
        for said in world.faults:
            context = place.context()
            args = place.arguments("-z", said.name)
            ask = partial(answer_with, partner, Question((Text(said.name),)), args, context)
            shown, code = told_by(ask, context)
            assert context.stdout.getvalue().strip() in {"", *FIRST_WORDS}
            yield Heard(said, messages(shown, *FIRST_WORDS), code)
            _begin_anew(partner)


def _begin_anew(partner: Partner) -> None:
    with suppress(HermesError):
        partner.command("/new")


def plain_chat(place: Place) -> Iterator[Heard]:
    world = place.world
    if world.moment is Moment.OPENING:
        (said,) = world.faults
        context = place.context()
        with world.trouble(place.path) as trouble:
            trouble.on()
            shown, code = told_by(lambda: interactive.talk(place.arguments(), context), context)
        yield Heard(said, messages(shown), code)
        return
    with (
        keyboard() as stdin,
        world.trouble(place.path) as trouble,
        place.partner() as partner,
    ):
        context = place.context(stdin)
        chat = interactive.Chat(partner, context, Style(context.stdout, None, "dumb"))
        trouble.on()
        if world.moment is Moment.GREETING:
            chat._greet()
            told = messages(context.stdout.getvalue(), GREETING)
            assert told.pop(0).startswith("hermes · ")
            yield Heard(world.faults[0], told)
            return
        for said in world.faults:
            context.stdout.seek(0)
            context.stdout.truncate()
            shown, _ = told_by(partial(chat._obey, said.name), context)
            yield Heard(said, messages(shown, *FIRST_WORDS))
            _begin_anew(partner)


@contextmanager
def keyboard() -> Iterator[io.TextIOBase]:
    """What somebody types at a terminal."""
    here, there = os.openpty()
    try:
        with open(there, encoding="utf-8") as stdin:  # noqa: PTH123
            yield stdin
    finally:
        os.close(here)


def terminal_ui(place: Place) -> Iterator[Heard]:
    world = place.world
    if world.moment is Moment.OPENING:
        (said,) = world.faults
        context = place.context()
        talk = partial(full_screen.talk, place.arguments(), context, headless=True)
        with world.trouble(place.path) as trouble:
            trouble.on()
            shown, code = told_by(talk, context)
        yield Heard(said, messages(shown), code)
        return
    with world.trouble(place.path) as trouble, place.partner() as partner:
        yield from anyio.run(_drawn, place, partner, trouble)


async def _drawn(place: Place, partner: Partner, trouble: Switch) -> list[Heard]:
    world, found = place.world, list[Heard]()
    companion = full_screen.AtTerminal(lambda: nullcontext(partner), place.context())
    async with drawn(companion, place.root, size=(200, 50)) as screen:
        talk, transcript = screen.ui.chat.talk, screen.ui.chat.transcript
        if world.moment is Moment.GREETING:
            told = messages(transcript.plain())
            assert told.pop(0).startswith("hermes · ")
            return [Heard(world.faults[0], told)]
        trouble.on()
        for said in world.faults:
            before = len(transcript.children)
            talk.add(said.name)
            await talk.go_on()
            asked, *told = (
                one.plain for one in transcript.children[before:] if isinstance(one, OnScreen)
            )
            assert asked == f"> {said.name}"
            found.append(Heard(said, [one for one in told if one not in {"", *FIRST_WORDS}]))
            talk.add("/new")
            await talk.go_on()
    return found


def library(place: Place) -> Iterator[Heard]:
    with place.world.trouble(place.path) as trouble:
        yield from anyio.run(_collected, place, trouble)


async def _collected(place: Place, trouble: Switch) -> list[Heard]:
    world = place.world
    if world.moment is Moment.OPENING:
        trouble.on()
        return [Heard(world.faults[0], [await _refused(place)])]
    async with place.app() as app:
        trouble.on()
        if world.moment is Moment.GREETING:
            return [Heard(world.faults[0], app.warnings)]
        found: list[Heard] = []
        for said in world.faults:
            app.conversation.start_new()
            found.append(Heard(said, [await _answered(app, said.name)]))
    return found


async def _refused(place: Place) -> str:
    home = place.env["HERMES_HOME"]
    try:
        async with Agent(Choices(workspace=str(place.work)), home=home):
            raise AssertionError("it opened")
    except HermesError as error:
        return error.sentence


async def _answered(app: App, question: str) -> str:
    try:
        return (await collect(app, [Text(question)])).ended.reason
    except HermesError as error:
        return error.sentence


def api(place: Place) -> Iterator[Heard]:
    with place.world.trouble(place.path) as trouble:
        yield from anyio.run(_called, place, trouble)


async def _called(place: Place, trouble: Switch) -> list[Heard]:
    found: list[Heard] = []
    async with place.app() as app:
        server = ApiServer(settings(), SystemClock())
        server.attach("default", app)
        async with server, aiohttp.ClientSession() as http:
            one = House(server, app, None, http)
            trouble.on()
            for said in place.world.faults:
                messages = [{"role": "user", "content": said.name}]
                told = await one.chat({"model": "hermes-agent", "messages": messages})
                found.append(Heard(said, [_refusal(told)]))
    return found


def _refusal(told: Told) -> str:
    """An error, or beside the words that came before it."""
    if told.status == 200:
        return told.json["hermes"]["error"]
    assert told.code
    return told.json["error"]["message"]


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


def doctors(place: Place) -> Iterator[Heard]:
    """What it finds is one thing, the cause."""
    world = place.world
    (said,) = world.at(Surface.DOCTOR)
    for name in FIRST_FOLDERS if place.path.is_dir() else ():
        with suppress(FileExistsError):
            (place.path / name).mkdir()
    taken = another_program(place) if "PORT" in world.settings else nullcontext()
    context = place.context()
    args = Namespace(fix=False, json=True)
    with taken, world.trouble(place.path) as trouble:
        trouble.on()
        shown, code = told_by(lambda: doctor.perform(args, context), context)
    rows: list[Mapping[str, str]] = json.loads(shown)
    (found,) = [row for row in rows if row["grade"] not in {"ok", "skipped"}]
    assert found["grade"] == "error", found
    assert code == 1
    yield Heard(said, [f"{found['says']}\n{found['fix']}"])


def config_check(place: Place) -> Iterator[Heard]:
    parser = ArgumentParser()
    config.add_arguments(parser)
    args = parser.parse_args(["check"])
    context = place.context()
    (said,) = place.world.at(Surface.CHECK)
    shown, code = told_by(lambda: config.run(args, context), context)
    yield Heard(said, messages(shown), code)


_OLD = "import sys; sys.version_info = (3, 9, 2); sys.argv = ['hermes', *{words}]; {then}"
_BEGUN: Mapping[Surface, Sequence[str]] = {
    Surface.PROMPT: ("-z", "hello"),
    Surface.PLAIN: ("--plain",),
    Surface.SCREEN: ("--tui",),
    Surface.GATEWAY: ("gateway", "run"),
    Surface.DOCTOR: ("doctor",),
    Surface.CHECK: ("config", "check"),
}


def on_old_python(place: Place, surface: Surface) -> Iterator[Heard]:
    """It is told before anything is read that an old one does not understand."""
    words = _BEGUN.get(surface, ())
    then = "import hermes.cli.main as begun; sys.exit(begun.main())"
    if surface is Surface.LIBRARY:
        then = (
            "exec('try:\\n from hermes import Agent\\nexcept ImportError as no: sys.exit(str(no))')"
        )
    done = subprocess.run(
        [sys.executable, "-c", _OLD.format(words=list(words), then=then)],
        env={**place.env}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    yield Heard(place.world.faults[0], messages(done.stdout + done.stderr), done.returncode)


SURFACES: Mapping[Surface, Callable[[Place], Iterator[Heard]]] = {
    Surface.PROMPT: prompt,
    Surface.PLAIN: plain_chat,
    Surface.SCREEN: terminal_ui,
    Surface.LIBRARY: library,
    Surface.API: api,
    Surface.CHAT: gateway_chat,
    Surface.GATEWAY: gateway_run,
    Surface.DOCTOR: doctors,
    Surface.CHECK: config_check,
}
