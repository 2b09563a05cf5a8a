"""Calls without a session, for titles and tags: cheap, and counted all the same."""

from pathlib import Path
from typing import Any

import pytest

from hermes.api.side_calls import COST_SOURCE
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.testing.fake_openai.script import Fault, Reply, Rule, Script, TokenCounts
from support.api_server import ApiHarness, api_harness, api_settings

pytestmark = pytest.mark.anyio

TASK = "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
SCRIPT = Script(
    rules=[
        Rule("refused", [Reply(fault=Fault("status", named="unauthorized"))]),
        Rule("cut", [Reply("A tit", finish="length")]),
    ],
    default=Reply("A title", usage=TokenCounts(30, 3)),
)


def asking(text: str = TASK, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


async def everything(one: ApiHarness) -> list[str]:
    """Every session, the ledgers too."""
    archive = one.app.store.archive_for(OWNER)
    shown = await archive.list(SessionFilter(reviews=True), limit=200)
    ledgers = await archive.list(SessionFilter(source=COST_SOURCE), limit=200)
    return [kept.session.id for kept in (*shown, *ledgers)]


async def test_only_its_own_words_go_to_the_model(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat(asking(max_completion_tokens=50))
        assert told.status == 200
        assert told.json["choices"][0]["message"]["content"] == "A title"
        assert told.json["usage"]["total_tokens"] == 33
        assert "x-hermes-session-id" not in told.headers
        sent = one.asked(0)
        assert [message["role"] for message in sent["messages"]] == ["user"]
        assert "tools" not in sent
        assert 50 in {sent.get("max_tokens"), sent.get("max_completion_tokens")}


async def test_it_is_counted_but_is_no_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        for _ in range(3):
            await one.chat(asking())
        assert await one.sessions() == []
        assert await one.app.store.archive_for(OWNER).latest() is None
        uses = await one.app.store.archive_for(OWNER).usage()
        assert [(use.calls, use.usage.input, use.usage.output) for use in uses] == [(3, 90, 9)]
        assert len(await everything(one)) == 1, "all calls of a day share one ledger"
        metrics = (await one.ask("GET", "/metrics")).body.decode()
        assert 'hermes_api_turns_total{profile="default",outcome="done"} 3' in metrics
        assert 'hermes_api_tokens_total{profile="default",kind="input"} 90' in metrics
        assert 'hermes_api_turns_active{profile="default"} 0' in metrics


@pytest.mark.parametrize("stream", [True, False])
async def test_the_header_makes_one_of_any_call(tmp_path: Path, *, stream: bool) -> None:
    body = {
        "stream": stream,
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "A title for this?"},
        ],
    }
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat(body, X_Hermes_Task="1")
        assert told.status == 200
        assert b"tit" in told.body
        assert told.body.endswith(b"data: [DONE]\n\n") is stream
        roles = [message["role"] for message in one.asked(0)["messages"]]
        assert roles == ["system", "user", "assistant", "user"]
        assert await one.sessions() == []


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (asking("### Task:\nTidy my desk."), {}),
        (asking(stream=True), {}),
        (asking(), {"X_Hermes_Session_Id": "mine"}),
        (asking(), {"Idempotency_Key": "once"}),
        (asking(), {"X_Hermes_Task": "0"}),
        (asking(tools=[{"type": "function", "function": {"name": "look"}}]), {}),
        ({"messages": [{"role": "system", "content": "Be kind."}, *asking()["messages"]]}, {}),
    ],
)
async def test_whatever_may_be_work_is_a_turn(
    tmp_path: Path, body: dict[str, Any], headers: dict[str, str]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat(body, **headers)
        assert told.status == 200
        assert told.headers["x-hermes-session-id"]
        assert len(await one.sessions()) == 1
        assert one.asked(0)["tools"]


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
async def test_a_header_that_goes_against_the_rest_is_refused(
    tmp_path: Path, more: dict[str, Any], headers: dict[str, str]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat(asking(**more), **headers)
        assert (told.status, told.code) == (400, "invalid_request")
        assert await everything(one) == []
        assert one.mock.requests == []


async def test_how_it_may_end(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat(asking("refused"), X_Hermes_Task="1")
        assert (told.status, told.code) == (502, "agent_incomplete")
        told = await one.chat(asking("cut"), X_Hermes_Task="1")
        assert told.json["choices"][0]["finish_reason"] == "length"
        assert told.headers["x-hermes-completed"] == "false"


async def test_it_takes_room_and_needs_the_key(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT, given=api_settings(most=1)) as one:
        with one.server.entry.take():
            told = await one.chat(asking())
            assert (told.status, told.code) == (429, "rate_limit_exceeded")
        told = await one.chat(asking(), key="a-key-that-is-wrong")
        assert told.status == 401
        assert one.mock.requests == []


async def test_money_that_is_spent_for_today_is_spent_for_it_too(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("limits:\n  usd_per_day: 0.0\n")
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat(asking())
        assert told.status == 502
        assert "limit" in told.json["error"]["message"]
        assert one.mock.requests == []


@pytest.mark.parametrize("most", [0, -1, 10**30])
async def test_a_limit_that_makes_no_sense_is_none(tmp_path: Path, most: int) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        body = b'{"max_tokens": %d, "messages": [{"role": "user", "content": "hi"}]}' % most
        told = await one.ask("POST", "/v1/chat/completions", body, X_Hermes_Task="1")
        assert told.status in {200, 400}
        assert (await one.ask("GET", "/health")).status == 200
