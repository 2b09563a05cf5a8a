"""`hermes status` counts open items and tolerates unreadable parts."""

import io
from argparse import Namespace
from pathlib import Path

import anyio
import pytest
from msgspec import Raw, structs

from hermes.app.followup_router import FollowupRouter
from hermes.app.service.lock import own_record, take_lock
from hermes.app.service.state_file import StateFile
from hermes.app.service.status import Phase, Snapshot
from hermes.bus.memory import MemoryBus
from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.status import status
from hermes.cli.verbs.status import collect_overview
from hermes.cli.verbs.status import run as show_status
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home
from hermes.kit.clock import SystemClock
from hermes.ports.approval_records import LAPSED, PutQuestion
from hermes.ports.processes import AddProcess, ProcessState
from hermes.ports.store import EnqueueItem, QueueItem
from hermes.schema.scope import Scope
from hermes.store.sqlite import open_store
from hermes.testing.contracts.repositories import process, question_record
from support.stored_sessions import simple_session


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home", tmp_path / "home")
    ensure_home(made)
    return made


def env(home: Home) -> Env:
    return Env({"HOME": str(home.path.parent), "PATH": ""})


async def test_status_of_an_empty_home_creates_nothing(home: Home) -> None:
    seen = await collect_overview(home, env(home), SystemClock())
    assert (seen.model, seen.gateway, seen.sessions) == ("no model yet", "not running", 0)
    assert not home.database.exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("platforms: {api_server: {enabled: true}, webhook: {enabled: true}}\n",
         "api_server, webhook (enabled; the gateway is not running)"),
        ("", "none"),
    ],
)  # fmt: skip
def test_enabled_channels_are_listed_without_a_gateway(
    home: Home, settings: str, expected: str
) -> None:
    home.config.write_text(settings)
    out = io.StringIO()
    variables = Env({**env(home), "HERMES_HOME": str(home.path)})
    assert show_status(Namespace(json=False), CliContext(variables, None, (out, out, out))) == 0
    (line,) = [one for one in out.getvalue().splitlines() if one.startswith("channels")]
    assert line.split(maxsplit=1)[1] == expected


async def test_missing_key_is_reported_like_in_a_turn(home: Home) -> None:
    home.config.write_text("model: {provider: openai, default: gpt-5-mini}\n")
    seen = await collect_overview(home, env(home), SystemClock())
    assert seen.model_trouble.startswith("No key is set for OpenAI. Set it with ")
    home.dotenv.write_text("OPENAI_API_KEY=sk-test\n")
    home.dotenv.chmod(0o600)
    seen = await collect_overview(home, env(home), SystemClock())
    assert (seen.model, seen.model_trouble) == ("openai/gpt-5-mini", "")


async def test_turns_of_codex_and_of_another_gateway_need_no_model(home: Home) -> None:
    home.config.write_text("model: {openai_runtime: codex_app_server}\n")
    program = home.path / "codex"
    variables = Env({**env(home), "CODEX_PATH": str(program)})
    seen = await collect_overview(home, variables, SystemClock())
    assert seen.model_trouble == f"codex runs the turns, but {program} was not found: hermes doctor"
    program.touch(0o700)
    seen = await collect_overview(home, variables, SystemClock())
    assert (seen.model, seen.model_trouble) == (f"codex ({program})", "")
    home.config.write_text("gateway: {proxy_url: 'http://127.0.0.1:9'}\n")
    seen = await collect_overview(home, env(home), SystemClock())
    assert "chat turns run on the gateway at http://127.0.0.1:9" in seen.model
    assert not seen.model_trouble


async def test_only_open_items_are_counted(home: Home) -> None:
    clock = SystemClock()
    async with open_store(home.database, clock) as store:
        await store.commit(
            *simple_session("one"),
            *simple_session("two"),
            PutQuestion(question_record(clock, "q1")),
            PutQuestion(question_record(clock, "q2")),
            PutQuestion(structs.replace(question_record(clock, "q3"), state=LAPSED)),
            AddProcess(process("p1", clock), "w"),
            AddProcess(structs.replace(process("p2", clock), state=ProcessState.EXITED), "w"),
        )
    seen = await collect_overview(home, env(home), SystemClock())
    assert (seen.sessions, seen.stored_messages) == (2, 4)
    waiting = seen.waiting
    assert (waiting.questions, waiting.processes, waiting.delegations) == (2, 1, 0)


def test_reports_name_the_command_that_shows_them(home: Home) -> None:
    async def store_reports() -> None:
        async with open_store(home.database, SystemClock()) as store:
            router = FollowupRouter(store, MemoryBus())
            scope = Scope("default", "one", "run", "/work", source="cli")
            await store.commit(
                *simple_session("one"),
                *router.rows(scope, "report 1", "It has ended."),
                *router.rows(scope, "report 2", "It has ended."),
                EnqueueItem(QueueItem(key="m", queue="outbox", topic="irc", body=Raw(b"{}"))),
            )

    anyio.run(store_reports)
    out = io.StringIO()
    variables = Env({**env(home), "HERMES_HOME": str(home.path)})
    assert show_status(Namespace(json=False), CliContext(variables, None, (out, out, out))) == 0
    (line,) = [one for one in out.getvalue().splitlines() if one.startswith("waiting")]
    expected = "2 reports of finished work (hermes -r one), 1 message in the queue"
    assert line.split(maxsplit=1)[1] == expected


async def test_broken_database_does_not_hide_other_rows(home: Home) -> None:
    home.config.write_text("agent: [\n")
    home.database.write_bytes(b"this is no database at all" * 1000)
    seen = await collect_overview(home, env(home), SystemClock())
    assert "hermes doctor" in seen.model
    assert seen.trouble
    assert seen.gateway == "not running"


def test_failing_sandbox_of_the_running_gateway_is_shown(home: Home) -> None:
    """The gateway's result counts, because it runs the commands of chats."""
    expected = "Every command needs approval, because the sandbox cannot be set up: out of order."
    record = own_record(home, SystemClock().now(), ["hermes"])
    lock = take_lock(home, record)
    try:
        StateFile(home, record, SystemClock()).write(
            Snapshot(
                gateway_state=Phase.RUNNING,
                sandboxes={
                    "default": (f"sandbox auto: {expected}",),
                    "other": ("sandbox auto: fine",),
                },
            )
        )
        variables = Env({**env(home), "HERMES_HOME": str(home.path)})
        for look, args in (
            (show_status, Namespace(json=False)),
            (status, Namespace(json=False, deep=False)),
        ):
            out = io.StringIO()
            assert look(args, CliContext(variables, None, (out, out, out))) == 0
            lines = [one for one in out.getvalue().splitlines() if one.startswith("sandbox")]
            assert [one.split(maxsplit=1)[1] for one in lines] == [f"auto: {expected}"]
    finally:
        lock.release()
