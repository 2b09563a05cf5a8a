"""Every fault at every surface: one cause, one next step, the right code, and nothing is lost."""

import io
import os
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import aiohttp
import anyio
import pytest

from api_house import House, Told, settings
from drawn import drawn
from fault_table import (
    COUNT,
    OPENINGS,
    SCRIPT,
    SETTINGS,
    USAGES,
    WORLDS,
    Opening,
    Said,
    Usage,
    World,
    judge,
)
from gateways import lobby, until
from hermes import Agent
from hermes.api.server import ApiServer
from hermes.app.archive import open_archive
from hermes.app.build import App, Choices, open_app
from hermes.cli import full_screen, interactive
from hermes.cli.boundary import run_guarded
from hermes.cli.context import CliContext
from hermes.cli.oneshot import answer, answer_with
from hermes.cli.style import Style
from hermes.cli.verbs.chat import add_arguments
from hermes.config.env import Env
from hermes.config.home import Home, resolve_home
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
from processes import MockModel, mock_model

EVERY_WORLD = pytest.mark.parametrize("world", WORLDS, ids=lambda one: one.name)
EVERY_OPENING = pytest.mark.parametrize("opening", OPENINGS, ids=lambda one: one.said.name)


class Place:
    """One home with one fault, or with a model that has many."""

    def __init__(self, root: Path, url: str, more: dict[str, str] | None = None) -> None:
        self.path = root / "home"
        self.path.mkdir()
        self.work = root / "work"
        self.work.mkdir()
        self.env = Env(
            {
                "HOME": str(root),
                "PATH": os.environ["PATH"],
                "HERMES_HOME": str(self.path),
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "sk-test-0123456789",
                "HERMES_INFERENCE_PROVIDER": "openai",
                "HERMES_INFERENCE_MODEL": "mock",
                **(more or {}),
            }
        )

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

    def keeps(self, faults: Sequence[Said]) -> None:
        """Whatever was said is there, although nobody could answer."""

        async def look() -> list[str]:
            async with open_archive(self.home, SystemClock()) as store:
                return [one.preview for one in await store.seen_by(OWNER).list(SessionFilter())]

        assert sorted(anyio.run(look)) == sorted(one.name for one in faults)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MockModel]:
    with mock_model(tmp_path_factory.mktemp("model"), SCRIPT) as running:
        yield running


@pytest.fixture
def house(world: World, tmp_path: Path, model: MockModel) -> Place:
    one = Place(tmp_path, world.url or model.url, dict(world.env))
    (one.path / "config.yaml").write_text(world.settings or SETTINGS)
    world.broken(one.path)
    return one


def arguments(*words: str) -> Namespace:
    parser = ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def accepted(world: World) -> Sequence[Said]:
    """Those that were asked before anything went wrong; without a model nothing is."""
    return [one for one in world.faults if one.exit_code == 1]


def test_there_are_enough_of_them() -> None:
    assert COUNT >= 40


@EVERY_WORLD
def test_one_prompt(world: World, house: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with house.partner() as partner:
        for fault in world.faults:
            context = house.context()
            question = Question((Text(fault.name),))
            args = arguments("-z", fault.name)
            code = run_guarded(lambda: answer_with(partner, question, args, context))  # noqa: B023
            judge(fault, context.stderr.getvalue() + capsys.readouterr().err)
            assert context.stdout.getvalue() in {"", "some wor\n", "some words\n"}
            assert code == fault.exit_code
            partner.command("/new")
    house.keeps(accepted(world))


@EVERY_WORLD
def test_the_plain_chat(world: World, house: Place, capsys: pytest.CaptureFixture[str]) -> None:
    keyboard, typed = os.openpty()
    with house.partner() as partner, open(typed, encoding="utf-8") as stdin:  # noqa: PTH123
        context = house.context(stdin)
        chat = interactive.Chat(partner, context, Style(context.stdout, None, "dumb"))
        for fault in world.faults:
            context.stdout.seek(0)
            context.stdout.truncate()
            assert chat._obey(fault.name)
            judge(fault, context.stdout.getvalue() + capsys.readouterr().err)
            partner.command("/new")
    os.close(keyboard)
    house.keeps(accepted(world))


@pytest.mark.anyio
@EVERY_WORLD
async def test_the_terminal_ui(world: World, house: Place, tmp_path: Path) -> None:
    with house.partner() as partner:
        companion = full_screen.AtTerminal(lambda: nullcontext(partner), house.context())
        async with drawn(companion, tmp_path, size=(200, 50)) as screen:
            for fault in world.faults:
                before = screen.ui.chat.transcript.plain()
                screen.ui.chat.talk.add(fault.name)
                await screen.ui.chat.talk.go_on()
                shown = screen.ui.chat.transcript.plain()
                judge(fault, shown.removeprefix(before))
                assert f"> {fault.name}" in shown
                screen.ui.chat.talk.add("/new")
                await screen.ui.chat.talk.go_on()


@pytest.mark.anyio
@EVERY_WORLD
async def test_the_library(world: World, house: Place) -> None:
    async with house.app() as app:
        for fault in world.faults:
            app.conversation.start_new()
            judge(fault, await _answered(app, fault.name))


async def _answered(app: App, prompt: str) -> str:
    try:
        return (await collect(app, [Text(prompt)])).ended.reason
    except HermesError as error:
        return error.sentence


@pytest.mark.anyio
@EVERY_WORLD
async def test_the_api(world: World, house: Place) -> None:
    async with house.app() as app:
        server = ApiServer(settings(), SystemClock())
        server.attach("default", app)
        async with server, aiohttp.ClientSession() as http:
            api = House(server, app, None, http)
            for fault in world.faults:
                body = {
                    "model": "hermes-agent",
                    "messages": [{"role": "user", "content": fault.name}],
                }
                told = await api.chat(body)
                judge(fault, _refusal(told))


def _refusal(told: Told) -> str:
    """An error, or beside the words that came before it."""
    if told.status == 200:
        return told.json["hermes"]["error"]
    assert told.code
    return told.json["error"]["message"]


@pytest.mark.anyio
async def test_a_chat_of_the_gateway(tmp_path: Path, model: MockModel) -> None:
    (world, *_) = WORLDS
    house = Place(tmp_path, model.url)
    (house.path / "config.yaml").write_text(SETTINGS)
    async with house.app() as app, lobby(tmp_path / "chats") as one:
        one.planner.model = await app.models.find()
        for fault in world.faults:
            await one.channel.say(fault.name, chat=fault.name)
            await until(lambda at=fault.name: bool(one.channel.seen_in(at)))
            await one.calm()
            judge(fault, "\n".join(one.channel.seen_in(fault.name)))
            assert (await one.texts(fault.name))[0] == fault.name


def broken(opening: Opening, tmp_path: Path) -> tuple[Place, dict[str, bytes]]:
    house = Place(tmp_path, "http://127.0.0.1:9/v1")
    opening.broken(house.path)
    return house, contents(house.path)


def contents(path: Path) -> dict[str, bytes]:
    """What people have in their home; logs and locks are ours."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        str(one.relative_to(path)): one.read_bytes()
        for one in path.rglob("*")
        if one.is_file() and one.suffix not in {".log", ".lock", ".db-wal", ".db-shm"}
    }


@EVERY_OPENING
def test_a_home_that_cannot_be_opened(
    opening: Opening, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the three surfaces of the terminal, in a library, and by the gateway with its API."""
    house, before = broken(opening, tmp_path)
    args = arguments("--cwd", str(house.work))

    def gateway() -> int:
        return run_gateway(house.home, house.env, RunOptions(force=True))

    ways = {
        "-z": lambda: answer(args, "hello", house.context()),
        "plain": lambda: interactive.talk(args, house.context()),
        "tui": lambda: full_screen.talk(args, house.context(), headless=True),
        "gateway": gateway,
    }
    for name, way in ways.items():
        code = run_guarded(way)
        told = capsys.readouterr()
        judge(opening.said, told.err + told.out)
        assert code == opening.said.exit_code, name
    with pytest.raises(HermesError) as caught:
        anyio.run(_open, house)
    judge(opening.said, caught.value.sentence)
    after = contents(house.path)
    assert {name: after.get(name) for name in before} == before


async def _open(house: Place) -> None:
    async with Agent(Choices(workspace=str(house.work)), home=house.path):
        raise AssertionError("it opened")


@pytest.mark.parametrize("usage", USAGES, ids=lambda one: one.said.name)
def test_a_wrong_command_line(
    usage: Usage, tmp_path: Path, model: MockModel, capsys: pytest.CaptureFixture[str]
) -> None:
    house = Place(tmp_path, model.url)
    args = arguments("-z", "hello", *usage.words)
    code = run_guarded(lambda: answer(args, "hello", house.context()))
    judge(usage.said, capsys.readouterr().err)
    assert code == usage.said.exit_code
