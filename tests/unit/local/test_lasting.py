"""A chat whose gateway goes: what was not begun is asked of another, what was cut off is told."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from hermes.ipc.client import (
    AgentClient,
    CommandReply,
    ConversationOptions,
    ConversationState,
    GatewayGone,
    Greeting,
    RecentHistory,
    RequestNotReceived,
    ShowEvent,
    TextReply,
    UsageReport,
    UserInput,
)
from hermes.ipc.reconnect import (
    GATEWAY_GONE,
    TURN_CUT_OFF,
    BusyRetry,
    OpenClient,
    ReconnectingClient,
    Wait,
)
from hermes.schema.errors import ConfigError, HermesError, SessionBusy
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    RunEnded,
    RunStarted,
    TextDelta,
)
from hermes.schema.messages import Text, Trust, User

PATIENCE = 60.0
START = ConversationOptions(cwd="/work", person=True, model="mock", latest=True)
DONE = RunEnded("r1", Outcome.DONE)
HELLO = UserInput((Text("hello"),))
NOTHING = UserInput(())
Step = Event | Exception


class Played:
    """Plays its steps at every turn; then the turn is done."""

    def __init__(self, *steps: Step, fails: Exception | None = None, started: bool = True) -> None:
        self.greeting = Greeting(model="mock", folder="/work")
        self.state = ConversationState("s1", started)
        self.steps: Sequence[Step] = steps or (DONE,)
        self.fails = fails
        self.done: list[str] = []

    def say(self, question: UserInput, show: ShowEvent) -> Outcome:
        self.done.append("say")
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            show(step)
        return Outcome.DONE

    def news(self) -> bool:
        self._do("news")
        return False

    def command(self, line: str) -> CommandReply:
        self._do(line)
        return TextReply("done")

    def report(self, ended: RunEnded | None) -> UsageReport:
        self._do("report")
        return UsageReport(session_id="s1", model="mock", provider="openai")

    def past(self) -> RecentHistory:
        self._do("past")
        return RecentHistory()

    def answer(self, question: str, words: str) -> None:
        self._do("answer")

    def steer(self, word: str, text: str) -> None:
        self._do("steer")

    def interrupt(self) -> None:
        self.done.append("interrupt")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.fails is not None:
            raise self.fails


class Held(Played):
    """Its session is somebody else's for two tries."""

    def say(self, question: UserInput, show: ShowEvent) -> Outcome:
        self.steps = (DONE,) if len(self.done) > 1 else (SessionBusy("busy"),)
        return super().say(question, show)


class Finding:
    """Finds these, one after the other; one that is an error is raised."""

    def __init__(self, *found: "AgentClient | Exception") -> None:
        self._found = list(found)
        self.starts: list[ConversationOptions] = []
        self.alone: list[bool] = []
        self.meanwhile: Callable[[Wait], object] = lambda wait: None
        self.closed = 0

    def __call__(self, start: ConversationOptions, wait: Wait, *, alone: bool) -> OpenClient:
        self.starts.append(start)
        self.alone.append(alone)
        self.meanwhile(wait)
        found = self._found.pop(0)
        if isinstance(found, Exception):
            raise found
        opened = ExitStack()
        opened.callback(self._count)
        return OpenClient(opened, found, (GATEWAY_GONE,))

    def _count(self) -> None:
        self.closed += 1


def lasting(first: Played, search: Finding, **patience: float) -> ReconnectingClient:
    return ReconnectingClient(OpenClient(ExitStack(), first), START, search, BusyRetry(**patience))


def said(partner: ReconnectingClient, question: UserInput = HELLO) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    return partner.say(question, events.append), events


@pytest.mark.parametrize("gone", [RequestNotReceived("gone"), GatewayGone("gone")])
def test_what_was_not_begun_is_said_to_another(gone: GatewayGone) -> None:
    search = Finding(Played(RunStarted("r1", "s1"), DONE))
    outcome, events = said(lasting(Played(gone), search))
    assert (outcome, events) == (
        Outcome.DONE,
        [Notice(GATEWAY_GONE), RunStarted("r1", "s1"), DONE],
    )
    (start,) = search.starts
    assert (start.resume, start.latest, start.model, start.cwd) == ("s1", False, "", "/work")


def test_a_session_without_a_word_in_it_is_begun_anew_as_it_was_asked_for() -> None:
    search = Finding(Played())
    said(lasting(Played(RequestNotReceived("gone"), started=False), search))
    (start,) = search.starts
    assert (start.resume, start.latest, start.model) == ("", False, "mock")


def test_a_turn_that_was_cut_off_is_not_said_again() -> None:
    other = Played()
    broken = Played(RunStarted("r1", "s1"), TextDelta("Well"), GatewayGone("gone"))
    partner = lasting(broken, Finding(other))
    outcome, events = said(partner)
    assert outcome is Outcome.CANCELLED
    assert events[2:] == [
        Notice(GATEWAY_GONE),
        RunEnded("", Outcome.CANCELLED, TURN_CUT_OFF, "cancelled"),
    ]
    assert other.done == []
    assert said(partner) == (Outcome.DONE, [DONE])


def test_a_turn_that_had_ended_has_ended() -> None:
    partner = lasting(Played(RunStarted("r1", "s1"), DONE, GatewayGone("gone")), Finding(Played()))
    assert said(partner) == (Outcome.DONE, [RunStarted("r1", "s1"), DONE])
    assert partner.news()
    assert said(partner, NOTHING)[1] == [Notice(GATEWAY_GONE), RunEnded("", Outcome.DONE)]


def test_between_two_turns_it_is_news_and_told_in_one_sentence() -> None:
    other = Played()
    partner = lasting(Played(fails=GatewayGone("gone")), Finding(other))
    assert partner.news()
    assert said(partner, NOTHING) == (
        Outcome.DONE,
        [Notice(GATEWAY_GONE), RunEnded("", Outcome.DONE)],
    )
    assert not partner.news()
    assert "say" not in other.done


def test_other_news_is_asked_about_as_ever() -> None:
    first = Played()
    assert said(lasting(first, Finding()), NOTHING) == (Outcome.DONE, [DONE])
    assert first.done == ["say"]


def test_a_gateway_that_always_ends_is_tried_twice_and_then_left_alone() -> None:
    search = Finding(Played(RequestNotReceived("gone")), Played())
    outcome, _ = said(lasting(Played(RequestNotReceived("gone")), search))
    assert (outcome, search.alone, search.closed) == (Outcome.DONE, [False, True], 1)


def test_a_command_is_run_again_only_when_nobody_heard_it() -> None:
    other = Played()
    assert lasting(Played(fails=RequestNotReceived("gone")), Finding(other)).command(
        "/undo"
    ) == TextReply("done")
    assert other.done == ["/undo"]
    other = Played()
    partner = lasting(Played(fails=GatewayGone("gone")), Finding(other))
    with pytest.raises(HermesError, match="may or may not have been executed") as caught:
        partner.command("/undo")
    assert caught.value.code != GatewayGone.code
    assert other.done == []
    assert partner.command("/status") == TextReply("done")
    assert partner.news(), "who goes on is still to be told"


def test_questions_about_the_session_are_asked_again() -> None:
    partner = lasting(Played(fails=GatewayGone("gone")), Finding(Played()))
    assert partner.report(None).session_id == "s1"


def test_words_to_a_turn_that_is_over_are_no_error() -> None:
    partner = lasting(Played(fails=RequestNotReceived("gone")), Finding())
    partner.answer("q1", "once")
    partner.steer("m1", "faster")


def test_what_a_turn_that_was_cut_off_did_not_hear_is_not_left_to_the_next() -> None:
    heard = MessageAdded(User("m1", (Text("faster"),), Trust.OWNER))
    search = Finding(Played())
    broken = Played(RunStarted("r1", "s1"), heard, GatewayGone("gone"))
    partner = lasting(broken, search)

    def show(event: Event) -> None:
        if isinstance(event, RunStarted):
            partner.steer("m1", "faster")
            partner.steer("m2", "still faster")

    assert partner.say(HELLO, show) is Outcome.CANCELLED
    assert search.starts[0].unheard == ("m2",)


def test_where_nobody_is_found_it_is_told_once_and_tried_again_with_the_next_words() -> None:
    partner = lasting(Played(fails=GatewayGone("gone")), Finding(ConfigError("Wrong."), Played()))
    assert partner.news()
    with pytest.raises(ConfigError):
        said(partner, NOTHING)
    assert not partner.news()
    assert said(partner) == (Outcome.DONE, [Notice(GATEWAY_GONE), DONE])


def test_whoever_does_not_want_to_wait_ends_the_search_and_the_turn() -> None:
    other = Played()
    search = Finding(other)
    partner = lasting(Played(RequestNotReceived("gone")), search)
    waits: list[bool] = []

    def meanwhile(wait: Wait) -> None:
        threading.Thread(target=partner.interrupt).start()
        waits.append(wait(PATIENCE))

    search.meanwhile = meanwhile
    outcome, events = said(partner)
    assert (waits, outcome, "say" in other.done) == ([False], Outcome.CANCELLED, False)
    assert events == [
        Notice(GATEWAY_GONE),
        RunEnded("", Outcome.CANCELLED, "Interrupted.", "cancelled"),
    ]


def test_leaving_ends_a_search_and_closes_whom_it_found() -> None:
    search = Finding(Played())
    partner = lasting(Played(RequestNotReceived("gone")), search)
    leaving: list[threading.Thread] = []

    def meanwhile(wait: Wait) -> None:
        leaving.append(threading.Thread(target=partner.close))
        leaving[0].start()
        assert not wait(PATIENCE)

    search.meanwhile = meanwhile
    said(partner)
    leaving[0].join(PATIENCE)
    assert search.closed == 1


def test_a_session_that_the_gateway_still_holds_is_waited_for() -> None:
    held = Held()
    partner = lasting(Played(RequestNotReceived("gone")), Finding(held), look=0.001, busy=PATIENCE)
    assert said(partner)[0] is Outcome.DONE
    assert held.done == ["say"] * 3
    other = Played(SessionBusy("busy"))
    with pytest.raises(SessionBusy):
        said(lasting(Played(RequestNotReceived("gone")), Finding(other), look=1.0, busy=0.0))
