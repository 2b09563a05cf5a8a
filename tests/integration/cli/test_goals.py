"""`/goal` at a terminal: turns follow by themselves until the goal is met."""

import pytest

from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.cli_process import HermesCli, exit_status

MET = '{"verdict": "met", "reason": "All pass.", "evidence": ["12 passed"]}'
NOT_MET = '{"verdict": "not_met", "reason": "Run the tests."}'
SCRIPT = Script(
    rules=[
        Rule("12 passed", [Reply(MET)]),
        Rule("# Last messages", [Reply(NOT_MET)]),
        Rule("You are working on a goal", [Reply("Now: 12 passed.")]),
    ],
    default=Reply("I will try."),
)
pytestmark = pytest.mark.slow


def test_goal_is_pursued_and_shown(hermes: HermesCli) -> None:
    hermes.configure("agent: {api_max_retries: 0}\ncheckpoints: {enabled: false}\n")
    with hermes.terminal() as chat:
        chat.expect("> ")
        chat.sendline("/goal make the tests pass, don't stop")
        chat.expect("Goal set, at most 20 turns.")
        chat.expect("I will try.")
        chat.expect("Goal, turn 2 of 20. Run the tests.")
        chat.expect("Now: 12 passed.")
        chat.expect("Goal met after 2 turns. All pass.")
        chat.sendline("/goal")
        chat.expect("State: done, turn 2 of 20")
        chat.sendline("/quit")
        assert exit_status(chat) == 0
