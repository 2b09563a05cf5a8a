"""The reconnecting client: unstarted requests move to another agent, interrupted turns end."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from hermes.ipc.client import (
    AgentClient,
    ConversationOptions,
    GatewayGone,
    RequestNotReceived,
    ShowEvent,
    UsageReport,
    UserInput,
)
from hermes.ipc.connect import (
    GATEWAY_GONE,
    TURN_CUT_OFF,
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
from hermes.schema.terminal import ConversationState, Greeting, LineReply, RecentHistory, TextReply

TIMEOUT = 60.0
START = ConversationOptions(cwd="/work", person=True, model="mock", latest=True)
DONE = RunEnded("r1", Outcome.DONE)
HELLO = UserInput((Text("hello"),))
EMPTY = UserInput(())
Step = Event | Exception


class FakeClient:
    """A fake client that plays its steps in every turn, then ends it."""

    def __init__(self, *steps: Step, fails: Exception | None = None, started: bool = True) -> None:
        self.greeting = Greeting(model="mock", folder="/work")
        self.state = ConversationState("s1", started)
        self.unfinished_jobs = 0
        self.steps: Sequence[Step] = steps or (DONE,)
        self.fails = fails
        self.done: list[str] = []

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        self.done.append("say")
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            show(step)
        return Outcome.DONE

    def has_news(self) -> bool:
        self._do("news")
        return False

    def command(self, line: str) -> LineReply:
        self._do(line)
        return TextReply("done")

    def usage_report(self, ended: RunEnded | None) -> UsageReport:
        self._do("report")
        return UsageReport(session_id="s1", model="mock", provider="openai")

    def recent_history(self) -> RecentHistory:
        self._do("past")
        return RecentHistory()

    def answer(self, question: str, text: str) -> None:
        self._do("answer")

    def steer(self, message_id: str, text: str) -> None:
        self._do("steer")

    def interrupt(self) -> None:
        self.done.append("interrupt")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.fails is not None:
            raise self.fails


class BusyClient(FakeClient):
    """A fake client whose session is busy for two attempts."""

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        self.steps = (DONE,) if len(self.done) > 1 else (SessionBusy("busy"),)
        return super().submit(user_input, show)


class FakeReconnect:
    """Returns these clients one after the other, or raises them if they are errors."""

    def __init__(self, *found: "AgentClient | Exception") -> None:
        self._found = list(found)
        self.starts: list[ConversationOptions] = []
        self.alone: list[bool] = []
        self.meanwhile: Callable[[Wait], object] = lambda wait: None
        self.closed = 0

    def __call__(self, start: ConversationOptions, wait: Wait, *, in_process: bool) -> OpenClient:
        self.starts.append(start)
        self.alone.append(in_process)
        self.meanwhile(wait)
        found = self._found.pop(0)
        if isinstance(found, Exception):
            raise found
        opened = ExitStack()
        opened.callback(self._count)
        return OpenClient(opened, found, (GATEWAY_GONE,))

    def _count(self) -> None:
        self.closed += 1


def reconnecting(first: FakeClient, reconnect: FakeReconnect, **retry: float) -> ReconnectingClient:
    return ReconnectingClient(OpenClient(ExitStack(), first), START, reconnect, **retry)


def run_turn(
    client: ReconnectingClient, question: UserInput = HELLO
) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    return client.submit(question, events.append), events


@pytest.mark.parametrize("gone", [RequestNotReceived("gone"), GatewayGone("gone")])
def test_unstarted_turn_is_sent_to_another_agent(gone: GatewayGone) -> None:
    reconnect = FakeReconnect(FakeClient(RunStarted("r1", "s1"), DONE))
    outcome, events = run_turn(reconnecting(FakeClient(gone), reconnect))
    assert (outcome, events) == (
        Outcome.DONE,
        [Notice(GATEWAY_GONE), RunStarted("r1", "s1"), DONE],
    )
    (start,) = reconnect.starts
    assert (start.resume, start.latest, start.model, start.cwd) == ("s1", False, "", "/work")


def test_empty_session_is_opened_again_with_its_options() -> None:
    reconnect = FakeReconnect(FakeClient())
    run_turn(reconnecting(FakeClient(RequestNotReceived("gone"), started=False), reconnect))
    (start,) = reconnect.starts
    assert (start.resume, start.latest, start.model) == ("", False, "mock")


def test_interrupted_turn_is_not_repeated() -> None:
    other = FakeClient()
    broken = FakeClient(RunStarted("r1", "s1"), TextDelta("Well"), GatewayGone("gone"))
    client = reconnecting(broken, FakeReconnect(other))
    outcome, events = run_turn(client)
    assert outcome is Outcome.CANCELLED
    assert events[2:] == [
        Notice(GATEWAY_GONE),
        RunEnded("", Outcome.CANCELLED, TURN_CUT_OFF, "cancelled"),
    ]
    assert other.done == []
    assert run_turn(client) == (Outcome.DONE, [DONE])


def test_ended_turn_keeps_its_outcome() -> None:
    client = reconnecting(
        FakeClient(RunStarted("r1", "s1"), DONE, GatewayGone("gone")), FakeReconnect(FakeClient())
    )
    assert run_turn(client) == (Outcome.DONE, [RunStarted("r1", "s1"), DONE])
    assert client.has_news()
    assert run_turn(client, EMPTY)[1] == [Notice(GATEWAY_GONE), RunEnded("", Outcome.DONE)]


def test_loss_between_turns_is_news_with_one_notice() -> None:
    other = FakeClient()
    client = reconnecting(FakeClient(fails=GatewayGone("gone")), FakeReconnect(other))
    assert client.has_news()
    assert run_turn(client, EMPTY) == (
        Outcome.DONE,
        [Notice(GATEWAY_GONE), RunEnded("", Outcome.DONE)],
    )
    assert not client.has_news()
    assert "say" not in other.done


def test_other_news_starts_a_turn() -> None:
    first = FakeClient()
    assert run_turn(reconnecting(first, FakeReconnect()), EMPTY) == (Outcome.DONE, [DONE])
    assert first.done == ["say"]


def test_failing_gateway_is_tried_twice_then_avoided() -> None:
    reconnect = FakeReconnect(FakeClient(RequestNotReceived("gone")), FakeClient())
    outcome, _ = run_turn(reconnecting(FakeClient(RequestNotReceived("gone")), reconnect))
    assert (outcome, reconnect.alone, reconnect.closed) == (Outcome.DONE, [False, True], 1)


def test_command_is_repeated_only_if_not_received() -> None:
    other = FakeClient()
    assert reconnecting(FakeClient(fails=RequestNotReceived("gone")), FakeReconnect(other)).command(
        "/undo"
    ) == TextReply("done")
    assert other.done == ["/undo"]
    other = FakeClient()
    client = reconnecting(FakeClient(fails=GatewayGone("gone")), FakeReconnect(other))
    with pytest.raises(HermesError, match="may or may not have been executed") as caught:
        client.command("/undo")
    assert caught.value.code != GatewayGone.code
    assert other.done == []
    assert client.command("/status") == TextReply("done")
    assert client.has_news(), "the user still has to be notified"


def test_usage_report_is_requested_again() -> None:
    client = reconnecting(FakeClient(fails=GatewayGone("gone")), FakeReconnect(FakeClient()))
    assert client.usage_report(None).session_id == "s1"


def test_answer_or_steering_after_the_turn_is_ignored() -> None:
    client = reconnecting(FakeClient(fails=RequestNotReceived("gone")), FakeReconnect())
    client.answer("q1", "once")
    client.steer("m1", "faster")


def test_unconfirmed_steering_is_withdrawn_from_the_next_turn() -> None:
    confirmed = MessageAdded(User("m1", (Text("faster"),), Trust.OWNER))
    reconnect = FakeReconnect(FakeClient())
    broken = FakeClient(RunStarted("r1", "s1"), confirmed, GatewayGone("gone"))
    client = reconnecting(broken, reconnect)

    def show(event: Event) -> None:
        if isinstance(event, RunStarted):
            client.steer("m1", "faster")
            client.steer("m2", "still faster")

    assert client.submit(HELLO, show) is Outcome.CANCELLED
    assert reconnect.starts[0].unheard == ("m2",)


def test_failed_reconnect_is_raised_once_and_retried_with_the_next_message() -> None:
    client = reconnecting(
        FakeClient(fails=GatewayGone("gone")), FakeReconnect(ConfigError("Wrong."), FakeClient())
    )
    assert client.has_news()
    with pytest.raises(ConfigError):
        run_turn(client, EMPTY)
    assert not client.has_news()
    assert run_turn(client) == (Outcome.DONE, [Notice(GATEWAY_GONE), DONE])


def test_interrupt_ends_the_search_and_the_turn() -> None:
    other = FakeClient()
    reconnect = FakeReconnect(other)
    client = reconnecting(FakeClient(RequestNotReceived("gone")), reconnect)
    waits: list[bool] = []

    def meanwhile(wait: Wait) -> None:
        threading.Thread(target=client.interrupt).start()
        waits.append(wait(TIMEOUT))

    reconnect.meanwhile = meanwhile
    outcome, events = run_turn(client)
    assert (waits, outcome, "say" in other.done) == ([False], Outcome.CANCELLED, False)
    assert events == [
        Notice(GATEWAY_GONE),
        RunEnded("", Outcome.CANCELLED, "Interrupted.", "cancelled"),
    ]


def test_close_ends_the_search_and_closes_the_found_client() -> None:
    reconnect = FakeReconnect(FakeClient())
    client = reconnecting(FakeClient(RequestNotReceived("gone")), reconnect)
    leaving: list[threading.Thread] = []

    def meanwhile(wait: Wait) -> None:
        leaving.append(threading.Thread(target=client.close))
        leaving[0].start()
        assert not wait(TIMEOUT)

    reconnect.meanwhile = meanwhile
    run_turn(client)
    leaving[0].join(TIMEOUT)
    assert reconnect.closed == 1


def test_busy_session_is_retried_after_reconnecting() -> None:
    held = BusyClient()
    client = reconnecting(
        FakeClient(RequestNotReceived("gone")),
        FakeReconnect(held),
        busy_interval=0.001,
        busy_timeout=TIMEOUT,
    )
    assert run_turn(client)[0] is Outcome.DONE
    assert held.done == ["say"] * 3
    other = FakeClient(SessionBusy("busy"))
    with pytest.raises(SessionBusy):
        run_turn(
            reconnecting(
                FakeClient(RequestNotReceived("gone")),
                FakeReconnect(other),
                busy_interval=1.0,
                busy_timeout=0.0,
            )
        )
