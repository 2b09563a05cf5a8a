"""Side calls without a session, for titles and tags: cheap, but their cost is recorded."""

from pathlib import Path
from typing import Any

import pytest

from hermes.api.side_calls import COST_SOURCE
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.testing.fake_openai.script import Fault, Reply, Rule, Script, TokenCounts
from support.api_server import ApiHarness, api_harness, api_settings

TASK = "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
SCRIPT = Script(
    rules=[
        Rule("refused", [Reply(fault=Fault("status", named="unauthorized"))]),
        Rule("cut", [Reply("A tit", finish="length")]),
    ],
    default=Reply("A title", usage=TokenCounts(30, 3)),
)


def side_call_body(text: str = TASK, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


async def all_sessions(harness: ApiHarness) -> list[str]:
    """Return all sessions, including the cost sessions."""
    archive = harness.app.store.archive_for(OWNER)
    shown = await archive.list(SessionFilter(reviews=True), limit=200)
    ledgers = await archive.list(SessionFilter(source=COST_SOURCE), limit=200)
    return [kept.session.id for kept in (*shown, *ledgers)]


async def test_side_call_sends_only_its_own_messages(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat(side_call_body(max_completion_tokens=50))
        assert response.status == 200
        assert response.json["choices"][0]["message"]["content"] == "A title"
        assert response.json["usage"]["total_tokens"] == 33
        assert "x-hermes-session-id" not in response.headers
        sent = harness.model_request(0)
        assert [message["role"] for message in sent["messages"]] == ["user"]
        assert "tools" not in sent
        assert 50 in {sent.get("max_tokens"), sent.get("max_completion_tokens")}


async def test_side_call_is_counted_without_a_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for _ in range(3):
            await harness.chat(side_call_body())
        assert await harness.sessions() == []
        assert await harness.app.store.archive_for(OWNER).latest() is None
        uses = await harness.app.store.archive_for(OWNER).usage()
        assert [(use.calls, use.usage.input, use.usage.output) for use in uses] == [(3, 90, 9)]
        assert len(await all_sessions(harness)) == 1, "all calls of a day share one ledger"
        metrics = (await harness.ask("GET", "/metrics")).body.decode()
        assert 'hermes_api_turns_total{profile="default",outcome="done"} 3' in metrics
        assert 'hermes_api_tokens_total{profile="default",kind="input"} 90' in metrics
        assert 'hermes_api_turns_active{profile="default"} 0' in metrics


@pytest.mark.parametrize("stream", [True, False])
async def test_header_makes_any_request_a_side_call(tmp_path: Path, *, stream: bool) -> None:
    body = {
        "stream": stream,
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "A title for this?"},
        ],
    }
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat(body, X_Hermes_Task="1")
        assert response.status == 200
        assert b"tit" in response.body
        assert response.body.endswith(b"data: [DONE]\n\n") is stream
        roles = [message["role"] for message in harness.model_request(0)["messages"]]
        assert roles == ["system", "user", "assistant", "user"]
        assert await harness.sessions() == []


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (side_call_body("### Task:\nTidy my desk."), {}),
        (side_call_body(stream=True), {}),
        (side_call_body(), {"X_Hermes_Session_Id": "mine"}),
        (side_call_body(), {"Idempotency_Key": "once"}),
        (side_call_body(), {"X_Hermes_Task": "0"}),
        (side_call_body(tools=[{"type": "function", "function": {"name": "look"}}]), {}),
        (
            {
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    *side_call_body()["messages"],
                ]
            },
            {},
        ),
    ],
)
async def test_request_that_may_need_work_is_a_turn(
    tmp_path: Path, body: dict[str, Any], headers: dict[str, str]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat(body, **headers)
        assert response.status == 200
        assert response.headers["x-hermes-session-id"]
        assert len(await harness.sessions()) == 1
        assert harness.model_request(0)["tools"]


@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ({}, {"X_Hermes_Task": "perhaps"}),
        ({}, {"X_Hermes_Task": "1", "X_Hermes_Session_Id": "mine"}),
        ({}, {"X_Hermes_Task": "1", "Idempotency_Key": "once"}),
        (
            {"tools": [{"type": "function", "function": {"name": "look"}}]},
            {"X_Hermes_Task": "1"},
        ),
    ],
)
async def test_contradicting_header_is_rejected(
    tmp_path: Path, more: dict[str, Any], headers: dict[str, str]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat(side_call_body(**more), **headers)
        assert (response.status, response.code) == (400, "invalid_request")
        assert await all_sessions(harness) == []
        assert harness.model_server.requests == []


async def test_side_call_outcomes(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat(side_call_body("refused"), X_Hermes_Task="1")
        assert (response.status, response.code) == (502, "provider_auth")
        response = await harness.chat(side_call_body("cut"), X_Hermes_Task="1")
        assert response.json["choices"][0]["finish_reason"] == "length"
        assert response.headers["x-hermes-completed"] == "false"


async def test_side_call_needs_a_slot_and_the_key(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT, settings=api_settings(max_turns=1)) as harness:
        with harness.server.turn_gate.take():
            response = await harness.chat(side_call_body())
            assert (response.status, response.code) == (429, "rate_limit_exceeded")
        response = await harness.chat(side_call_body(), key="a-key-that-is-wrong")
        assert response.status == 401
        assert harness.model_server.requests == []


async def test_daily_spend_limit_applies_to_side_calls(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("limits:\n  usd_per_day: 0.0\n")
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat(side_call_body())
        assert response.status == 502
        assert "limit" in response.json["error"]["message"]
        assert harness.model_server.requests == []


@pytest.mark.parametrize("most", [0, -1, 10**30])
async def test_invalid_token_limit_is_ignored(tmp_path: Path, most: int) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        body = b'{"max_tokens": %d, "messages": [{"role": "user", "content": "hi"}]}' % most
        response = await harness.ask("POST", "/v1/chat/completions", body, X_Hermes_Task="1")
        assert response.status in {200, 400}
        assert (await harness.ask("GET", "/health")).status == 200
