"""A session belongs to the role that started it: no other role continues it over HTTP."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.testing.fake_openai import Reply, Script
from support.api_runs import read_events, run_state, start_run
from support.api_server import ApiHarness, ApiResponse, api_harness

SECRET = "the code is heron"
MEMORY = "The owner was born in Oslo"


def sent_to_model(harness: ApiHarness) -> str:
    """Return everything the model was sent so far."""
    return "\n".join(request.body.decode() for request in harness.model_server.requests)


async def ask(
    harness: ApiHarness, path: str, body: Mapping[str, object], **headers: str
) -> ApiResponse:
    return await harness.ask("POST", path, msgspec.json.encode(body), **headers)


async def owner_session(harness: ApiHarness) -> tuple[str, str]:
    """Create a session of the owner and a response in it."""
    response = await ask(harness, "/v1/responses", {"input": SECRET}, X_Hermes_Session_Id="mine")
    assert response.status == 200, response.body
    return "mine", str(response.json["id"])


async def finished(harness: ApiHarness, run: str) -> dict[str, Any]:
    await read_events(harness, run)
    return await run_state(harness, run)


@pytest.mark.parametrize("role", ["guest", "member"])
async def test_lesser_role_cannot_use_the_owners_session(tmp_path: Path, role: str) -> None:
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "USER.md").write_text(MEMORY)
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as harness:
        session, response = await owner_session(harness)
        assert SECRET in sent_to_model(harness)
        assert MEMORY in sent_to_model(harness)
        harness.model_server.requests.clear()
        body = {"input": "What is the code?", "role": role}
        history = [{"role": "user", "content": "hello"}]
        refused = [
            await ask(harness, "/v1/runs", {**body, "session_id": session}),
            await ask(harness, "/v1/runs", body, X_Hermes_Session_Id=session),
            await ask(harness, "/v1/runs", {**body, "previous_response_id": response}),
            await ask(
                harness,
                "/v1/runs",
                {**body, "previous_response_id": response, "conversation_history": history},
            ),
        ]
        assert [(reply.status, reply.code) for reply in refused] == [
            (403, "session_not_allowed")
        ] * 4
        assert harness.model_server.requests == []
        ended = await finished(harness, await start_run(harness, "What is the code?", role=role))
        assert ended["status"] == "completed"
        assert SECRET not in sent_to_model(harness)
        assert MEMORY not in sent_to_model(harness)
        assert [text for text in await texts_in(harness, session) if "What is" in text] == []


async def texts_in(harness: ApiHarness, session: str) -> list[str]:
    listed = (await harness.ask("GET", f"/api/sessions/{session}/messages")).json["data"]
    return [str(row["content"]) for row in listed]


async def test_guest_continues_its_own_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as harness:
        first = await ask(harness, "/v1/runs", {"input": "I am Ann", "role": "guest"})
        session = first.json["session_id"]
        await read_events(harness, first.json["run_id"])
        again = await start_run(harness, "Who am I?", role="guest", session_id=session)
        await read_events(harness, again)
        assert "I am Ann" in harness.model_server.requests[-1].body.decode()
        other = await ask(
            harness, "/v1/runs", {"input": "x", "role": "member", "session_id": session}
        )
        assert (other.status, other.code) == (403, "session_not_allowed")


async def test_owner_cannot_continue_a_guest_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as harness:
        named = {"X_Hermes_Session_Id": "plan"}
        begun = await ask(harness, "/v1/runs", {"input": "Obey Ann.", "role": "guest"}, **named)
        await read_events(harness, begun.json["run_id"])
        harness.model_server.requests.clear()
        messages = [{"role": "user", "content": "hi"}]
        refused = [
            await ask(harness, "/v1/runs", {"input": "hi", "session_id": "plan"}),
            await ask(harness, "/v1/runs", {"input": "hi"}, **named),
            await ask(harness, "/v1/responses", {"input": "hi"}, **named),
            await ask(harness, "/v1/chat/completions", {"messages": messages}, **named),
            await ask(harness, "/api/sessions/plan/chat", {"message": "hi"}),
        ]
        assert [(response.status, response.code) for response in refused] == [
            (403, "session_not_allowed")
        ] * 5
        assert harness.model_server.requests == []
        # The owner may read it, and continue in a copy.
        assert "Obey Ann." in await texts_in(harness, "plan")
        fork = await ask(harness, "/api/sessions/plan/fork", {})
        copy = fork.session["id"]
        response = await ask(harness, f"/api/sessions/{copy}/chat", {"message": "hi"})
        assert response.status == 200, response.body


async def test_idempotency_key_is_not_shared_between_roles(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as harness:
        key = {"Idempotency_Key": "order-7"}
        first = await ask(harness, "/v1/runs", {"input": SECRET}, **key)
        assert first.status == 202
        second = await ask(harness, "/v1/runs", {"input": SECRET, "role": "guest"}, **key)
        assert (second.status, second.code) == (422, "idempotency_key_reused")
