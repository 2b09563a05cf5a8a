"""The goal of an API session is set, pursued, shown and cleared over HTTP."""

from pathlib import Path

import anyio
import msgspec
import pytest

from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.api_server import api_harness

pytestmark = pytest.mark.slow
MET = '{"verdict": "met", "reason": "All pass.", "evidence": ["12 passed"]}'
NOT_MET = '{"verdict": "not_met", "reason": "Run the tests."}'
SCRIPT = Script(
    rules=[
        Rule("12 passed", [Reply(MET)]),
        Rule("# Last messages", [Reply(NOT_MET)]),
        Rule("turn 2 of at most 5", [Reply("Now: 12 passed.")]),
    ],
    default=Reply("I will try."),
)


async def test_goal_of_a_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT, stays=True) as one:
        body = {"model": "mock-model", "messages": [{"role": "user", "content": "hello"}]}
        await one.chat(body)
        (session,) = await one.sessions()
        path = f"/api/sessions/{session.session.id}/goal"
        assert (await one.ask("GET", path)).status == 404
        goal = {"goal": "make the tests pass", "max_turns": 5}
        set_goal = await one.ask("PUT", path, msgspec.json.encode(goal))
        assert (set_goal.status, set_goal.json["state"]) == (200, "active")
        with anyio.fail_after(60):
            while (found := (await one.ask("GET", path)).json)["state"] == "active":
                await anyio.lowlevel.checkpoint()
        assert (found["state"], found["turns"], found["evidence"]) == ("done", 2, ["12 passed"])
        assert (await one.ask("POST", f"{path}/resume")).status == 400
        assert (await one.ask("DELETE", path)).json == {"ok": True}
        assert (await one.ask("PUT", "/api/sessions/none/goal", b'{"goal": "x"}')).status == 404
