"""What clients do on their own: retry, send back what they received, and look things up."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import openai
import pytest

from hermes.api.errors import NO_RETRY_HEADERS, retry_headers
from hermes.schema.messages import Result, text_of
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT
from support.gateway import wait_until

WRONG_KEY_REPLY = Reply(fault=Fault("status", named="unauthorized"))
SCRIPT = Script(
    rules=[
        Rule("break", [Reply("", [Call("todo", {})]), WRONG_KEY_REPLY]),
        Rule("wrong", [WRONG_KEY_REPLY]),
        Rule("tool", [Reply("Look.", [Call("todo", {})]), Reply("Hi.")]),
        Rule("ponder", [Reply("So it is.", reasoning="Is it so?")]),
        Rule("Goal: count", [Reply("There are seven.")]),
        Rule(
            "how many",
            [Reply("", [Call("delegate_task", {"goal": "Goal: count"})]), Reply("Seven.")],
        ),
        Rule("hang", [Reply("one two three", fault=Fault("hang", after=3), chunk=4)]),
    ],
    default=Reply("Hello."),
)
MODEL = "hermes-agent"


async def post(harness: ApiHarness, path: str, body: object, **headers: str) -> ApiResponse:
    return await harness.ask("POST", path, msgspec.json.encode(body), **headers)


@pytest.mark.parametrize("words", ["break it", "wrong key"])
async def test_permanent_error_is_not_retried(tmp_path: Path, words: str) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client().with_options(max_retries=2)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": words}]
            )
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model=MODEL, input=words)
        assert (await post(harness, "/api/sessions", {"id": "s"})).status == 201
        response = await post(harness, "/api/sessions/s/chat", {"message": words})
        assert (response.status, response.headers["x-should-retry"]) == (502, "false")
        assert sum(harness.server.metrics.turns.values()) == 3


def test_only_transient_errors_without_effects_may_be_retried() -> None:
    assert (
        retry_headers("overloaded") == retry_headers("network") == retry_headers("rate_limit") == {}
    )
    assert (
        retry_headers("overloaded", acted=True)
        == retry_headers("auth")
        == retry_headers("internal")
        == NO_RETRY_HEADERS
    )


async def test_received_items_can_be_sent_back(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client()
        first = await client.responses.create(model=MODEL, input="a tool")
        output: Any = [item.model_dump() for item in first.output]
        refused = {"type": "refusal", "refusal": "I would rather not."}
        items: Any = [
            {"role": "user", "content": "a tool", "name": None, "type": None},
            *output,
            {"type": "message", "role": "assistant", "content": [refused], "status": None},
            {"role": "user", "content": "and now?", "call_id": None, "arguments": None},
        ]
        done = await client.responses.create(model=MODEL, input=items)
        assert done.output_text == "Hello."
        sent = harness.model_request(-1)["messages"][1:]
        assert [message["role"] for message in sent] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
        assert sent[1]["tool_calls"][0]["function"]["name"] == "todo"
        assert "I would rather not." in sent[3]["content"]


async def test_items_can_be_referenced_by_id(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = (await post(harness, "/v1/responses", {"input": "a tool"})).json
        named = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        items = [{"role": "user", "content": "a tool"}, *named, {"role": "user", "content": "so?"}]
        assert (await post(harness, "/v1/responses", {"input": items})).status == 200
        sent = harness.model_request(-1)["messages"][1:]
        assert [message["role"] for message in sent] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
        for name in ("nobody", "msg_x_1", f"{first['output'][0]['id']}0", "", None):
            body = {"input": [{"type": "item_reference", "id": name}, "so?"]}
            response = await post(harness, "/v1/responses", body)
            assert (response.status, response.code) == (400, "item_not_found")
        body = {"input": [{"type": "item_reference", "id": named[0]["id"]}]}
        assert (await post(harness, "/v1/runs", body)).status == 400


async def test_input_items_can_be_listed(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client()
        past: Any = [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]
        first = await client.responses.create(model=MODEL, input=past)
        listed = [item async for item in client.responses.input_items.list(first.id, limit=2)]
        words = [item.content[0].text for item in listed if item.type == "message"]  # pyright: ignore[reportAttributeAccessIssue]
        assert words == ["three", "two", "one"]
        then = await client.responses.create(
            model=MODEL, input="four", previous_response_id=first.id
        )
        path = f"/v1/responses/{then.id}/input_items"
        response = (await harness.ask("GET", f"{path}?order=asc")).json
        assert response["data"][-1]["content"] == [{"type": "input_text", "text": "four"}]
        assert "three" not in str(response["data"])
        for bad in ("limit=0", "limit=x", "limit=101", "order=up", "after=nobody"):
            assert (await harness.ask("GET", f"{path}?{bad}")).status == 400
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(first.id)
        for call in ("input_items", "cancel"):
            method = "GET" if call == "input_items" else "POST"
            assert (await harness.ask(method, f"/v1/responses/nobody/{call}")).status == 404


async def test_one_model_can_be_looked_up(tmp_path: Path) -> None:
    async with api_harness(tmp_path, settings=api_settings(model_name="ada")) as harness:
        client = harness.client()
        assert (await client.models.retrieve("ada")).id == "ada"
        assert (await client.models.retrieve(MODEL)).id == MODEL
        assert (await client.models.retrieve("gpt-9")).root == "ada"


async def test_unsupported_options_are_rejected(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await post(harness, "/v1/responses", {"input": "x", "background": True})
        assert (response.status, response.json["error"]["param"]) == (400, "background")
        for name in ("callback_uri", "tools", "stream"):
            response = await post(harness, "/v1/runs", {"input": "x", name: "y"})
            assert (response.status, response.code) == (400, "invalid_request")
            assert name in response.json["error"]["message"]
        assert await harness.sessions() == []


async def test_reasoning_is_returned_where_supported(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        body = {"messages": [{"role": "user", "content": "ponder"}]}
        whole = (await harness.chat(body)).json["choices"][0]["message"]
        assert (whole["content"], whole["reasoning_content"]) == ("So it is.", "Is it so?")
        lines = (await harness.chat({**body, "stream": True}, Idempotency_Key="k")).body.decode()
        again = (await harness.chat({**body, "stream": True}, Idempotency_Key="k")).body.decode()
        for response in (lines, again):
            data = [line[6:] for line in response.splitlines() if line.startswith("data: {")]
            deltas = [json.loads(one)["choices"][0]["delta"] for one in data]
            assert "".join(one.get("reasoning_content", "") for one in deltas) == "Is it so?"
        output = (await post(harness, "/v1/responses", {"input": "ponder"})).json["output"]
        assert [item["type"] for item in output] == ["reasoning", "message"]
        assert output[0]["summary"] == [{"text": "Is it so?", "type": "summary_text"}]
        async with harness.client().responses.stream(model=MODEL, input="ponder") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert "response.reasoning_summary_text.delta" in kinds
        assert [item.type for item in final.output] == ["reasoning", "message"]


async def test_response_is_rejected_when_full(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, SCRIPT, settings=api_settings(max_turns=1)) as harness,
        anyio.create_task_group() as group,
    ):

        async def hang() -> None:
            await post(harness, "/v1/responses", {"input": "hang"})

        group.start_soon(hang)
        with anyio.fail_after(TEST_TIMEOUT):
            await wait_until(lambda: bool(harness.model_server.requests))
            for more in ({}, {"stream": True}):
                response = await post(harness, "/v1/responses", {"input": "x", **more})
                assert (response.status, response.code) == (429, "rate_limit_exceeded")
                assert int(response.headers["retry-after"]) >= 1
        assert len(harness.model_server.requests) == 1
        group.cancel_scope.cancel()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_background_work_is_awaited(tmp_path: Path, path: str) -> None:
    body = {"input": "how many", "messages": [{"role": "user", "content": "how many"}]}
    async with api_harness(tmp_path, SCRIPT) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            response = await post(harness, path, body)
        assert response.status == 200
        assert "Seven." in response.body.decode()
        transcripts = [
            await harness.messages(found.session.id) for found in await harness.sessions()
        ]
        results = [text_of(one) for rows in transcripts for one in rows if isinstance(one, Result)]
        (came,) = [json.loads(text) for text in results if "seven" in text]
        assert came["status"] == "completed"
        assert len(harness.model_server.requests) == 3
