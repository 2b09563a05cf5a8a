"""Responses over real sockets, with the official client: complete, streamed, chained, stored."""

import json
from pathlib import Path

import anyio
import msgspec
import openai
import pytest

from hermes.schema.messages import text_of
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings

WORDS = "one two three four five six"
WRONG_KEY_REPLY = Reply(fault=Fault("status", named="unauthorized"))
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply(WORDS, fault=Fault("hang", after=3), chunk=4)]),
        Rule("tool", [Reply("Look.", [Call("terminal", {"command": "echo hi"})]), Reply("Hi.")]),
        Rule("weather", [Reply("", [Call("weather", {"city": "Rome"})]), Reply("Sunny.")]),
        Rule("then wrong", [Reply("Look.", [Call("todo", {})]), WRONG_KEY_REPLY]),
        Rule("wrong", [WRONG_KEY_REPLY]),
    ],
    default=Reply(WORDS, chunk=4),
)
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


async def create(
    harness: ApiHarness, body: dict[str, object], status: int = 200, **headers: str
) -> ApiResponse:
    response = await harness.ask("POST", "/v1/responses", msgspec.json.encode(body), **headers)
    assert response.status == status, response.body
    return response


def events(response: ApiResponse) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for block in response.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            data = json.loads(lines["data"])
            assert data["type"] == lines["event"]
            found.append(data)
    return found


def model_request(harness: ApiHarness, number: int = -1) -> list[dict[str, object]]:
    messages = harness.model_server.requests[number].json["messages"]
    assert isinstance(messages, list)
    return messages


async def test_official_client_asks_and_continues(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client()
        first = await client.responses.create(
            model="hermes-agent", input="My name is Ann.", instructions="Be brief."
        )
        assert (first.status, first.output_text, first.object) == ("completed", WORDS, "response")
        assert first.usage is not None
        assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
        second = await client.responses.create(
            model="hermes-agent", input="Who am I?", previous_response_id=first.id
        )
        assert second.previous_response_id == first.id
        assert second.instructions == "Be brief."
        sent = model_request(harness)
        assert "Be brief." in str(sent[0])
        assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]
        assert len(await harness.sessions()) == 1
        kept = await client.responses.retrieve(second.id)
        assert kept.to_dict() == second.to_dict()
        await client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(second.id)


async def test_official_client_streams(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        async with harness.client().responses.stream(
            model="hermes-agent", input="a tool"
        ) as stream:
            text = ""
            async for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
            final = await stream.get_final_response()
        assert text == final.output_text == "Look.Hi."
        kinds = [item.type for item in final.output]
        assert kinds == ["message", "mcp_call", "message"]


async def test_events_are_in_order(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await create(harness, {"input": "hello", "stream": True})
        found = events(response)
        assert [event["sequence_number"] for event in found] == list(range(len(found)))
        kinds = [str(event["type"]).removeprefix("response.") for event in found]
        assert [kind for kind in kinds if kind != "output_text.delta"] == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
        deltas = [
            event["delta"] for event in found if event["type"] == "response.output_text.delta"
        ]
        assert "".join(map(str, deltas)) == WORDS
        last = found[-1]["response"]
        assert isinstance(last, dict)
        assert (await harness.ask("GET", f"/v1/responses/{last['id']}")).json == last


async def test_server_tool_is_reported_as_a_server_call(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        output = (await create(harness, {"input": "a tool"})).json["output"]
        first, call, last = output
        assert (call["type"], call["server_label"], call["status"]) == (
            "mcp_call", "hermes", "completed",
        )  # fmt: skip
        assert (call["name"], json.loads(call["arguments"])) == ("terminal", {"command": "echo hi"})
        assert "hi" in call["output"]
        assert (first["content"][0]["text"], last["content"][0]["text"]) == ("Look.", "Hi.")
        found = events(await create(harness, {"input": "a tool", "stream": True}))
        response = [event for event in found if "mcp_call" in str(event["type"])]
        assert [str(event["type"]).removeprefix("response.") for event in response] == [
            "mcp_call.in_progress",
            "mcp_call_arguments.delta",
            "mcp_call_arguments.done",
            "mcp_call.completed",
        ]
        assert {event["output_index"] for event in response} == {1}


async def test_client_tool_calls_are_returned_to_the_client(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client()
        first = await client.responses.create(
            model="hermes-agent", input="the weather", tools=[WEATHER]
        )
        (call,) = [item for item in first.output if item.type == "function_call"]
        assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome"})
        answer = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
        second = await client.responses.create(
            model="hermes-agent",
            previous_response_id=first.id,
            input=[answer],
            tools=[WEATHER],
        )
        assert second.output_text == "Sunny."
        assert "22 degrees" in str(model_request(harness)[-1])


async def test_older_response_is_continued_in_a_branch(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = (await create(harness, {"input": "first"})).json
        then = {"previous_response_id": first["id"]}
        second = (await create(harness, {"input": "second", **then})).json
        other = (await create(harness, {"input": "another second", **then})).json
        assert second["session_id"] == first["session_id"] != other["session_id"]
        assert [text_of(one) for one in await harness.messages(str(other["session_id"]))] == [
            "first", WORDS, "another second", WORDS,
        ]  # fmt: skip
        assert len(await harness.messages(str(first["session_id"]))) == 4


async def test_conversation_is_continued_by_name(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = (await create(harness, {"input": "one", "conversation": "trip"})).json
        assert first["conversation"] == {"id": "trip"}
        body = {"input": "two", "conversation": {"id": "trip"}}
        second = (await create(harness, body)).json
        assert second["session_id"] == first["session_id"]
        other = (await create(harness, {"input": "three", "conversation": "home"})).json
        assert other["session_id"] != first["session_id"]
    async with api_harness(tmp_path, SCRIPT) as harness:
        later = (await create(harness, {"input": "four", "conversation": "trip"})).json
        assert later["session_id"] == first["session_id"]


async def test_history_starts_a_session_and_is_truncated_on_request(tmp_path: Path):
    past = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"word {n}"} for n in range(120)
    ]
    async with api_harness(tmp_path, SCRIPT) as harness:
        body = {"input": "now", "conversation_history": past}
        whole = (await create(harness, body)).json
        assert len(await harness.messages(str(whole["session_id"]))) == 122
        cut = (await create(harness, {**body, "truncation": "auto"})).json
        assert len(await harness.messages(str(cut["session_id"]))) == 102
        listed = (await create(harness, {"input": [*past[:2], "now"]})).json
        assert len(await harness.messages(str(listed["session_id"]))) == 4


async def test_response_with_store_false_is_not_stored(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        made = (await create(harness, {"input": "x", "store": False})).json
        assert (await harness.ask("GET", f"/v1/responses/{made['id']}")).status == 404
        body = {"input": "y", "previous_response_id": made["id"]}
        assert (await create(harness, body, 404)).code == "previous_response_not_found"


async def test_failed_response_has_an_error(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        for stream in (False, True):
            body = {"input": "wrong key", "stream": stream}
            assert (await create(harness, body, 502)).code == "provider_auth"
        last = events(await create(harness, {"input": "then wrong", "stream": True}))[-1]
        assert last["type"] == "response.failed"
        response = last["response"]
        assert isinstance(response, dict)
        assert response["error"]["code"] == "provider_auth"


async def test_disconnect_stores_an_incomplete_response(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = ""
        with anyio.fail_after(60):
            stream = await harness.client().responses.create(
                model="hermes-agent", input="hang", stream=True
            )
            async for event in stream:
                if event.type == "response.created":
                    name = event.response.id
                if event.type == "response.output_text.delta":
                    break
            await stream.close()
            await harness.model_server.requests[0].ended.wait()
            await harness.server.turn_gate.wait_idle()
        kept = (await harness.ask("GET", f"/v1/responses/{name}")).json
        assert kept["status"] == "incomplete"
        assert kept["incomplete_details"] == {"reason": "cancelled"}
        assert [item["status"] for item in kept["output"]] == ["incomplete"]


@pytest.mark.parametrize("streams", [False, True])
async def test_response_with_a_key_runs_once(tmp_path: Path, streams: bool):
    body = {"input": "a tool", "stream": streams}
    async with api_harness(tmp_path, SCRIPT) as harness:
        once = await create(harness, body, Idempotency_Key="k")
        again = await create(harness, body, Idempotency_Key="k")
        other = await create(harness, {"input": "x"}, 422, Idempotency_Key="k")
        assert other.code == "idempotency_key_reused"
        assert again.headers["x-hermes-replayed"] == "true"
        calls = len(harness.model_server.requests)
    async with api_harness(tmp_path, SCRIPT) as harness:
        later = await create(harness, body, Idempotency_Key="k")
        assert len(harness.model_server.requests) == 0
    assert calls == 2
    if streams:
        assert events(again)[-1] == events(later)[-1] == events(once)[-1]
        numbers = [event["sequence_number"] for event in events(later)]
        assert numbers == list(range(len(numbers)))
    else:
        assert again.json == later.json == once.json


BAD: list[tuple[dict[str, object], int]] = [
    ({}, 400),
    ({"input": ""}, 400),
    ({"input": {"role": "user"}}, 400),
    ({"input": "x", "stream": "yes"}, 400),
    ({"input": "x", "store": 1}, 400),
    ({"input": "x", "truncation": "some"}, 400),
    ({"input": "x", "conversation": 7}, 400),
    ({"input": "x", "conversation": "c" * 300}, 400),
    ({"input": "x", "conversation": "c", "previous_response_id": "p"}, 400),
    ({"input": "x", "previous_response_id": "nobody"}, 404),
    ({"input": "x", "model": "m", "provider": "nobody"}, 400),
    ({"input": "x", "tools": [{"type": "function", "name": "a b"}]}, 400),
    ({"input": "x", "tools": [WEATHER, WEATHER]}, 400),
    ({"input": "x", "tool_choice": {"type": "function", "name": "nobody"}}, 400),
    ({"input": [{"type": "input_image", "image_url": "http://x"}]}, 400),
    ({"input": [{"content": [{"type": "input_file"}]}]}, 400),
    ({"input": "x", "conversation_history": [{"role": 3}]}, 400),
]


async def test_invalid_response_request_stores_nothing(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT, settings=api_settings(max_turns=1)) as harness:
        for body, status in BAD:
            assert (await create(harness, body, status)).code, body
        for method in ("GET", "DELETE"):
            response = await harness.ask(method, "/v1/responses/nobody")
            assert (response.status, response.code) == (404, "response_not_found")
        bad = await harness.ask("POST", "/v1/responses", b"{", X_Hermes_Session_Id="../x")
        assert bad.status == 400
        assert await harness.sessions() == []
        assert harness.model_server.requests == []
        assert harness.server.turn_gate.active == 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/runs"])
async def test_result_without_a_pending_call_is_rejected(tmp_path: Path, path: str) -> None:
    async with api_harness(tmp_path) as harness:
        result = {"type": "function_call_output", "call_id": "never", "output": "x"}
        body = msgspec.json.encode({"input": [result]})
        response = await harness.ask("POST", path, body, X_Hermes_Session_Id="s1")
        assert (response.status, response.code) == (400, "unknown_tool_call")
        assert await harness.sessions() == []
        await harness.chat(
            {"messages": [{"role": "user", "content": "hi"}]}, X_Hermes_Session_Id="s1"
        )
        messages = await harness.messages("s1")
        response = await harness.ask("POST", path, body, X_Hermes_Session_Id="s1")
        assert (response.status, response.code) == (400, "unknown_tool_call")
        assert await harness.messages("s1") == messages
