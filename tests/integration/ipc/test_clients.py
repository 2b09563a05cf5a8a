"""What every client does, with the agent in this process or in a gateway."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import anyio
import apsw
import pytest

from hermes.cli.context import CliContext
from hermes.cli.verbs.chat.full_screen import FIRST_RUN_NOTE, TerminalClient
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.config.schema import Config
from hermes.ipc.client import AgentClient, ConversationOptions, UserInput
from hermes.ipc.connect import connect as meet_somebody
from hermes.ipc.conversation_service import MAX_SHOWN, open_in_process
from hermes.ipc.socket_client import open_socket_client
from hermes.kit.clock import SystemClock
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import NotFound, SessionBusy, UsageError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Text, User, text_of
from hermes.schema.sessions import Session
from hermes.schema.terminal import (
    NotACommand,
    QuitReply,
    RecentHistory,
    ResumedReply,
    SubmitReply,
    TextReply,
)
from hermes.session.recap import MAX_BYTES
from hermes.store.sqlite import open_store
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import TEST_TIMEOUT, FakeModelProcess, HermesCli
from support.ipc_server import ipc_server_process

NOT_USED_NOTE = (
    "Not using the running gateway. The gateway has a different LANG. To use it: hermes "
    "gateway restart"
)
HANG = Fault("hang", after=3)
WAIT = "until test -e GO; do sleep 0.1; done"
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply("first words and then silence", fault=HANG, chunk=6)]),
        Rule("tool please", [
            Reply("Looking.", [Call("terminal", {"command": "pwd"})]),
            Reply("Done."),
        ]),
        Rule("wait for it", [
            Reply("Waiting.", [Call("terminal", {"command": WAIT})]),
            Reply("Waited."),
        ]),
        Rule("wrong key", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply("Plain answer."),
    models=("mock", "other"),
)  # fmt: skip
EXCHANGES = Config().display.resume_exchanges
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20

Opener = Callable[..., AbstractContextManager[AgentClient]]


class EventCollector:
    """Collects all events, and calls a function at the first text of an answer."""

    def __init__(self, on_first_text: Callable[[], object] = lambda: None) -> None:
        self.events: list[Event] = []
        self._on_first_text = on_first_text
        self._has_text = False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta) and not self._has_text:
            self._has_text = True
            self._on_first_text()

    @property
    def ended(self) -> RunEnded:
        (ended,) = [event for event in self.events if isinstance(event, RunEnded)]
        assert self.events[-1] is ended
        return ended


@pytest.fixture(scope="module", params=["here", "remote"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def hermes(
    kind: str, tmp_path_factory: pytest.TempPathFactory, model: FakeModelProcess
) -> Iterator[HermesCli]:
    hermes = HermesCli(tmp_path_factory.mktemp(kind), model.url)
    if kind == "here":
        yield hermes
        return
    with ipc_server_process(hermes):
        yield hermes


@pytest.fixture
def open_client(kind: str, hermes: HermesCli) -> Opener:
    env = Env(hermes.env)
    home = resolve_home(env)

    def open_one(**options: object) -> AbstractContextManager[AgentClient]:
        start = ConversationOptions(cwd=str(hermes.work), **options)
        return (
            open_in_process(home, env, start)
            if kind == "here"
            else open_socket_client(home.path, env, start)
        )

    return open_one


def user_input(text: str) -> UserInput:
    return UserInput((Text(text),))


def test_turn_emits_events_from_start_to_end(open_client: Opener, hermes: HermesCli) -> None:
    collector = EventCollector()
    with open_client() as client:
        assert not client.state.started
        assert client.greeting.folder == str(hermes.work)
        assert client.greeting.commands == {}
        assert client.submit(user_input("tool please"), collector) is Outcome.DONE
        assert client.state.started
        session = client.state.session
    first = collector.events[0]
    assert isinstance(first, RunStarted)
    assert first.session == session
    kinds = [
        type(event.message).__name__
        for event in collector.events
        if isinstance(event, MessageAdded)
    ]
    assert kinds == ["User", "Assistant", "Result", "Assistant"]
    results = [event.message for event in collector.events if isinstance(event, MessageAdded)]
    assert str(hermes.work) in str(results[2])
    assert collector.ended.outcome is Outcome.DONE


def test_person_gets_a_greeting(open_client: Opener) -> None:
    with open_client() as client:
        client.submit(user_input("remember me"), EventCollector())
        session = client.state.session
    with open_client(person=True, resume=session) as client:
        greeting = client.greeting
        assert client.state.session == session
        assert greeting.recap == (("you", "remember me"), ("hermes", "Plain answer."))
        assert greeting.model == "openai/mock"
        assert greeting.trouble is None
        assert {"new", "help", "quit"} <= set(greeting.commands)
    with open_client(latest=True) as client:
        assert client.state.session == session


def test_session_is_found_by_its_preview(open_client: Opener) -> None:
    with open_client() as client:
        client.submit(user_input("a very particular beginning of it all"), EventCollector())
        session = client.state.session
    for words in ("“a very particular beginning of it all”", "a very particular begin…"):
        with open_client(resume=words) as client:
            assert client.state.session == session
    with pytest.raises(NotFound, match="There is no session"), open_client(resume="never said"):
        pass


def test_commands_are_answered_by_kind(open_client: Opener) -> None:
    with open_client() as client:
        client.submit(user_input("before the commands"), EventCollector())
        reply = client.command("/status")
        assert isinstance(reply, TextReply)
        assert client.state.session in reply.text
        assert client.command("/retry") == SubmitReply((Text("before the commands"),), undone=1)
        assert client.command("/etc/hosts is a file") == NotACommand()
        assert client.command("/quit") == QuitReply()
        with pytest.raises(UsageError, match="Unknown command: /frob") as caught:
            client.command("/frob")
        assert caught.value.hint
        before = client.state.session
        client.command("/new")
        assert client.state.session != before
        assert not client.state.started


def test_state_shows_yolo(open_client: Opener) -> None:
    with open_client(person=True, screen=True) as client:
        assert not client.state.yolo
        client.command("/yolo on")
        assert client.state.yolo
        client.command("/yolo off")
        assert not client.state.yolo
    with open_client(person=True, screen=True, yolo=True) as client:
        assert client.state.yolo


def test_recent_history_has_the_last_exchanges(open_client: Opener) -> None:
    with open_client() as client:
        assert client.recent_history() == RecentHistory()
        for place in range(EXCHANGES + 1):
            client.submit(user_input(f"turn {place}"), EventCollector())
        first = client.state.session
        client.submit(user_input("hang"), EventCollector(client.interrupt))
        past = client.recent_history()
    assert [text_of(row.message) for row in past.rows][:2] == ["turn 2", "Plain answer."]
    assert text_of(past.rows[-2].message) == "hang"
    assert past.more == 4
    with open_client(person=True) as client:
        reply = client.command(f"/resume {first}")
        assert isinstance(reply, ResumedReply)
        assert reply.message == f"Resumed session {first}, {len(past.rows) + 4} messages."
        assert reply.recap.splitlines()[0] == f"you: turn {EXCHANGES - 1}"
        assert client.recent_history() == past


def test_terminal_gets_the_history_from_the_agent(open_client: Opener, tmp_path: Path) -> None:
    """The client's home is empty, so the messages can only come from the agent."""
    env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)})
    context = CliContext(env, None, (io.StringIO(), io.StringIO(), io.StringIO()))
    with open_client(person=True, screen=True) as client:
        client.submit(user_input("hello there"), EventCollector())
        first = client.state.session
        client.command("/new")
        with closing(TerminalClient(lambda: nullcontext(client), context)) as terminal:
            terminal.open()
            assert isinstance(terminal.command("/resume"), TextReply)
            done = terminal.command(f"/resume {first}")
            assert isinstance(done, ResumedReply)
            assert done.message == f"Resumed session {first}, 2 messages."
            rows = terminal.recent_history().rows
            assert [text_of(row.message) for row in rows] == ["hello there", "Plain answer."]
    assert list(tmp_path.iterdir()) == []


def test_first_run_shows_a_note(open_client: Opener, tmp_path: Path) -> None:
    env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)})
    context = CliContext(env, None, (io.StringIO(), io.StringIO(), io.StringIO()))
    with open_client(person=True, screen=True) as client:
        for notes in ((FIRST_RUN_NOTE,), ()):
            with closing(TerminalClient(lambda: nullcontext(client), context)) as terminal:
                terminal.open()
                assert terminal.greeting.notes == notes
            (tmp_path / "hermes.db").touch()


def test_recent_history_is_bounded(open_client: Opener, hermes: HermesCli) -> None:
    """The number and total size of messages are limited; a larger single message comes alone."""
    clock = SystemClock()

    async def store_session(name: str, *sizes: int) -> None:
        async with open_store(hermes.home / "hermes.db", clock) as store:
            session = Session(id=name, started_at=clock.now())
            user_input = [User(f"{name}-{n}", (Text("x" * size),)) for n, size in enumerate(sizes)]
            rows = [AppendMessage(name, "r1", one, clock.now()) for one in user_input]
            await store.commit(OpenSession(session), *rows)

    def history_size(name: str) -> tuple[int, int]:
        with open_client(resume=name) as client:
            past = client.recent_history()
            return len(past.rows), past.more

    with open_client() as client:
        client.has_news()  # create the home
    anyio.run(store_session, "many", *[10] * (MAX_SHOWN + 30))
    anyio.run(store_session, "large", *[MAX_BYTES // 3] * 4)
    anyio.run(store_session, "huge", 10, MAX_BYTES + 10)
    with open_client(resume="many") as client:
        past = client.recent_history()
    assert len(past.rows) == EXCHANGES
    assert past.more == MAX_SHOWN + 30 - EXCHANGES
    assert history_size("large") == (2, 2)
    assert history_size("huge") == (1, 1)


@pytest.mark.parametrize("from_a_thread", [False, True])
def test_interrupted_turn_ends_in_order(open_client: Opener, from_a_thread: bool) -> None:
    with open_client() as client:

        def interrupt() -> None:
            if not from_a_thread:
                client.interrupt()
                return
            helper = threading.Thread(target=client.interrupt)
            helper.start()
            helper.join(TEST_TIMEOUT)

        collector = EventCollector(interrupt)
        client.interrupt()
        assert client.submit(user_input("hang"), collector) is Outcome.CANCELLED
        assert (collector.ended.reason, collector.ended.code) == ("Interrupted.", "cancelled")
        client.interrupt()
        assert client.submit(user_input("and now"), EventCollector()) is Outcome.DONE


def test_display_error_ends_the_turn(open_client: Opener, model: FakeModelProcess) -> None:
    def break_down() -> None:
        raise OSError("the paper is finished")

    collector = EventCollector(break_down)
    with open_client() as client:
        with pytest.raises(OSError, match="the paper is finished"):
            client.submit(user_input("hang UNSHOWN"), collector)
        assert isinstance(collector.events[-1], TextDelta)
        assert client.submit(user_input("go on UNSHOWN"), EventCollector()) is Outcome.DONE
    assert "first words" in str(model.requests("go on UNSHOWN")[-1])


def test_steering_message_is_read_by_the_turn(
    open_client: Opener, hermes: HermesCli, model: FakeModelProcess
) -> None:
    """The tool is held until the message is stored, so that a further step reads it."""
    steered = threading.Event()

    def steer() -> None:
        client.steer("msg_steer", "and the STEERED one")
        steered.set()

    class Steering(EventCollector):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if isinstance(event, ToolStarted):
                helper = threading.Thread(target=steer)
                helper.start()
                helper.join(TEST_TIMEOUT)
                wait_until(lambda: is_queued(hermes, "msg_steer"))
                (hermes.work / "GO").touch()

    collector = Steering()
    with open_client(person=True) as client:
        assert client.state.busy_mode == "interrupt"
        assert {"steer", "queue", "busy"} <= set(client.greeting.commands)
        assert client.submit(user_input("wait for it"), collector) is Outcome.DONE
    (hermes.work / "GO").unlink()
    assert steered.is_set()
    ids = [one.message.id for one in collector.events if isinstance(one, MessageAdded)]
    assert "msg_steer" in ids
    assert model.requests("STEERED")
    assert not is_queued(hermes, "msg_steer")


def is_queued(hermes: HermesCli, key: str) -> bool:
    """Use the store's SQLite library: another one would drop its locks."""
    with closing(apsw.Connection(str(hermes.home / "hermes.db"), apsw.SQLITE_OPEN_READONLY)) as db:
        return bool(
            list(db.execute("SELECT 1 FROM queue_items WHERE key = ? AND state < 2", [key]))
        )


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TEST_TIMEOUT
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end
        pause.wait(0.02)


def test_usage_report(open_client: Opener) -> None:
    collector = EventCollector()
    with open_client() as client:
        client.submit(user_input("count"), collector)
        report = client.usage_report(collector.ended)
        assert (report.model, report.provider) == ("mock", "openai")
        assert report.session_id == client.state.session
        assert (report.api_calls, report.completed) == (1, True)
        assert report.total_tokens == report.input_tokens + report.output_tokens > 0
        assert client.usage_report(None).api_calls == 0


def test_error_keeps_its_class_and_hint(open_client: Opener, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no session 'nobody'"), open_client(resume="nobody"):
        pass
    text = tmp_path / "text.png"
    text.write_text("no picture")
    with open_client() as client:
        with pytest.raises(UsageError, match="is not an image") as caught:
            client.submit(UserInput((), (bytes(text),)), EventCollector())
        assert "PNG" in caught.value.hint
        with pytest.raises(UsageError, match="Cannot read"):
            client.submit(UserInput((), (b"/nowhere/\xff.png",)), EventCollector())
        with pytest.raises(UsageError, match="nothing to answer"):
            client.submit(user_input(" "), EventCollector())
        assert not client.state.started
        collector = EventCollector()
        assert client.submit(user_input("wrong key"), collector) is Outcome.FAILED
        assert collector.ended.code == "auth"


def test_image_is_sent_along(open_client: Opener, tmp_path: Path, model: FakeModelProcess) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(PNG)
    with open_client() as client:
        assert (
            client.submit(UserInput((Text("PICTURED"),), (bytes(picture),)), EventCollector())
            is Outcome.DONE
        )
    parts = model.requests("PICTURED")[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]


def test_session_runs_one_turn_at_a_time(open_client: Opener) -> None:
    refused: list[Exception] = []

    def ask_elsewhere() -> None:
        with open_client(resume=first.state.session) as second:
            try:
                second.submit(user_input("may I?"), EventCollector())
            except SessionBusy as error:
                refused.append(error)
        first.interrupt()

    def in_a_thread() -> None:
        helpers.append(threading.Thread(target=ask_elsewhere))
        helpers[0].start()

    helpers: list[threading.Thread] = []
    with open_client() as first:
        first.submit(user_input("begin"), EventCollector())
        assert first.submit(user_input("hang"), EventCollector(in_a_thread)) is Outcome.CANCELLED
        helpers[0].join(TEST_TIMEOUT)
        assert not helpers[0].is_alive()
    assert len(refused) == 1


def test_requested_model_stays_with_the_session(
    open_client: Opener, model: FakeModelProcess, kind: str
) -> None:
    with open_client(model="other", person=True) as client:
        assert client.greeting.model == "openai/other"
        client.submit(user_input(f"CHOSEN {kind}"), EventCollector())
        client.submit(user_input(f"CHOSEN {kind} again"), EventCollector())
        client.command("/new")
        client.submit(user_input(f"CHOSEN {kind} anew"), EventCollector())
        session = client.state.session
    with open_client(resume=session) as client:
        client.submit(user_input(f"CHOSEN {kind} still"), EventCollector())
    with open_client(resume=session, model="mock") as client:
        client.submit(user_input(f"CHOSEN {kind} once more"), EventCollector())
    models = [one["model"] for one in model.requests(f"CHOSEN {kind}")]
    assert models == ["other", "other", "other", "other", "mock"]


def test_person_sees_why_the_gateway_is_not_used(
    kind: str, hermes: HermesCli, tmp_path: Path, model: FakeModelProcess
) -> None:
    """Only people see the notice: a program gets the same answer and has no use for the reason."""
    env = Env(hermes.env | {"LANG": "de_DE.UTF-8"})
    home = resolve_home(env)
    with meet_somebody(home, env, ConversationOptions(cwd=str(hermes.work), person=True)) as client:
        notes = client.greeting.notes
    expected = () if kind == "here" else (NOT_USED_NOTE,)
    assert notes == expected
    with meet_somebody(home, env, ConversationOptions(cwd=str(hermes.work))) as client:
        assert client.greeting.notes == ()


def test_missing_folder_is_reported(open_client: Opener, tmp_path: Path, hermes: HermesCli) -> None:
    folder = tmp_path / "soon-gone"
    folder.mkdir()
    env = Env(hermes.env)
    with open_in_process(resolve_home(env), env, ConversationOptions(cwd=str(folder))) as client:
        client.submit(user_input("from there"), EventCollector())
        session = client.state.session
    folder.rmdir()
    with open_client(resume=session) as client:
        (note,) = client.greeting.notes
        assert note == f"{folder} no longer exists; the session continues in {hermes.work}."
        assert client.greeting.folder == str(hermes.work)
