"""Controlling runs: stop, steer, answer questions, and act for another role."""

from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import msgspec
import pytest

from hermes.ports.store import EnqueueItem, QueueItem
from hermes.schema.messages import Assistant, Result, Text, Trust, User, text_of
from hermes.schema.scope import Role, Scope
from hermes.testing.fake_openai import Call, Reply, Script
from support.api_runs import SCRIPT, open_events, post_json, read_events, run_state, start_run
from support.api_server import KEY, api_harness, api_process
from support.polling import pause


async def test_stop_is_immediate_and_repeatable(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "hang")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                await reader.until("message.delta")
                response = await post_json(harness, f"/v1/runs/{run}/stop", {}, 200)
                assert response.json == {"run_id": run, "status": "stopping"}
                await reader.until("run.cancelled")
        assert (await run_state(harness, run))["status"] == "cancelled"
        again = await post_json(harness, f"/v1/runs/{run}/stop", {}, 200)
        assert again.json["status"] == "cancelled"
        late = await post_json(harness, f"/v1/runs/{run}/steer", {"input": "x"}, 409)
        assert late.code == "run_not_active"


async def test_run_is_stopped_through_another_process(tmp_path: Path):
    async with (
        api_harness(tmp_path, SCRIPT) as harness,
        api_process(tmp_path, harness.model_server.url) as other,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http,
    ):
        run = await start_run(harness, "hang")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                await reader.until("message.delta")
                async with http.post(f"{other}/v1/runs/{run}/stop") as response:
                    assert await response.json() == {"run_id": run, "status": "stopping"}
                await reader.until("run.cancelled")


async def test_run_is_steered(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "in steps")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                await reader.until("tool.started")
                await post_json(harness, f"/v1/runs/{run}/steer", {"input": "Be quick."}, 202)
                await anyio.Path(tmp_path / "workspace" / "go").touch()
                applied = await reader.until("steer.applied")
                assert applied.data["text"] == "Be quick."
                await reader.until("run.completed")
        messages = await harness.messages(str((await run_state(harness, run))["session_id"]))
        kinds = [type(message) for message in messages]
        assert kinds == [User, Assistant, Result, User, Assistant]


@pytest.mark.parametrize(("choice", "done"), [("approve", True), ("deny", False)])
async def test_run_approval_is_answered(tmp_path: Path, choice: str, done: bool):
    wish = {"command": "echo out > here.txt", "escalate": "outside", "reason": "to test"}
    script = Script(replies=[Reply("", [Call("terminal", wish)]), Reply("So be it.")])
    async with api_harness(tmp_path, script) as harness:
        run = await start_run(harness, "go")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                request = (await reader.until("approval.request")).data
                assert request["command"] == wish["command"]
                assert (await run_state(harness, run))["status"] == "waiting_for_approval"
                none = {"choice": choice, "question_id": "another"}
                await post_json(harness, f"/v1/runs/{run}/approval", none, 409)
                body = {"choice": choice, "question_id": request["question_id"]}
                response = await post_json(harness, f"/v1/runs/{run}/approval", body, 200)
                assert response.json["resolved"] == 1
                await post_json(harness, f"/v1/runs/{run}/approval", body, 409)
                assert (await reader.until("approval.responded")).data["resolved"] is True
                await reader.until("run.completed")
        assert (tmp_path / "here.txt").exists() is done
        response = await post_json(harness, f"/v1/runs/{run}/approval", {"choice": "once"}, 409)
        assert response.code == "approval_not_active"


async def test_run_question_is_answered(tmp_path: Path):
    question = {"question": "Red or blue?", "choices": ["red", "blue"]}
    script = Script(replies=[Reply("", [Call("clarify", question)]), Reply("Blue, then.")])
    async with api_harness(tmp_path, script) as harness:
        run = await start_run(harness, "paint")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                response = (await reader.until("clarify.request")).data
                assert response["description"] == "Red or blue?"
                await post_json(harness, f"/v1/runs/{run}/clarify", {"answer": ""}, 400)
                await post_json(harness, f"/v1/runs/{run}/clarify", {"answer": "blue"}, 200)
                assert (await reader.until("clarify.responded")).data["choice"] == "blue"
                await reader.until("run.completed")
        response = await post_json(harness, f"/v1/runs/{run}/clarify", {"answer": "x"}, 409)
        assert response.code == "clarify_not_active"


@pytest.mark.parametrize(
    ("who", "trust", "acts"),
    [
        ({}, Trust.OWNER, True),
        ({"role": "guest"}, Trust.GUEST, False),
        ({"role": "guest", "brought": True}, Trust.DATA, False),
        ({"brought": True}, Trust.DATA, True),
    ],
    ids=["owner", "guest", "webhook", "data"],
)
async def test_run_for_another_role_has_its_permissions(
    tmp_path: Path, who: dict[str, object], trust: Trust, acts: bool
):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, **who)
        await read_events(harness, run)
        question, _ = await harness.messages(str((await run_state(harness, run))["session_id"]))
        assert isinstance(question, User)
        assert question.trust is trust
        request = msgspec.json.decode(harness.model_server.requests[0].body, type=dict[str, Any])
        offered = {tool["function"]["name"] for tool in request.get("tools", ())}
        assert ("terminal" in offered, "write_file" in offered) == (acts, acts)
        response = await post_json(harness, "/v1/runs", {"input": "x", "role": "king"}, 400)
        assert "role" in response.body.decode()


async def test_run_for_another_role_has_its_own_session(tmp_path: Path):
    past = [{"role": "user", "content": "so the boss said"}, {"role": "assistant", "content": "ok"}]
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "use the tool", role="member", conversation_history=past)
        await read_events(harness, run)
        session = str((await run_state(harness, run))["session_id"])
        messages = await harness.messages(session)
        assert [one.trust for one in messages if isinstance(one, User)] == [Trust.GUEST] * 2
        response = "".join(text_of(one) for one in messages if isinstance(one, Result))
        assert "api_server:" in response
        assert "owner" not in response


async def test_followup_of_another_role_does_not_run_as_the_owner(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, role="guest", brought=True)
        await read_events(harness, run)
        session = str((await run_state(harness, run))["session_id"])
        scope = Scope("default", session, run, str(tmp_path), role=Role.GUEST, source="api_server")
        steered = User("msg_steered", (Text("run it"),), Trust.DATA)
        body = msgspec.Raw(msgspec.json.encode(steered))
        store, seen = harness.app.store, len(harness.model_server.requests)
        await store.commit(
            EnqueueItem(QueueItem(key=steered.id, queue="inbox", topic=session, body=body))
        )
        harness.app.followups.wake(scope)
        await store.commit(*harness.app.followups.rows(scope, "news_1", "It has ended."))
        harness.app.followups.wake(scope)
        with anyio.fail_after(60):
            while not any(
                "It has ended." in text_of(one) for one in await harness.messages(session)
            ):
                await pause()
            while len(harness.model_server.requests) == seen:
                await pause()
        woken = msgspec.json.decode(harness.model_server.requests[seen].body, type=dict[str, Any])
        assert not woken.get("tools")


async def test_late_steering_message_is_returned(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "hang")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                await reader.until("message.delta")
                await post_json(harness, f"/v1/runs/{run}/steer", {"input": "Too late."}, 202)
                await post_json(harness, f"/v1/runs/{run}/stop", {}, 200)
                last = await reader.until("run.cancelled")
        assert last.data["unheard"] == ["Too late."]
