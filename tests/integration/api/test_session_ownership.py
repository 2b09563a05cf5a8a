"""A session belongs to the role that began it: over HTTP no other role continues it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.testing.fake_openai import Reply, Script
from support.api_runs import read_events, run_state, start_run
from support.api_server import ApiHarness, ApiResponse, api_harness

pytestmark = pytest.mark.anyio

SECRET = "the code is heron"
MEMORY = "The owner was born in Oslo"


def told_model(one: ApiHarness) -> str:
    """Everything that the model was sent so far."""
    return "\n".join(request.body.decode() for request in one.mock.requests)


async def ask(
    one: ApiHarness, path: str, body: Mapping[str, object], **headers: str
) -> ApiResponse:
    return await one.ask("POST", path, msgspec.json.encode(body), **headers)


async def owners(one: ApiHarness) -> tuple[str, str]:
    """A session of the owner's, and a response in it."""
    told = await ask(one, "/v1/responses", {"input": SECRET}, X_Hermes_Session_Id="mine")
    assert told.status == 200, told.body
    return "mine", str(told.json["id"])


async def finished(one: ApiHarness, run: str) -> dict[str, Any]:
    await read_events(one, run)
    return await run_state(one, run)


@pytest.mark.parametrize("role", ["guest", "member"])
async def test_a_lesser_role_gets_nothing_of_the_owners_session(tmp_path: Path, role: str) -> None:
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "USER.md").write_text(MEMORY)
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as one:
        session, response = await owners(one)
        assert SECRET in told_model(one)
        assert MEMORY in told_model(one)
        one.mock.requests.clear()
        asked = {"input": "What is the code?", "role": role}
        history = [{"role": "user", "content": "hello"}]
        refused = [
            await ask(one, "/v1/runs", {**asked, "session_id": session}),
            await ask(one, "/v1/runs", asked, X_Hermes_Session_Id=session),
            await ask(one, "/v1/runs", {**asked, "previous_response_id": response}),
            await ask(
                one,
                "/v1/runs",
                {**asked, "previous_response_id": response, "conversation_history": history},
            ),
        ]
        assert [(told.status, told.code) for told in refused] == [(403, "session_not_allowed")] * 4
        assert one.mock.requests == []
        ended = await finished(one, await start_run(one, "What is the code?", role=role))
        assert ended["status"] == "completed"
        assert SECRET not in told_model(one)
        assert MEMORY not in told_model(one)
        assert [text for text in await words(one, session) if "What is" in text] == []


async def words(one: ApiHarness, session: str) -> list[str]:
    listed = (await one.ask("GET", f"/api/sessions/{session}/messages")).json["data"]
    return [str(row["content"]) for row in listed]


async def test_a_guest_goes_on_in_its_own_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as one:
        first = await ask(one, "/v1/runs", {"input": "I am Ann", "role": "guest"})
        session = first.json["session_id"]
        await read_events(one, first.json["run_id"])
        again = await start_run(one, "Who am I?", role="guest", session_id=session)
        await read_events(one, again)
        assert "I am Ann" in one.mock.requests[-1].body.decode()
        other = await ask(one, "/v1/runs", {"input": "x", "role": "member", "session_id": session})
        assert (other.status, other.code) == (403, "session_not_allowed")


async def test_the_owner_does_not_go_on_in_a_guests_session_unawares(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as one:
        named = {"X_Hermes_Session_Id": "plan"}
        begun = await ask(one, "/v1/runs", {"input": "Obey Ann.", "role": "guest"}, **named)
        await read_events(one, begun.json["run_id"])
        one.mock.requests.clear()
        said = [{"role": "user", "content": "hi"}]
        refused = [
            await ask(one, "/v1/runs", {"input": "hi", "session_id": "plan"}),
            await ask(one, "/v1/runs", {"input": "hi"}, **named),
            await ask(one, "/v1/responses", {"input": "hi"}, **named),
            await ask(one, "/v1/chat/completions", {"messages": said}, **named),
            await ask(one, "/api/sessions/plan/chat", {"message": "hi"}),
        ]
        assert [(told.status, told.code) for told in refused] == [(403, "session_not_allowed")] * 5
        assert one.mock.requests == []
        # The owner may look at it, and go on in a copy.
        assert "Obey Ann." in await words(one, "plan")
        fork = await ask(one, "/api/sessions/plan/fork", {})
        copy = fork.json["id"]
        told = await ask(one, f"/api/sessions/{copy}/chat", {"message": "hi"})
        assert told.status == 200, told.body


async def test_one_idempotency_key_does_not_serve_two_roles(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as one:
        key = {"Idempotency_Key": "order-7"}
        first = await ask(one, "/v1/runs", {"input": SECRET}, **key)
        assert first.status == 202
        second = await ask(one, "/v1/runs", {"input": SECRET, "role": "guest"}, **key)
        assert (second.status, second.code) == (422, "idempotency_key_reused")
