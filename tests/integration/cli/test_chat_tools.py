"""A model calls the basic tools through the real program."""

import json
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli, fake_model_process

CODE = "def greet(name):\n    return 'hello ' + name\n"
TODOS = [
    {"id": "1", "content": "write", "status": "completed"},
    {"id": "2", "content": "check", "status": "in_progress"},
]
IMPORT = "cd src && python3 -c \"import greet; print(greet.greet('Welt'))\""
LOOK = "pwd; echo $OPENAI_API_KEY; env | grep -c HERMES_HOME"
FILE = "src/greet.py"


def terminal(command: str) -> Call:
    return Call("terminal", {"command": command})


def patch(old: str, new: str) -> Call:
    edit = {"mode": "replace", "path": FILE, "old_string": old, "new_string": new}
    return Call("patch", edit)


JOB = [
    Reply(
        "I start.",
        [Call("todo", {"todos": TODOS}), Call("write_file", {"path": FILE, "content": CODE})],
    ),
    Reply("", [Call("read_file", {"path": FILE}), Call("search_files", {"pattern": "def greet"})]),
    Reply("", [patch("'hello '", "'grüß dich '")]),
    Reply("", [terminal(IMPORT)]),
    Reply("", [terminal(LOOK)]),
    Reply("", [Call("terminal", "echo, please"), Call("no_such_tool", {}), terminal("exit 7")]),
    Reply("The greeting is German now."),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[HermesCli, FakeModelProcess, list[dict]]:
    root = tmp_path_factory.mktemp("job")
    with fake_model_process(root / "model", Script(rules=[Rule("greeting", JOB)])) as model:
        hermes = HermesCli(root, model.url)
        ran = hermes("-q", "make the greeting German", "--json")
        assert (ran.code, ran.err) == (0, "")
        return hermes, model, ran.events


def results(events: list[dict]) -> list[dict]:
    messages = [event["message"] for event in events if event["type"] == "said"]
    return [message for message in messages if message["type"] == "result"]


def text(result: dict) -> str:
    return result["parts"][0]["text"]


def test_tools_produce_the_expected_files(
    job: tuple[HermesCli, FakeModelProcess, list[dict]],
) -> None:
    hermes, _, _ = job
    assert (hermes.work / "src/greet.py").read_text() == CODE.replace("'hello '", "'grüß dich '")


def test_results_follow_calls_in_order(
    job: tuple[HermesCli, FakeModelProcess, list[dict]],
) -> None:
    _, model, events = job
    todo, written, read, found, patched, ran, where, *bad = results(events)
    assert json.loads(text(todo))["summary"]["in_progress"] == 1
    assert json.loads(text(written))["bytes_written"] == len(CODE)
    assert json.loads(text(read))["content"].startswith("1|def greet(name):\n2|")
    assert json.loads(text(found))["matches"][0]["path"] == "src/greet.py"
    assert "+    return 'grüß dich ' + name" in json.loads(text(patched))["diff"]
    assert json.loads(text(ran))["output"].strip() == "grüß dich Welt"
    assert not any(one["failed"] for one in (todo, written, read, found, patched, ran, where))
    assert all(one["failed"] for one in bad)
    broken, unknown, failed = map(text, bad)
    assert "not complete JSON" in broken
    assert "no_such_tool" in unknown
    assert json.loads(failed)["exit_code"] == 7
    last = model.requests()[-1]["messages"]
    assert [one["role"] for one in last].count("tool") == 10


def test_command_keeps_its_folder_and_sees_no_secrets(
    job: tuple[HermesCli, FakeModelProcess, list[dict]],
) -> None:
    hermes, _, events = job
    folder, key, _ = json.loads(text(results(events)[6]))["output"].splitlines()
    assert folder == str(hermes.work / "src")
    assert key == ""


def test_transcript_can_be_shown_later(
    job: tuple[HermesCli, FakeModelProcess, list[dict]],
) -> None:
    hermes, _, _ = job
    shown = hermes("sessions", "show", _only_session(hermes))
    assert shown.code == 0
    assert "make the greeting German" in shown.out
    assert "The greeting is German now." in shown.out


def _only_session(hermes: HermesCli) -> str:
    (session,) = hermes("sessions", "list", "--json").events
    return session["id"]


def test_home_is_private(job: tuple[HermesCli, FakeModelProcess, list[dict]]) -> None:
    hermes, _, _ = job
    assert hermes.home.stat().st_mode & 0o077 == 0
    assert (hermes.home / "hermes.db").stat().st_mode & 0o077 == 0


def test_oneshot_waits_for_delegated_work(
    tmp_path: Path,
) -> None:
    """After a oneshot the process is gone and cannot finish the work."""
    script = Script(
        rules=[
            Rule("Goal: count", [Reply("There are seven.")]),
            Rule(
                "how many",
                [Reply("", [Call("delegate_task", {"goal": "Goal: count"})]), Reply("Seven.")],
            ),
        ]
    )
    with fake_model_process(tmp_path / "model", script) as model:
        ran = HermesCli(tmp_path, model.url)("-q", "how many are there?", "--json")
    assert (ran.code, ran.err) == (0, "")
    (delegated,) = map(text, results(ran.events))
    assert json.loads(delegated)["status"] == "completed"
    assert "There are seven." in delegated
