"""Run each surface in a fault scenario and collect its messages."""

import io
import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import aiohttp
import anyio

from hermes import Agent
from hermes.api.server import ApiServer
from hermes.app.build import App, AppOptions
from hermes.cli.arguments import build_parser
from hermes.cli.output import Style
from hermes.cli.verbs import config, doctor
from hermes.cli.verbs.chat import full_screen, interactive
from hermes.cli.verbs.chat.oneshot import run_input, run_oneshot
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
"""What some models send before they fail."""
GREETING = "Type a message, or /help. Ctrl+C interrupts, Ctrl+D exits."


def prompt(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    scenario = fault_home.scenario
    if scenario.moment is not FaultMoment.TURN:
        (expected,) = scenario.faults
        context = fault_home.context()
        args = fault_home.arguments("-z", "hello")
        with scenario.open_fault(fault_home.path) as switch:
            switch.on()
            shown, code = run_verb(lambda: run_oneshot(args, "hello", context), context)
        yield ObservedMessages(expected, split_messages(shown, SCRIPT.default.text), code)
        return
    with scenario.open_fault(fault_home.path) as switch, fault_home.client() as client:
        switch.on()
        for expected in scenario.faults:
            context = fault_home.context()
            args = fault_home.arguments("-z", expected.name)
            ask = partial(run_input, client, UserInput((Text(expected.name),)), args, context)
            shown, code = run_verb(ask, context)
            assert context.stdout.getvalue().strip() in {"", *PARTIAL_ANSWERS}
            yield ObservedMessages(expected, split_messages(shown, *PARTIAL_ANSWERS), code)
            _start_new_session(client)


def _start_new_session(client: AgentClient) -> None:
    with suppress(HermesError):
        client.command("/new")


def plain_chat(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    scenario = fault_home.scenario
    if scenario.moment is FaultMoment.OPENING:
        (expected,) = scenario.faults
        context = fault_home.context()
        with scenario.open_fault(fault_home.path) as switch:
            switch.on()
            shown, code = run_verb(
                lambda: interactive.run_chat(fault_home.arguments(), context), context
            )
        yield ObservedMessages(expected, split_messages(shown), code)
        return
    with (
        keyboard() as stdin,
        scenario.open_fault(fault_home.path) as switch,
        fault_home.client() as client,
    ):
        context = fault_home.context(stdin)
        chat = interactive.InteractiveChat(client, context, Style(context.stdout, {"TERM": "dumb"}))
        switch.on()
        if scenario.moment is FaultMoment.GREETING:
            chat._greet()
            messages = split_messages(context.stdout.getvalue(), GREETING)
            assert messages.pop(0).startswith("hermes · ")
            yield ObservedMessages(scenario.faults[0], messages)
            return
        for expected in scenario.faults:
            context.stdout.seek(0)
            context.stdout.truncate()
            shown, _ = run_verb(partial(chat._handle_line, expected.name), context)
            yield ObservedMessages(expected, split_messages(shown, *PARTIAL_ANSWERS))
            _start_new_session(client)


@contextmanager
def keyboard() -> Iterator[io.TextIOBase]:
    """A terminal to type at."""
    here, there = os.openpty()
    try:
        with open(there, encoding="utf-8") as stdin:  # noqa: PTH123
            yield stdin
    finally:
        os.close(here)


def terminal_ui(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    scenario = fault_home.scenario
    if scenario.moment is FaultMoment.OPENING:
        (expected,) = scenario.faults
        context = fault_home.context()
        talk = partial(full_screen.run_chat, fault_home.arguments(), context, headless=True)
        with scenario.open_fault(fault_home.path) as switch:
            switch.on()
            shown, code = run_verb(talk, context)
        yield ObservedMessages(expected, split_messages(shown), code)
        return
    with scenario.open_fault(fault_home.path) as switch, fault_home.client() as client:
        yield from anyio.run(_draw_all, fault_home, client, switch)


async def _draw_all(
    fault_home: FaultHome, client: AgentClient, switch: FaultSwitch
) -> list[ObservedMessages]:
    scenario, found = fault_home.scenario, list[ObservedMessages]()
    terminal_client = full_screen.TerminalClient(lambda: nullcontext(client), fault_home.context())
    async with tui_screen(terminal_client, fault_home.root, size=(200, 50)) as screen:
        talk, transcript = screen.ui.chat.conversation, screen.ui.chat.transcript
        if scenario.moment is FaultMoment.GREETING:
            messages = split_messages(transcript.plain_text())
            assert messages.pop(0).startswith("hermes · ")
            return [ObservedMessages(scenario.faults[0], messages)]
        switch.on()
        for expected in scenario.faults:
            before = len(transcript.children)
            talk.add(expected.name)
            await talk.run_queued()
            question, *messages = (
                one.plain for one in transcript.children[before:] if isinstance(one, OnScreen)
            )
            assert question == f"> {expected.name}"
            found.append(
                ObservedMessages(
                    expected, [one for one in messages if one not in {"", *PARTIAL_ANSWERS}]
                )
            )
            talk.add("/new")
            await talk.run_queued()
    return found


def library(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    with fault_home.scenario.open_fault(fault_home.path) as switch:
        yield from anyio.run(_collect_all, fault_home, switch)


async def _collect_all(fault_home: FaultHome, switch: FaultSwitch) -> list[ObservedMessages]:
    scenario = fault_home.scenario
    if scenario.moment is FaultMoment.OPENING:
        switch.on()
        return [ObservedMessages(scenario.faults[0], [await _opening_error(fault_home)])]
    async with fault_home.app() as app:
        switch.on()
        if scenario.moment is FaultMoment.GREETING:
            return [ObservedMessages(scenario.faults[0], app.warnings)]
        found: list[ObservedMessages] = []
        for expected in scenario.faults:
            app.conversation.start_new()
            found.append(ObservedMessages(expected, [await _turn_error(app, expected.name)]))
    return found


async def _opening_error(fault_home: FaultHome) -> str:
    home = fault_home.env["HERMES_HOME"]
    try:
        async with Agent(AppOptions(workspace=str(fault_home.work)), home=home):
            raise AssertionError("it opened although it should fail")
    except HermesError as error:
        return error.sentence


async def _turn_error(app: App, question: str) -> str:
    try:
        return (await collect(app, [Text(question)])).ended.reason
    except HermesError as error:
        return error.sentence


def api(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    with fault_home.scenario.open_fault(fault_home.path) as switch:
        yield from anyio.run(_call_api, fault_home, switch)


async def _call_api(fault_home: FaultHome, switch: FaultSwitch) -> list[ObservedMessages]:
    found: list[ObservedMessages] = []
    async with fault_home.app() as app:
        server = ApiServer(api_settings(), SystemClock())
        server.attach("default", app)
        async with server, aiohttp.ClientSession() as http:
            one = ApiHarness(server, app, None, http)
            switch.on()
            for expected in fault_home.scenario.faults:
                messages = [{"role": "user", "content": expected.name}]
                messages = await one.chat({"model": "hermes-agent", "messages": messages})
                found.append(ObservedMessages(expected, [_refusal(messages)]))
    return found


def _refusal(messages: ApiResponse) -> str:
    """Return the error, also if it comes with a partial answer."""
    if messages.status == 200:
        return messages.json["hermes"]["error"]
    assert messages.code
    return messages.json["error"]["message"]


def doctor_checks(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    """The doctor reports exactly one problem, the cause."""
    scenario = fault_home.scenario
    (expected,) = scenario.at(Surface.DOCTOR)
    for name in INITIAL_FOLDERS if fault_home.path.is_dir() else ():
        with suppress(FileExistsError):
            (fault_home.path / name).mkdir()
    taken = taken_port(fault_home) if "PORT" in scenario.settings else nullcontext()
    context = fault_home.context()
    args = Namespace(fix=False, json=True)
    with taken, scenario.open_fault(fault_home.path) as switch:
        switch.on()
        shown, code = run_verb(lambda: doctor.run(args, context), context)
    rows: list[Mapping[str, str]] = json.loads(shown)
    (found,) = [row for row in rows if row["grade"] not in {"ok", "skipped"}]
    assert found["grade"] == "error", found
    assert code == 1
    yield ObservedMessages(expected, [f"{found['says']}\n{found['fix']}"])


def config_check(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    args = build_parser("config").parse_args(["check"])
    context = fault_home.context()
    (expected,) = fault_home.scenario.at(Surface.CHECK)
    shown, code = run_verb(lambda: config.run(args, context), context)
    yield ObservedMessages(expected, split_messages(shown), code)


_OLD = "import sys; sys.version_info = (3, 9, 2); sys.argv = ['hermes', *{words}]; {then}"
_ARGUMENTS: Mapping[Surface, Sequence[str]] = {
    Surface.PROMPT: ("-z", "hello"),
    Surface.PLAIN: ("--plain",),
    Surface.SCREEN: ("--tui",),
    Surface.GATEWAY: ("gateway", "run"),
    Surface.DOCTOR: ("doctor",),
    Surface.CHECK: ("config", "check"),
}


def on_old_python(fault_home: FaultHome, surface: Surface) -> Iterator[ObservedMessages]:
    """The error comes before any file that an old Python cannot parse."""
    words = _ARGUMENTS.get(surface, ())
    then = "import hermes.cli.main as begun; sys.exit(begun.main())"
    if surface is Surface.LIBRARY:
        then = (
            "exec('try:\\n from hermes import Agent\\nexcept ImportError as no: sys.exit(str(no))')"
        )
    done = subprocess.run(
        [sys.executable, "-c", _OLD.format(words=list(words), then=then)],
        env={**fault_home.env}, capture_output=True, text=True, timeout=TEST_TIMEOUT, check=False,
    )  # fmt: skip
    yield ObservedMessages(
        fault_home.scenario.faults[0], split_messages(done.stdout + done.stderr), done.returncode
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
