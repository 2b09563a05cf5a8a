"""Signals, kill -9 and concurrent processes lose nothing and repeat nothing."""

import json
import signal

import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess, Fifo, HermesCli

HANG = Fault("hang", after=3)
TREE = """\
echo ran >> runs.txt
exec 9> ready
sleep 1000 &
echo up >&9
wait
"""
SCRIPT = Script(
    rules=[
        Rule("what was", [Reply("Plain answer.")]),
        Rule("hang", [Reply("first words and then silence", fault=HANG, chunk=6)]),
        Rule("tree", [Reply("", [Call("terminal", {"command": TREE}, "call_tree")])]),
    ],
    default=Reply("Plain answer."),
)


def contents(request: dict) -> list[str]:
    return [message["content"] for message in request["messages"][1:]]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_during_stream_ends_turn_and_keeps_text(
    hermes: HermesCli, model: FakeModelProcess, number: signal.Signals, code: int
) -> None:
    with hermes.running("-q", f"hang until {number.name}") as running:
        running.wait_for("first words")
        ran = running.send_signal(number)
    assert ran.code == code
    assert ran.out.splitlines()[-1] == "Interrupted."
    assert ran.err.startswith("session_id: ")
    assert hermes("-c", "-z", f"go on after {number.name}").out == "Plain answer.\n"
    question, partial, again = contents(model.requests(f"go on after {number.name}")[0])
    assert question == f"hang until {number.name}"
    assert partial.startswith("first words")
    assert again == f"go on after {number.name}"


def test_interrupted_oneshot_prints_partial_answer(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    with hermes.running("-z", "hang quietly", "--json") as running:
        running.wait_for('"text_delta"')
        ran = running.send_signal(signal.SIGINT)
    assert ran.code == 130
    assert ran.events[-1]["type"] == "run_ended"
    assert ran.events[-1]["outcome"] == "cancelled"
    assert [event["type"] for event in ran.events].count("run_ended") == 1


def test_signal_during_tool_ends_its_processes(
    hermes: HermesCli, model: FakeModelProcess, fifo: Fifo
) -> None:
    with hermes.running("-q", "grow a tree") as running:
        fifo.lines()
        ran = running.send_signal(signal.SIGINT)
    assert ran.code == 130
    fifo.wait_released()
    assert hermes("-c", "-z", "what now SIGINT").out == "Plain answer.\n"
    (request,) = model.requests("what now SIGINT")
    (result,) = [one for one in request["messages"] if one["role"] == "tool"]
    assert "nterrupted" in result["content"]


def test_interrupted_call_is_not_rerun_after_kill(
    hermes: HermesCli, model: FakeModelProcess, fifo: Fifo
) -> None:
    with hermes.running("-q", "grow a tree, killed") as running:
        fifo.lines()
        ran = running.send_signal(signal.SIGKILL)
    assert ran.code == -signal.SIGKILL
    fifo.wait_released()
    assert hermes("-c", "-z", "what now KILL").out == "Plain answer.\n"
    (request,) = model.requests("what now KILL")
    roles = [one["role"] for one in request["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert request["messages"][3]["tool_call_id"] == "call_tree"
    assert "outcome is unknown" in request["messages"][3]["content"]
    assert (hermes.work / "runs.txt").read_text() == "ran\n"


def test_question_is_kept_after_kill_during_stream(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    with hermes.running("-q", "hang, killed ZETA") as running:
        running.wait_for("first words")
        running.send_signal(signal.SIGKILL)
    assert hermes("-c", "-z", "what was ZETA?").out == "Plain answer.\n"
    assert contents(model.requests("what was ZETA?")[0]) == ["hang, killed ZETA\n\nwhat was ZETA?"]


def test_session_in_use_is_not_touched(hermes: HermesCli, model: FakeModelProcess) -> None:
    with hermes.running("-q", "hang with a lease", "--json") as running:
        running.wait_for('"text_delta"')
        session = json.loads(running.output.splitlines()[0])["session"]
        busy = hermes("-r", session, "-z", "may I?")
        assert (busy.code, busy.out) == (75, "")
        assert busy.err.startswith(f"hermes: Session {session} is being run by process ")
        assert hermes("-z", "another session").code == 0
        assert running.send_signal(signal.SIGINT).code == 130
    assert hermes("-r", session, "-z", "now I may").code == 0
    assert model.requests("may I?") == []
