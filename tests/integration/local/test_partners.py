"""What every partner does, whether the agent runs here or behind the door."""

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
from hermes.ipc.client import (
    AgentClient,
    ConversationOptions,
    NotACommand,
    QuitReply,
    RecentHistory,
    ResumedReply,
    SubmitReply,
    TextReply,
    UserInput,
)
from hermes.ipc.connect import connect as meet_somebody
from hermes.ipc.conversation_service import MAX_SHOWN
from hermes.ipc.in_process import open_in_process
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
from hermes.session.recap import MAX_BYTES
from hermes.store.sqlite import open_store
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from hermes.tui import client as tui
from support.cli_process import TEST_TIMEOUT, FakeModelProcess, HermesCli
from support.ipc_server import ipc_server_process

SENT_HOME = (
    "The running gateway is not used here. The gateway has another LANG. "
    "To use it: hermes gateway restart"
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


class Ear:
    """Keeps every event, and does something at the first word of an answer."""

    def __init__(self, at_first_word: Callable[[], object] = lambda: None) -> None:
        self.events: list[Event] = []
        self._at_first_word = at_first_word
        self._heard = False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta) and not self._heard:
            self._heard = True
            self._at_first_word()

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
def meet(kind: str, hermes: HermesCli) -> Opener:
    env = Env(hermes.env)
    home = resolve_home(env)

    def open_partner(**given: object) -> AbstractContextManager[AgentClient]:
        start = ConversationOptions(cwd=str(hermes.work), **given)
        return (
            open_in_process(home, env, start)
            if kind == "here"
            else open_socket_client(home.path, env, start)
        )

    return open_partner


def said(text: str) -> UserInput:
    return UserInput((Text(text),))


def test_a_turn_is_told_from_its_start_to_its_end(meet: Opener, hermes: HermesCli) -> None:
    ear = Ear()
    with meet() as partner:
        assert not partner.state.started
        assert partner.greeting.folder == str(hermes.work)
        assert partner.greeting.commands == ()
        assert partner.say(said("tool please"), ear) is Outcome.DONE
        assert partner.state.started
        session = partner.state.session
    first = ear.events[0]
    assert isinstance(first, RunStarted)
    assert first.session == session
    kinds = [
        type(event.message).__name__ for event in ear.events if isinstance(event, MessageAdded)
    ]
    assert kinds == ["User", "Assistant", "Result", "Assistant"]
    results = [event.message for event in ear.events if isinstance(event, MessageAdded)]
    assert str(hermes.work) in str(results[2])
    assert ear.ended.outcome is Outcome.DONE


def test_a_person_is_greeted(meet: Opener) -> None:
    with meet() as partner:
        partner.say(said("remember me"), Ear())
        session = partner.state.session
    with meet(person=True, resume=session) as partner:
        greeting = partner.greeting
        assert partner.state.session == session
        assert greeting.recap == (("you", "remember me"), ("hermes", "Plain answer."))
        assert greeting.model == "openai/mock"
        assert greeting.trouble is None
        assert {"new", "help", "quit"} <= set(greeting.commands)
    with meet(latest=True) as partner:
        assert partner.state.session == session


def test_a_session_is_found_by_the_words_it_is_listed_with(meet: Opener) -> None:
    with meet() as partner:
        partner.say(said("a very particular beginning of it all"), Ear())
        session = partner.state.session
    for words in ("“a very particular beginning of it all”", "a very particular begin…"):
        with meet(resume=words) as partner:
            assert partner.state.session == session
    with pytest.raises(NotFound, match="There is no session"), meet(resume="never said"):
        pass


def test_commands_are_answered(meet: Opener) -> None:
    with meet() as partner:
        partner.say(said("before the commands"), Ear())
        told = partner.command("/status")
        assert isinstance(told, TextReply)
        assert partner.state.session in told.text
        assert partner.command("/retry") == SubmitReply((Text("before the commands"),), undone=1)
        assert partner.command("/etc/hosts is a file") == NotACommand()
        assert partner.command("/quit") == QuitReply()
        with pytest.raises(UsageError, match="no command /frob") as caught:
            partner.command("/frob")
        assert caught.value.hint
        before = partner.state.session
        partner.command("/new")
        assert partner.state.session != before
        assert not partner.state.started


def test_a_screen_knows_that_nothing_is_asked_for(meet: Opener) -> None:
    with meet(person=True, screen=True) as partner:
        assert not partner.state.yolo
        partner.command("/yolo on")
        assert partner.state.yolo
        partner.command("/yolo off")
        assert not partner.state.yolo
    with meet(person=True, screen=True, yolo=True) as partner:
        assert partner.state.yolo


def test_the_past_of_a_session_is_told_as_far_as_it_is_worth(meet: Opener) -> None:
    with meet() as partner:
        assert partner.past() == RecentHistory()
        for place in range(EXCHANGES + 1):
            partner.say(said(f"turn {place}"), Ear())
        first = partner.state.session
        partner.say(said("hang"), Ear(partner.interrupt))
        past = partner.past()
    assert [text_of(row.message) for row in past.rows][:2] == ["turn 2", "Plain answer."]
    assert text_of(past.rows[-2].message) == "hang"
    assert past.more == 4
    with meet(person=True) as partner:
        reply = partner.command(f"/resume {first}")
        assert isinstance(reply, ResumedReply)
        assert reply.told == f"Back in session {first}, {len(past.rows) + 4} messages."
        assert reply.recap.splitlines()[0] == f"you: turn {EXCHANGES - 1}"
        assert partner.past() == past


def test_a_screen_knows_the_past_from_whom_it_talks_to(meet: Opener, tmp_path: Path) -> None:
    """And from nobody else: the home that it is given here is an empty one."""
    env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)})
    context = CliContext(env, None, (io.StringIO(), io.StringIO(), io.StringIO()))
    with meet(person=True, screen=True) as partner:
        partner.say(said("hello there"), Ear())
        first = partner.state.session
        partner.command("/new")
        with closing(TerminalClient(lambda: nullcontext(partner), context)) as companion:
            companion.open()
            assert isinstance(companion.command("/resume"), tui.TextReply)
            done = companion.command(f"/resume {first}")
            assert done == tui.ResumedReply(f"Back in session {first}, 2 messages.")
            rows = companion.before().rows
            assert [text_of(row.message) for row in rows] == ["hello there", "Plain answer."]
    assert list(tmp_path.iterdir()) == []


def test_whoever_is_new_is_told_what_to_do_first(meet: Opener, tmp_path: Path) -> None:
    env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)})
    context = CliContext(env, None, (io.StringIO(), io.StringIO(), io.StringIO()))
    with meet(person=True, screen=True) as partner:
        for told in ((FIRST_RUN_NOTE,), ()):
            with closing(TerminalClient(lambda: nullcontext(partner), context)) as companion:
                companion.open()
                assert companion.hello.notes == told
            (tmp_path / "state.db").touch()


def test_a_past_has_a_bound(meet: Opener, hermes: HermesCli) -> None:
    """So many messages, of so many bytes; one that is larger by itself comes alone."""
    clock = SystemClock()

    async def said_before(name: str, *sizes: int) -> None:
        async with open_store(hermes.home / "state.db", clock) as store:
            session = Session(id=name, started_at=clock.now())
            said = [User(f"{name}-{n}", (Text("x" * size),)) for n, size in enumerate(sizes)]
            rows = [AppendMessage(name, "r1", one, clock.now()) for one in said]
            await store.commit(OpenSession(session), *rows)

    def told(name: str) -> tuple[int, int]:
        with meet(resume=name) as partner:
            past = partner.past()
            return len(past.rows), past.more

    with meet() as partner:
        partner.news()  # the home is made by whoever comes first
    anyio.run(said_before, "many", *[10] * (MAX_SHOWN + 30))
    anyio.run(said_before, "large", *[MAX_BYTES // 3] * 4)
    anyio.run(said_before, "huge", 10, MAX_BYTES + 10)
    with meet(resume="many") as partner:
        past = partner.past()
    assert len(past.rows) == EXCHANGES
    assert past.more == MAX_SHOWN + 30 - EXCHANGES
    assert told("large") == (2, 2)
    assert told("huge") == (1, 1)


@pytest.mark.parametrize("from_a_thread", [False, True])
def test_an_interrupted_turn_ends_in_order(meet: Opener, from_a_thread: bool) -> None:
    with meet() as partner:

        def interrupt() -> None:
            if not from_a_thread:
                partner.interrupt()
                return
            helper = threading.Thread(target=partner.interrupt)
            helper.start()
            helper.join(TEST_TIMEOUT)

        ear = Ear(interrupt)
        partner.interrupt()
        assert partner.say(said("hang"), ear) is Outcome.CANCELLED
        assert (ear.ended.reason, ear.ended.code) == ("Interrupted.", "cancelled")
        partner.interrupt()
        assert partner.say(said("and now"), Ear()) is Outcome.DONE


def test_whoever_cannot_show_a_turn_ends_it(meet: Opener, model: FakeModelProcess) -> None:
    def break_down() -> None:
        raise OSError("the paper is finished")

    ear = Ear(break_down)
    with meet() as partner:
        with pytest.raises(OSError, match="the paper is finished"):
            partner.say(said("hang UNSHOWN"), ear)
        assert isinstance(ear.events[-1], TextDelta)
        assert partner.say(said("go on UNSHOWN"), Ear()) is Outcome.DONE
    assert "first words" in str(model.requests("go on UNSHOWN")[-1])


def test_words_to_a_turn_are_heard_by_it(
    meet: Opener, hermes: HermesCli, model: FakeModelProcess
) -> None:
    """The tool is held until they are on disk, so that its step is followed by one that hears."""
    said_to = threading.Event()

    def steer() -> None:
        partner.steer("msg_steer", "and the STEERED one")
        said_to.set()

    class Steering(Ear):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if isinstance(event, ToolStarted):
                helper = threading.Thread(target=steer)
                helper.start()
                helper.join(TEST_TIMEOUT)
                until(lambda: waits_in(hermes, "msg_steer"))
                (hermes.work / "GO").touch()

    ear = Steering()
    with meet(person=True) as partner:
        assert partner.state.busy == "interrupt"
        assert {"steer", "queue", "busy"} <= set(partner.greeting.commands)
        assert partner.say(said("wait for it"), ear) is Outcome.DONE
    (hermes.work / "GO").unlink()
    assert said_to.is_set()
    heard = [one.message.id for one in ear.events if isinstance(one, MessageAdded)]
    assert "msg_steer" in heard
    assert model.requests("STEERED")
    assert not waits_in(hermes, "msg_steer")


def waits_in(hermes: HermesCli, key: str) -> bool:
    """Asked of the library that the store has, too: another one would undo its locks."""
    with closing(apsw.Connection(str(hermes.home / "state.db"), apsw.SQLITE_OPEN_READONLY)) as db:
        return bool(list(db.execute("SELECT 1 FROM parcels WHERE key = ? AND state < 2", [key])))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + TEST_TIMEOUT
    pause = threading.Event()
    while not true():
        assert time.monotonic() < end
        pause.wait(0.02)


def test_a_report_counts_and_names(meet: Opener) -> None:
    ear = Ear()
    with meet() as partner:
        partner.say(said("count"), ear)
        report = partner.report(ear.ended)
        assert (report.model, report.provider) == ("mock", "openai")
        assert report.session_id == partner.state.session
        assert (report.api_calls, report.completed) == (1, True)
        assert report.total_tokens == report.input_tokens + report.output_tokens > 0
        assert partner.report(None).api_calls == 0


def test_trouble_keeps_its_kind_and_its_hint(meet: Opener, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no session 'nobody'"), meet(resume="nobody"):
        pass
    text = tmp_path / "text.png"
    text.write_text("no picture")
    with meet() as partner:
        with pytest.raises(UsageError, match="is not an image") as caught:
            partner.say(UserInput((), (bytes(text),)), Ear())
        assert "PNG" in caught.value.hint
        with pytest.raises(UsageError, match="cannot be read"):
            partner.say(UserInput((), (b"/nowhere/\xff.png",)), Ear())
        with pytest.raises(UsageError, match="nothing to answer"):
            partner.say(said(" "), Ear())
        assert not partner.state.started
        ear = Ear()
        assert partner.say(said("wrong key"), ear) is Outcome.FAILED
        assert ear.ended.code == "auth"


def test_a_picture_goes_along(meet: Opener, tmp_path: Path, model: FakeModelProcess) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(PNG)
    with meet() as partner:
        assert partner.say(UserInput((Text("PICTURED"),), (bytes(picture),)), Ear()) is Outcome.DONE
    parts = model.requests("PICTURED")[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]


def test_a_session_is_run_once_at_a_time(meet: Opener) -> None:
    refused: list[Exception] = []

    def ask_elsewhere() -> None:
        with meet(resume=first.state.session) as second:
            try:
                second.say(said("may I?"), Ear())
            except SessionBusy as error:
                refused.append(error)
        first.interrupt()

    def in_a_thread() -> None:
        helpers.append(threading.Thread(target=ask_elsewhere))
        helpers[0].start()

    helpers: list[threading.Thread] = []
    with meet() as first:
        first.say(said("begin"), Ear())
        assert first.say(said("hang"), Ear(in_a_thread)) is Outcome.CANCELLED
        helpers[0].join(TEST_TIMEOUT)
        assert not helpers[0].is_alive()
    assert len(refused) == 1


def test_a_model_that_is_asked_for_stays_with_the_session(
    meet: Opener, model: FakeModelProcess, kind: str
) -> None:
    with meet(model="other", person=True) as partner:
        assert partner.greeting.model == "openai/other"
        partner.say(said(f"CHOSEN {kind}"), Ear())
        partner.say(said(f"CHOSEN {kind} again"), Ear())
        partner.command("/new")
        partner.say(said(f"CHOSEN {kind} anew"), Ear())
        session = partner.state.session
    with meet(resume=session) as partner:
        partner.say(said(f"CHOSEN {kind} still"), Ear())
    with meet(resume=session, model="mock") as partner:
        partner.say(said(f"CHOSEN {kind} once more"), Ear())
    models = [one["model"] for one in model.requests(f"CHOSEN {kind}")]
    assert models == ["other", "other", "other", "other", "mock"]


def test_whoever_is_sent_home_is_told_why(
    kind: str, hermes: HermesCli, tmp_path: Path, model: FakeModelProcess
) -> None:
    """A person only: a program is answered in the same way, and has no use for the reason."""
    env = Env(hermes.env | {"LANG": "de_DE.UTF-8"})
    home = resolve_home(env)
    with meet_somebody(
        home, env, ConversationOptions(cwd=str(hermes.work), person=True)
    ) as partner:
        notes = partner.greeting.notes
    expected = () if kind == "here" else (SENT_HOME,)
    assert notes == expected
    with meet_somebody(home, env, ConversationOptions(cwd=str(hermes.work))) as partner:
        assert partner.greeting.notes == ()


def test_a_folder_that_is_gone_is_told_of(meet: Opener, tmp_path: Path, hermes: HermesCli) -> None:
    folder = tmp_path / "soon-gone"
    folder.mkdir()
    env = Env(hermes.env)
    with open_in_process(resolve_home(env), env, ConversationOptions(cwd=str(folder))) as partner:
        partner.say(said("from there"), Ear())
        session = partner.state.session
    folder.rmdir()
    with meet(resume=session) as partner:
        (note,) = partner.greeting.notes
        assert note == f"{folder} is gone; the session goes on in {hermes.work}."
        assert partner.greeting.folder == str(hermes.work)
