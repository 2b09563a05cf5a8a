"""An interactive user is asked before the agent acts, in-process and through the socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.ipc.client import AgentClient, UserInput
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
)
from hermes.schema.messages import Result, Text, text_of
from hermes.schema.questions import QuestionKind
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.ipc_server import CLIENT_KINDS, OpenTestClient, client_opener

DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to rebuild"}
SCRIPT = Script(
    rules=[
        Rule("delete", [Reply("", [Call("terminal", DELETE)]), Reply("Done.")]),
        Rule("remove", [
            Reply("", [Call("terminal", DELETE)]),
            Reply("", [Call("clarify", {"question": "Really not?", "choices": ["no", "yes"]})]),
            Reply("Done."),
        ]),
        Rule("colour", [
            Reply("", [Call("clarify", {"question": "Which?", "choices": ["red", "blue"]})]),
            Reply("Done."),
        ]),
    ],
    default=Reply("Plain answer."),
)  # fmt: skip


@pytest.fixture(params=CLIENT_KINDS)
def open_client(
    request: pytest.FixtureRequest, tmp_path: Path, model: FakeModelProcess
) -> Iterator[OpenTestClient]:
    hermes = HermesCli(tmp_path, model.url)
    hermes.configure("approvals:\n  mode: manual\n")
    (hermes.work / "build").mkdir(parents=True)
    with client_opener(request.param, hermes) as opener:
        yield opener


class Person:
    """Answers each question with the given words."""

    def __init__(self, client: AgentClient, *words: str) -> None:
        self._client = client
        self._answers = words
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, QuestionAsked):
            for word in self._answers:
                self._client.answer(event.question.id, word)

    @property
    def questions(self) -> list[QuestionAsked]:
        return [event for event in self.events if isinstance(event, QuestionAsked)]

    @property
    def results(self) -> list[Result]:
        added = [event.message for event in self.events if isinstance(event, MessageAdded)]
        return [message for message in added if isinstance(message, Result)]

    @property
    def result(self) -> Result:
        (found,) = self.results
        return found


class QuickPerson(Person):
    """Answers the first question twice, and the next one after the reply to the second answer."""

    def __call__(self, event: Event) -> None:
        if not self.questions:
            super().__call__(event)
            return
        self.events.append(event)
        if isinstance(event, Notice | QuestionAsked) and self.notices and len(self.questions) > 1:
            self._client.answer(self.questions[1].question.id, "yes")

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def run_turn(client: AgentClient, text: str, *words: str) -> Person:
    person = Person(client, *words)
    assert client.submit(UserInput((Text(text),)), person) is Outcome.DONE
    return person


def test_approval_once_and_for_the_session(open_client: OpenTestClient, tmp_path: Path) -> None:
    with open_client(person=True) as client:
        first = run_turn(client, "delete", "once")
        (question_event,) = first.questions
        assert question_event.question.subject == "rm -rf build"
        assert question_event.question.reason == "to rebuild"
        assert QuestionAnswered(question_event.question.id, "once", "owner") in first.events
        assert not first.result.failed
        again = run_turn(client, "delete once more", "session")
        assert len(again.questions) == 1
        assert run_turn(client, "delete again").questions == []


def test_second_answer_after_a_denial_is_ignored(open_client: OpenTestClient) -> None:
    with open_client(person=True) as client:
        person = QuickPerson(client, "deny", "once")
        assert client.submit(UserInput((Text("remove"),)), person) is Outcome.DONE
        assert "denied" in text_of(person.results[0])
        assert any("Already answered" in text for text in person.notices)


def test_clarification_is_answered(open_client: OpenTestClient) -> None:
    with open_client(person=True) as client:
        person = run_turn(client, "colour", "2")
        assert person.questions[0].question.kind is QuestionKind.CLARIFY
        assert '"user_response":"blue"' in text_of(person.result)


def test_no_question_without_an_interactive_user(open_client: OpenTestClient) -> None:
    with open_client() as client:
        person = run_turn(client, "delete")
        assert person.questions == []
        assert "--yolo" in text_of(person.result)
        assert "no answer was given" in text_of(run_turn(client, "colour").result)
    with open_client(yolo=True) as client:
        assert not run_turn(client, "delete").result.failed
