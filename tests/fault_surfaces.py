"""Where people meet the agent, each brought into a world and asked what it says there."""

import io
import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import aiohttp
import anyio

from api_house import House, Told, settings
from drawn import drawn
from fault_gateways import another_program, gateway_chat, gateway_run
from fault_models import SCRIPT
from fault_places import Heard, Place, told_by
from fault_worlds import Moment, Surface, Switch, messages
from hermes import Agent
from hermes.api.server import ApiServer
from hermes.app.build import App, Choices
from hermes.cli import full_screen, interactive
from hermes.cli.checkup import doctor
from hermes.cli.oneshot import answer, answer_with
from hermes.cli.style import Style
from hermes.cli.verbs import config
from hermes.config.home import FIRST_FOLDERS
from hermes.kit.clock import SystemClock
from hermes.library import collect
from hermes.local.partner import Partner, Question
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.tui.widgets.transcript import Told as OnScreen
from processes import PATIENCE

FIRST_WORDS = ("some wor", "some words")
"""What some models say before they fail."""
GREETING = "Type a request, or /help. Ctrl+C interrupts, Ctrl+D leaves."


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
