"""Whoever sits at a terminal is asked before the agent acts, here and behind the door."""

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

DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to build anew"}
SCRIPT = Script(
    rules=[
        Rule("delete", [Reply("", [Call("terminal", DELETE)]), Reply("Done.")]),
        Rule("colour", [
            Reply("", [Call("clarify", {"question": "Which?", "choices": ["red", "blue"]})]),
            Reply("Done."),
        ]),
    ],
    default=Reply("Plain answer."),
)  # fmt: skip


@pytest.fixture(params=CLIENT_KINDS)
def meet(
    request: pytest.FixtureRequest, tmp_path: Path, model: FakeModelProcess
) -> Iterator[OpenTestClient]:
    hermes = HermesCli(tmp_path, model.url)
    hermes.configure("approvals:\n  mode: manual\n")
    (hermes.work / "build").mkdir(parents=True)
    with client_opener(request.param, hermes) as opener:
        yield opener


class Person:
    """Answers what is asked with the words that are given."""

    def __init__(self, partner: AgentClient, *words: str) -> None:
        self._partner = partner
        self._words = words
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, QuestionAsked):
            for word in self._words:
                self._partner.answer(event.question.id, word)

    @property
    def questions(self) -> list[QuestionAsked]:
        return [event for event in self.events if isinstance(event, QuestionAsked)]

    @property
    def result(self) -> Result:
        (found,) = [
            one.message
            for one in self.events
            if isinstance(one, MessageAdded) and isinstance(one.message, Result)
        ]
        return found


def say(partner: AgentClient, text: str, *words: str) -> Person:
    person = Person(partner, *words)
    assert partner.say(UserInput((Text(text),)), person) is Outcome.DONE
    return person


def test_once_and_for_the_session(meet: OpenTestClient, tmp_path: Path) -> None:
    with meet(person=True) as partner:
        first = say(partner, "delete", "once")
        (asked,) = first.questions
        assert asked.question.subject == "rm -rf build"
        assert asked.question.reason == "to build anew"
        assert QuestionAnswered(asked.question.id, "once", "owner") in first.events
        assert not first.result.failed
        again = say(partner, "delete once more", "session")
        assert len(again.questions) == 1
        assert say(partner, "delete again").questions == []


def test_a_refusal_and_a_second_thought(meet: OpenTestClient) -> None:
    with meet(person=True) as partner:
        heard = say(partner, "delete", "deny", "once")
        assert "denied" in text_of(heard.result)
        notices = [event.text for event in heard.events if isinstance(event, Notice)]
        assert any("Already answered" in text for text in notices)


def test_a_clarification(meet: OpenTestClient) -> None:
    with meet(person=True) as partner:
        heard = say(partner, "colour", "2")
        assert heard.questions[0].question.kind is QuestionKind.CLARIFY
        assert '"user_response":"blue"' in text_of(heard.result)


def test_where_nobody_sits_nobody_is_asked(meet: OpenTestClient) -> None:
    with meet() as partner:
        heard = say(partner, "delete")
        assert heard.questions == []
        assert "--yolo" in text_of(heard.result)
        assert "nobody answered" in text_of(say(partner, "colour").result)
    with meet(yolo=True) as partner:
        assert not say(partner, "delete").result.failed
