"""At an idle prompt the end of a background process starts a turn."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.ipc_server import ipc_server_process

JOB = "while ! test -e go; do sleep 0.05; done; echo finished"
ARGS = {"command": JOB, "background": True, "notify_on_complete": True}
SCRIPT = Script(
    rules=[
        Rule("Background work reported results", [Reply("I heard of the end.")]),
        Rule("start it", [Reply("", [Call("terminal", ARGS)]), Reply("It runs.")]),
    ],
    default=Reply("Plain answer."),
    models=("mock",),
)
PROMPT = "\x1b[1;36m> \x1b[0m"


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    one = HermesCli(tmp_path, model.url)
    one.configure("terminal:\n  backend: local\napprovals:\n  mode: off\n")
    return one


@pytest.mark.parametrize("through_gateway", [False, True], ids=["in process", "through a gateway"])
def test_turn_starts_at_an_idle_prompt(
    hermes: HermesCli, model: FakeModelProcess, through_gateway: bool
) -> None:
    with ExitStack() as stack:
        if through_gateway:
            stack.enter_context(ipc_server_process(hermes))
        child = stack.enter_context(hermes.terminal())
        child.expect_exact(PROMPT)
        child.sendline("start it")
        child.expect_exact("It runs.")
        child.expect_exact(PROMPT)
        (hermes.work / "go").touch()
        child.expect_exact("I heard of the end.")
        child.expect_exact(PROMPT)
        child.sendline("hello")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
        child.sendline("/ps")
        child.expect(r"proc_\w+  exited")
        child.expect_exact(PROMPT)
        child.sendeof()
    requests = model.requests("Background work reported results")
    assert "finished" in str(requests[0]["messages"][-1])


def test_stop_ends_background_processes(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("/ps")
        child.expect_exact("No background tasks are running.")
        child.sendline("start it")
        child.expect_exact("It runs.")
        child.expect_exact(PROMPT)
        child.sendline("/tasks")
        child.expect(r"proc_\w+  \d+ s  while")
        child.sendline("/stop")
        child.expect_exact("Ended 1 background task.")
        child.sendline("/agents")
        child.expect(r"proc_\w+  killed")
        child.sendeof()
