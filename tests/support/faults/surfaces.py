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

from hermes import Agent
from hermes.api.server import ApiServer
from hermes.app.build import App, AppOptions
from hermes.cli.output import Style
from hermes.cli.verbs import config
from hermes.cli.verbs.chat import full_screen, interactive
from hermes.cli.verbs.chat.oneshot import run_input, run_oneshot
from hermes.cli.verbs.doctor import runner
from hermes.config.home import INITIAL_FOLDERS
from hermes.ipc.client import AgentClient, UserInput
from hermes.kit.clock import SystemClock
from hermes.library import collect
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.tui.widgets.transcript import HasPlainText as OnScreen
from support.api_server import ApiHarness, ApiResponse, api_settings
from support.cli_process import TEST_TIMEOUT
from support.faults.gateways import gateway_chat, gateway_run, taken_port
from support.faults.homes import FaultHome, ObservedMessages, run_verb
from support.faults.models import SCRIPT
from support.faults.scenarios import FaultMoment, FaultSwitch, Surface, split_messages
from support.tui_screen import tui_screen

PARTIAL_ANSWERS = ("some wor", "some words")
"""What some models say before they fail."""
GREETING = "Type a message, or /help. Ctrl+C interrupts, Ctrl+D exits."


def prompt(place: FaultHome) -> Iterator[ObservedMessages]:
    world = place.world
    if world.moment is not FaultMoment.TURN:
        (said,) = world.faults
        context = place.context()
        args = place.arguments("-z", "hello")
        with world.trouble(place.path) as trouble:
            trouble.on()
            shown, code = run_verb(lambda: run_oneshot(args, "hello", context), context)
        yield ObservedMessages(said, split_messages(shown, SCRIPT.default.text), code)
        return
    with world.trouble(place.path) as trouble, place.partner() as partner:
        trouble.on()
        for said in world.faults:
            context = place.context()
            args = place.arguments("-z", said.name)
            ask = partial(run_input, partner, UserInput((Text(said.name),)), args, context)
            shown, code = run_verb(ask, context)
            assert context.stdout.getvalue().strip() in {"", *PARTIAL_ANSWERS}
            yield ObservedMessages(said, split_messages(shown, *PARTIAL_ANSWERS), code)
            _start_new_session(partner)


def _start_new_session(partner: AgentClient) -> None:
    with suppress(HermesError):
        partner.command("/new")


def plain_chat(place: FaultHome) -> Iterator[ObservedMessages]:
    world = place.world
    if world.moment is FaultMoment.OPENING:
        (said,) = world.faults
        context = place.context()
        with world.trouble(place.path) as trouble:
            trouble.on()
            shown, code = run_verb(
                lambda: interactive.run_chat(place.arguments(), context), context
            )
        yield ObservedMessages(said, split_messages(shown), code)
        return
    with (
        keyboard() as stdin,
        world.trouble(place.path) as trouble,
        place.partner() as partner,
    ):
        context = place.context(stdin)
        chat = interactive.InteractiveChat(partner, context, Style(context.stdout, None, "dumb"))
        trouble.on()
        if world.moment is FaultMoment.GREETING:
            chat._greet()
            told = split_messages(context.stdout.getvalue(), GREETING)
            assert told.pop(0).startswith("hermes · ")
            yield ObservedMessages(world.faults[0], told)
            return
        for said in world.faults:
            context.stdout.seek(0)
            context.stdout.truncate()
            shown, _ = run_verb(partial(chat._handle_line, said.name), context)
            yield ObservedMessages(said, split_messages(shown, *PARTIAL_ANSWERS))
            _start_new_session(partner)


@contextmanager
def keyboard() -> Iterator[io.TextIOBase]:
    """What somebody types at a terminal."""
    here, there = os.openpty()
    try:
        with open(there, encoding="utf-8") as stdin:  # noqa: PTH123
            yield stdin
    finally:
        os.close(here)


def terminal_ui(place: FaultHome) -> Iterator[ObservedMessages]:
    world = place.world
    if world.moment is FaultMoment.OPENING:
        (said,) = world.faults
        context = place.context()
        talk = partial(full_screen.run_chat, place.arguments(), context, headless=True)
        with world.trouble(place.path) as trouble:
            trouble.on()
            shown, code = run_verb(talk, context)
        yield ObservedMessages(said, split_messages(shown), code)
        return
    with world.trouble(place.path) as trouble, place.partner() as partner:
        yield from anyio.run(_drawn, place, partner, trouble)


async def _drawn(
    place: FaultHome, partner: AgentClient, trouble: FaultSwitch
) -> list[ObservedMessages]:
    world, found = place.world, list[ObservedMessages]()
    companion = full_screen.TerminalClient(lambda: nullcontext(partner), place.context())
    async with tui_screen(companion, place.root, size=(200, 50)) as screen:
        talk, transcript = screen.ui.chat.talk, screen.ui.chat.transcript
        if world.moment is FaultMoment.GREETING:
            told = split_messages(transcript.plain())
            assert told.pop(0).startswith("hermes · ")
            return [ObservedMessages(world.faults[0], told)]
        trouble.on()
        for said in world.faults:
            before = len(transcript.children)
            talk.add(said.name)
            await talk.go_on()
            asked, *told = (
                one.plain for one in transcript.children[before:] if isinstance(one, OnScreen)
            )
            assert asked == f"> {said.name}"
            found.append(
                ObservedMessages(said, [one for one in told if one not in {"", *PARTIAL_ANSWERS}])
            )
            talk.add("/new")
            await talk.go_on()
    return found


def library(place: FaultHome) -> Iterator[ObservedMessages]:
    with place.world.trouble(place.path) as trouble:
        yield from anyio.run(_collected, place, trouble)


async def _collected(place: FaultHome, trouble: FaultSwitch) -> list[ObservedMessages]:
    world = place.world
    if world.moment is FaultMoment.OPENING:
        trouble.on()
        return [ObservedMessages(world.faults[0], [await _refused(place)])]
    async with place.app() as app:
        trouble.on()
        if world.moment is FaultMoment.GREETING:
            return [ObservedMessages(world.faults[0], app.warnings)]
        found: list[ObservedMessages] = []
        for said in world.faults:
            app.conversation.start_new()
            found.append(ObservedMessages(said, [await _answered(app, said.name)]))
    return found


async def _refused(place: FaultHome) -> str:
    home = place.env["HERMES_HOME"]
    try:
        async with Agent(AppOptions(workspace=str(place.work)), home=home):
            raise AssertionError("it opened")
    except HermesError as error:
        return error.sentence


async def _answered(app: App, question: str) -> str:
    try:
        return (await collect(app, [Text(question)])).ended.reason
    except HermesError as error:
        return error.sentence


def api(place: FaultHome) -> Iterator[ObservedMessages]:
    with place.world.trouble(place.path) as trouble:
        yield from anyio.run(_called, place, trouble)


async def _called(place: FaultHome, trouble: FaultSwitch) -> list[ObservedMessages]:
    found: list[ObservedMessages] = []
    async with place.app() as app:
        server = ApiServer(api_settings(), SystemClock())
        server.attach("default", app)
        async with server, aiohttp.ClientSession() as http:
            one = ApiHarness(server, app, None, http)
            trouble.on()
            for said in place.world.faults:
                messages = [{"role": "user", "content": said.name}]
                told = await one.chat({"model": "hermes-agent", "messages": messages})
                found.append(ObservedMessages(said, [_refusal(told)]))
    return found


def _refusal(told: ApiResponse) -> str:
    """An error, or beside the words that came before it."""
    if told.status == 200:
        return told.json["hermes"]["error"]
    assert told.code
    return told.json["error"]["message"]


def doctor_checks(place: FaultHome) -> Iterator[ObservedMessages]:
    """What it finds is one thing, the cause."""
    world = place.world
    (said,) = world.at(Surface.DOCTOR)
    for name in INITIAL_FOLDERS if place.path.is_dir() else ():
        with suppress(FileExistsError):
            (place.path / name).mkdir()
    taken = taken_port(place) if "PORT" in world.settings else nullcontext()
    context = place.context()
    args = Namespace(fix=False, json=True)
    with taken, world.trouble(place.path) as trouble:
        trouble.on()
        shown, code = run_verb(lambda: runner.run_doctor(args, context), context)
    rows: list[Mapping[str, str]] = json.loads(shown)
    (found,) = [row for row in rows if row["grade"] not in {"ok", "skipped"}]
    assert found["grade"] == "error", found
    assert code == 1
    yield ObservedMessages(said, [f"{found['says']}\n{found['fix']}"])


def config_check(place: FaultHome) -> Iterator[ObservedMessages]:
    parser = ArgumentParser()
    config.add_arguments(parser)
    args = parser.parse_args(["check"])
    context = place.context()
    (said,) = place.world.at(Surface.CHECK)
    shown, code = run_verb(lambda: config.run(args, context), context)
    yield ObservedMessages(said, split_messages(shown), code)


_OLD = "import sys; sys.version_info = (3, 9, 2); sys.argv = ['hermes', *{words}]; {then}"
_BEGUN: Mapping[Surface, Sequence[str]] = {
    Surface.PROMPT: ("-z", "hello"),
    Surface.PLAIN: ("--plain",),
    Surface.SCREEN: ("--tui",),
    Surface.GATEWAY: ("gateway", "run"),
    Surface.DOCTOR: ("doctor",),
    Surface.CHECK: ("config", "check"),
}


def on_old_python(place: FaultHome, surface: Surface) -> Iterator[ObservedMessages]:
    """It is told before anything is read that an old one does not understand."""
    words = _BEGUN.get(surface, ())
    then = "import hermes.cli.main as begun; sys.exit(begun.main())"
    if surface is Surface.LIBRARY:
        then = (
            "exec('try:\\n from hermes import Agent\\nexcept ImportError as no: sys.exit(str(no))')"
        )
    done = subprocess.run(
        [sys.executable, "-c", _OLD.format(words=list(words), then=then)],
        env={**place.env}, capture_output=True, text=True, timeout=TEST_TIMEOUT, check=False,
    )  # fmt: skip
    yield ObservedMessages(
        place.world.faults[0], split_messages(done.stdout + done.stderr), done.returncode
    )


SURFACES: Mapping[Surface, Callable[[FaultHome], Iterator[ObservedMessages]]] = {
    Surface.PROMPT: prompt,
    Surface.PLAIN: plain_chat,
    Surface.SCREEN: terminal_ui,
    Surface.LIBRARY: library,
    Surface.API: api,
    Surface.CHAT: gateway_chat,
    Surface.GATEWAY: gateway_run,
    Surface.DOCTOR: doctor_checks,
    Surface.CHECK: config_check,
}
