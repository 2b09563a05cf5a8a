"""What was learned after an answer is told at the prompt, here and behind the door."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.ipc.client import AgentClient, TextReply, UserInput
from hermes.schema.events import Event, Notice, Outcome, RunEnded
from hermes.schema.messages import Text
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.ipc_server import CLIENT_KINDS, OpenTestClient, client_opener

KEEP = {"target": "user", "action": "add", "content": "prefers short answers"}
SCRIPT = Script(
    rules=[Rule("Look back", [Reply("", [Call("memory", KEEP)]), Reply("Done.")])],
    default=Reply("Plain answer."),
)
PATIENCE = 60.0


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    one = HermesCli(tmp_path, model.url)
    one.configure("memory:\n  nudge_interval: 1\n")
    one.work.mkdir(parents=True, exist_ok=True)
    return one


@pytest.fixture(params=CLIENT_KINDS)
def meet(request: pytest.FixtureRequest, hermes: HermesCli) -> Iterator[OpenTestClient]:
    with client_opener(request.param, hermes) as opener:
        yield opener


def wait_for_news(partner: AgentClient) -> None:
    deadline = monotonic() + PATIENCE
    while not partner.news():
        assert monotonic() < deadline, "nobody looked back"


def test_it_is_told_without_a_turn_and_undone_by_a_command(
    meet: OpenTestClient, hermes: HermesCli, model: FakeModelProcess
) -> None:
    before = len(model.requests())
    with meet(person=True) as partner:
        heard: list[Event] = []
        assert partner.say(UserInput((Text("Be brief."),)), heard.append) is Outcome.DONE
        wait_for_news(partner)
        asked = len(model.requests())
        told: list[Event] = []
        assert partner.say(UserInput(()), told.append) is Outcome.DONE
        notice, end = told
        assert isinstance(notice, Notice)
        assert "prefers short answers" in notice.text
        assert isinstance(end, RunEnded)
        assert len(model.requests()) == asked
        assert not partner.news()
        file = resolve_home(Env(hermes.env)).path / "memories/USER.md"
        assert file.read_text() == "prefers short answers"
        listed = partner.command("/changes")
        assert isinstance(listed, TextReply)
        partner.command(f"/changes undo {listed.text.split()[0]}")
        assert not file.exists()
    first, review, _ = model.requests()[before:]
    assert review["messages"][: len(first["messages"])] == first["messages"]
    assert review["tools"] == first["tools"]


def test_one_question_is_answered_without_looking_back(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    before = len(model.requests())
    ran = hermes("-z", "Only this once.")
    assert ran.code == 0
    assert len(model.requests()) == before + 1
