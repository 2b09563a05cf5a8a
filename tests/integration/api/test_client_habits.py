"""What clients do by themselves: try again, send back what they got, look things up."""

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

pytestmark = pytest.mark.anyio

WRONG = Reply(fault=Fault("status", named="unauthorized"))
SCRIPT = Script(
    rules=[
        Rule("break", [Reply("", [Call("todo", {})]), WRONG]),
        Rule("wrong", [WRONG]),
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


async def post(one: ApiHarness, path: str, body: object, **headers: str) -> ApiResponse:
    return await one.ask("POST", path, msgspec.json.encode(body), **headers)


@pytest.mark.parametrize("words", ["break it", "wrong key"])
async def test_what_will_fail_again_is_asked_once(tmp_path: Path, words: str) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        client = one.client().with_options(max_retries=2)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": words}]
            )
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model=MODEL, input=words)
        assert (await post(one, "/api/sessions", {"id": "s"})).status == 201
        told = await post(one, "/api/sessions/s/chat", {"message": words})
        assert (told.status, told.headers["x-should-retry"]) == (502, "false")
        assert sum(one.server.tally.turns.values()) == 3


def test_only_what_passes_and_did_nothing_may_be_tried_again() -> None:
    assert (
        retry_headers("overloaded") == retry_headers("network") == retry_headers("rate_limit") == {}
    )
    assert (
        retry_headers("overloaded", acted=True)
        == retry_headers("auth")
        == retry_headers("internal")
        == NO_RETRY_HEADERS
    )


async def test_what_was_given_may_be_sent_back(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        client = one.client()
        first = await client.responses.create(model=MODEL, input="a tool")
        given: Any = [item.model_dump() for item in first.output]
        refused = {"type": "refusal", "refusal": "I would rather not."}
        asked: Any = [
            {"role": "user", "content": "a tool", "name": None, "type": None},
            *given,
            {"type": "message", "role": "assistant", "content": [refused], "status": None},
            {"role": "user", "content": "and now?", "call_id": None, "arguments": None},
        ]
        done = await client.responses.create(model=MODEL, input=asked)
        assert done.output_text == "Hello."
        sent = one.asked(-1)["messages"][1:]
        assert [said["role"] for said in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[1]["tool_calls"][0]["function"]["name"] == "todo"
        assert "I would rather not." in sent[3]["content"]


async def test_items_may_be_named(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        first = (await post(one, "/v1/responses", {"input": "a tool"})).json
        named = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        asked = [{"role": "user", "content": "a tool"}, *named, {"role": "user", "content": "so?"}]
        assert (await post(one, "/v1/responses", {"input": asked})).status == 200
        sent = one.asked(-1)["messages"][1:]
        assert [said["role"] for said in sent] == ["user", "assistant", "tool", "assistant", "user"]
        for name in ("nobody", "msg_x_1", f"{first['output'][0]['id']}0", "", None):
            body = {"input": [{"type": "item_reference", "id": name}, "so?"]}
            told = await post(one, "/v1/responses", body)
            assert (told.status, told.code) == (400, "item_not_found")
        body = {"input": [{"type": "item_reference", "id": named[0]["id"]}]}
        assert (await post(one, "/v1/runs", body)).status == 400


async def test_what_was_asked_can_be_looked_up(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        client = one.client()
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
        told = (await one.ask("GET", f"{path}?order=asc")).json
        assert told["data"][-1]["content"] == [{"type": "input_text", "text": "four"}]
        assert "three" not in str(told["data"])
        for bad in ("limit=0", "limit=x", "limit=101", "order=up", "after=nobody"):
            assert (await one.ask("GET", f"{path}?{bad}")).status == 400
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(first.id)
        for call in ("input_items", "cancel"):
            method = "GET" if call == "input_items" else "POST"
            assert (await one.ask(method, f"/v1/responses/nobody/{call}")).status == 404


async def test_one_model_can_be_asked_for(tmp_path: Path) -> None:
    async with api_harness(tmp_path, given=api_settings(model_name="ada")) as one:
        client = one.client()
        assert (await client.models.retrieve("ada")).id == "ada"
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-9")


async def test_what_is_not_done_is_refused(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await post(one, "/v1/responses", {"input": "x", "background": True})
        assert (told.status, told.json["error"]["param"]) == (400, "background")
        for name in ("callback_uri", "tools", "stream"):
            told = await post(one, "/v1/runs", {"input": "x", name: "y"})
            assert (told.status, told.code) == (400, "invalid_request")
            assert name in told.json["error"]["message"]
        assert await one.sessions() == []


async def test_thoughts_are_told_where_there_is_a_place(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        said = {"messages": [{"role": "user", "content": "ponder"}]}
        whole = (await one.chat(said)).json["choices"][0]["message"]
        assert (whole["content"], whole["reasoning_content"]) == ("So it is.", "Is it so?")
        lines = (await one.chat({**said, "stream": True}, Idempotency_Key="k")).body.decode()
        again = (await one.chat({**said, "stream": True}, Idempotency_Key="k")).body.decode()
        for told in (lines, again):
            data = [line[6:] for line in told.splitlines() if line.startswith("data: {")]
            deltas = [json.loads(one)["choices"][0]["delta"] for one in data]
            assert "".join(one.get("reasoning_content", "") for one in deltas) == "Is it so?"
        output = (await post(one, "/v1/responses", {"input": "ponder"})).json["output"]
        assert [item["type"] for item in output] == ["reasoning", "message"]
        assert output[0]["summary"] == [{"text": "Is it so?", "type": "summary_text"}]
        async with one.client().responses.stream(model=MODEL, input="ponder") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert "response.reasoning_summary_text.delta" in kinds
        assert [item.type for item in final.output] == ["reasoning", "message"]


async def test_there_is_no_room_for_a_response(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, SCRIPT, given=api_settings(most=1)) as one,
        anyio.create_task_group() as group,
    ):

        async def hang() -> None:
            await post(one, "/v1/responses", {"input": "hang"})

        group.start_soon(hang)
        with anyio.fail_after(TEST_TIMEOUT):
            await wait_until(lambda: bool(one.mock.requests))
            for more in ({}, {"stream": True}):
                told = await post(one, "/v1/responses", {"input": "x", **more})
                assert (told.status, told.code) == (429, "rate_limit_exceeded")
                assert int(told.headers["retry-after"]) >= 1
        assert len(one.mock.requests) == 1
        group.cancel_scope.cancel()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_work_that_is_handed_on_is_waited_for(tmp_path: Path, path: str) -> None:
    body = {"input": "how many", "messages": [{"role": "user", "content": "how many"}]}
    async with api_harness(tmp_path, SCRIPT) as one:
        with anyio.fail_after(TEST_TIMEOUT):
            told = await post(one, path, body)
        assert told.status == 200
        assert "Seven." in told.body.decode()
        said = [await one.said(found.session.id) for found in await one.sessions()]
        results = [text_of(one) for rows in said for one in rows if isinstance(one, Result)]
        (came,) = [json.loads(text) for text in results if "seven" in text]
        assert came["status"] == "completed"
        assert len(one.mock.requests) == 3
