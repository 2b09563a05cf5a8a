"""What was learned after an answer is shown at the prompt, in-process and through the socket."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.ipc.client import AgentClient, UserInput
from hermes.schema.events import Event, Notice, Outcome, RunEnded
from hermes.schema.messages import Text
from hermes.schema.terminal import TextReply
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.ipc_server import CLIENT_KINDS, OpenTestClient, client_opener

KEEP = {"target": "user", "action": "add", "content": "prefers short answers"}
SCRIPT = Script(
    rules=[Rule("Look back", [Reply("", [Call("memory", KEEP)]), Reply("Done.")])],
    default=Reply("Plain answer."),
)
TIMEOUT = 60.0


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    one = HermesCli(tmp_path, model.url)
    one.configure("memory:\n  nudge_interval: 1\n")
    one.work.mkdir(parents=True, exist_ok=True)
    return one


@pytest.fixture(params=CLIENT_KINDS)
def open_client(request: pytest.FixtureRequest, hermes: HermesCli) -> Iterator[OpenTestClient]:
    with client_opener(request.param, hermes) as opener:
        yield opener


def wait_for_news(client: AgentClient) -> None:
    deadline = monotonic() + TIMEOUT
    while not client.has_news():
        assert monotonic() < deadline, "there was no review"


def test_review_notice_needs_no_turn_and_can_be_undone(
    open_client: OpenTestClient, hermes: HermesCli, model: FakeModelProcess
) -> None:
    before = len(model.requests())
    with open_client(person=True) as client:
        events: list[Event] = []
        assert client.submit(UserInput((Text("Be brief."),)), events.append) is Outcome.DONE
        wait_for_news(client)
        count = len(model.requests())
        notices: list[Event] = []
        assert client.submit(UserInput(()), notices.append) is Outcome.DONE
        notice, end = notices
        assert isinstance(notice, Notice)
        assert "prefers short answers" in notice.text
        assert isinstance(end, RunEnded)
        assert len(model.requests()) == count
        assert not client.has_news()
        file = resolve_home(Env(hermes.env)).path / "memories/USER.md"
        assert file.read_text() == "prefers short answers"
        listed = client.command("/changes")
        assert isinstance(listed, TextReply)
        client.command(f"/changes undo {listed.text.split()[0]}")
        assert not file.exists()
    first, review, _ = model.requests()[before:]
    assert review["messages"][: len(first["messages"])] == first["messages"]
    assert review["tools"] == first["tools"]


def test_oneshot_question_has_no_review(hermes: HermesCli, model: FakeModelProcess) -> None:
    before = len(model.requests())
    ran = hermes("-z", "Only this once.")
    assert ran.code == 0
    assert len(model.requests()) == before + 1
