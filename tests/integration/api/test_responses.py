"""Responses over real sockets, with the official client: whole, streamed, chained, kept."""

import json
from pathlib import Path

import anyio
import msgspec
import openai
import pytest

from hermes.schema.messages import text_of
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six"
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply(WORDS, fault=Fault("hang", after=3), chunk=4)]),
        Rule("tool", [Reply("Look.", [Call("terminal", {"command": "echo hi"})]), Reply("Hi.")]),
        Rule("weather", [Reply("", [Call("weather", {"city": "Rome"})]), Reply("Sunny.")]),
        Rule("wrong", [Reply(fault=Fault("status", named="unauthorized"))]),
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
    home: ApiHarness, body: dict[str, object], status: int = 200, **headers: str
) -> ApiResponse:
    told = await home.ask("POST", "/v1/responses", msgspec.json.encode(body), **headers)
    assert told.status == status, told.body
    return told


def events(told: ApiResponse) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for block in told.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            data = json.loads(lines["data"])
            assert data["type"] == lines["event"]
            found.append(data)
    return found


def asked_of_model(home: ApiHarness, number: int = -1) -> list[dict[str, object]]:
    messages = home.mock.requests[number].json["messages"]
    assert isinstance(messages, list)
    return messages


async def test_the_official_client_asks_and_goes_on(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        client = home.client()
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
        sent = asked_of_model(home)
        assert "Be brief." in str(sent[0])
        assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]
        assert len(await home.sessions()) == 1
        kept = await client.responses.retrieve(second.id)
        assert kept.to_dict() == second.to_dict()
        await client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(second.id)


async def test_the_official_client_streams(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        async with home.client().responses.stream(model="hermes-agent", input="a tool") as stream:
            text = ""
            async for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
            final = await stream.get_final_response()
        assert text == final.output_text == "Look.Hi."
        kinds = [item.type for item in final.output]
        assert kinds == ["message", "mcp_call", "message"]


async def test_the_events_come_in_their_order(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        told = await create(home, {"input": "hello", "stream": True})
        found = events(told)
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
        assert (await home.ask("GET", f"/v1/responses/{last['id']}")).json == last


async def test_an_own_tool_is_told_as_what_the_server_did(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        output = (await create(home, {"input": "a tool"})).json["output"]
        first, call, last = output
        assert (call["type"], call["server_label"], call["status"]) == (
            "mcp_call", "hermes", "completed",
        )  # fmt: skip
        assert (call["name"], json.loads(call["arguments"])) == ("terminal", {"command": "echo hi"})
        assert "hi" in call["output"]
        assert (first["content"][0]["text"], last["content"][0]["text"]) == ("Look.", "Hi.")
        found = events(await create(home, {"input": "a tool", "stream": True}))
        told = [event for event in found if "mcp_call" in str(event["type"])]
        assert [str(event["type"]).removeprefix("response.") for event in told] == [
            "mcp_call.in_progress",
            "mcp_call_arguments.delta",
            "mcp_call_arguments.done",
            "mcp_call.completed",
        ]
        assert {event["output_index"] for event in told} == {1}


async def test_the_askers_own_tools_are_handed_to_it(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        client = home.client()
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
        assert "22 degrees" in str(asked_of_model(home)[-1])


async def test_an_older_response_is_branched_from(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        first = (await create(home, {"input": "first"})).json
        then = {"previous_response_id": first["id"]}
        second = (await create(home, {"input": "second", **then})).json
        other = (await create(home, {"input": "another second", **then})).json
        assert second["session_id"] == first["session_id"] != other["session_id"]
        assert [text_of(one) for one in await home.said(str(other["session_id"]))] == [
            "first", WORDS, "another second", WORDS,
        ]  # fmt: skip
        assert len(await home.said(str(first["session_id"]))) == 4


async def test_a_conversation_goes_on_by_its_name(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        first = (await create(home, {"input": "one", "conversation": "trip"})).json
        assert first["conversation"] == {"id": "trip"}
        body = {"input": "two", "conversation": {"id": "trip"}}
        second = (await create(home, body)).json
        assert second["session_id"] == first["session_id"]
        other = (await create(home, {"input": "three", "conversation": "home"})).json
        assert other["session_id"] != first["session_id"]
    async with api_harness(tmp_path, SCRIPT) as home:
        later = (await create(home, {"input": "four", "conversation": "trip"})).json
        assert later["session_id"] == first["session_id"]


async def test_a_history_begins_a_session_and_is_cut_when_asked(tmp_path: Path):
    past = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"word {n}"} for n in range(120)
    ]
    async with api_harness(tmp_path, SCRIPT) as home:
        body = {"input": "now", "conversation_history": past}
        whole = (await create(home, body)).json
        assert len(await home.said(str(whole["session_id"]))) == 122
        cut = (await create(home, {**body, "truncation": "auto"})).json
        assert len(await home.said(str(cut["session_id"]))) == 102
        listed = (await create(home, {"input": [*past[:2], "now"]})).json
        assert len(await home.said(str(listed["session_id"]))) == 4


async def test_what_is_not_to_be_kept_is_not(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        made = (await create(home, {"input": "x", "store": False})).json
        assert (await home.ask("GET", f"/v1/responses/{made['id']}")).status == 404
        body = {"input": "y", "previous_response_id": made["id"]}
        assert (await create(home, body, 404)).code == "previous_response_not_found"


async def test_a_failure_says_so(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        assert (await create(home, {"input": "wrong key"}, 502)).code == "agent_incomplete"
        last = events(await create(home, {"input": "wrong key", "stream": True}))[-1]
        assert last["type"] == "response.failed"
        response = last["response"]
        assert isinstance(response, dict)
        assert response["error"]["code"] == "auth"


async def test_who_leaves_ends_the_turn_and_it_is_kept_as_incomplete(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name = ""
        with anyio.fail_after(60):
            stream = await home.client().responses.create(
                model="hermes-agent", input="hang", stream=True
            )
            async for event in stream:
                if event.type == "response.created":
                    name = event.response.id
                if event.type == "response.output_text.delta":
                    break
            await stream.close()
            await home.mock.requests[0].ended.wait()
            await home.server.entry.idle()
        kept = (await home.ask("GET", f"/v1/responses/{name}")).json
        assert kept["status"] == "incomplete"
        assert kept["incomplete_details"] == {"reason": "cancelled"}
        assert [item["status"] for item in kept["output"]] == ["incomplete"]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_key_asks_once(tmp_path: Path, streams: bool):
    body = {"input": "a tool", "stream": streams}
    async with api_harness(tmp_path, SCRIPT) as home:
        once = await create(home, body, Idempotency_Key="k")
        again = await create(home, body, Idempotency_Key="k")
        other = await create(home, {"input": "x"}, 422, Idempotency_Key="k")
        assert other.code == "idempotency_key_reused"
        assert again.headers["x-hermes-replayed"] == "true"
        calls = len(home.mock.requests)
    async with api_harness(tmp_path, SCRIPT) as home:
        later = await create(home, body, Idempotency_Key="k")
        assert len(home.mock.requests) == 0
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
    ({"input": "x", "model": "nobody"}, 404),
    ({"input": "x", "tools": [{"type": "web_search"}]}, 400),
    ({"input": "x", "tools": [{"type": "function", "name": "a b"}]}, 400),
    ({"input": "x", "tools": [WEATHER, WEATHER]}, 400),
    ({"input": "x", "tool_choice": {"type": "function", "name": "nobody"}}, 400),
    ({"input": [{"type": "input_image", "image_url": "http://x"}]}, 400),
    ({"input": [{"content": [{"type": "input_file"}]}]}, 400),
    ({"input": "x", "conversation_history": [{"role": 3}]}, 400),
]


async def test_bad_requests_are_refused_before_any_write(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT, given=api_settings(most=1)) as home:
        for body, status in BAD:
            assert (await create(home, body, status)).code, body
        for method in ("GET", "DELETE"):
            told = await home.ask(method, "/v1/responses/nobody")
            assert (told.status, told.code) == (404, "response_not_found")
        bad = await home.ask("POST", "/v1/responses", b"{", X_Hermes_Session_Id="../x")
        assert bad.status == 400
        assert await home.sessions() == []
        assert home.mock.requests == []
        assert home.server.entry.active == 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/runs"])
async def test_a_result_that_no_call_of_the_session_waits_for_is_refused(
    tmp_path: Path, path: str
) -> None:
    async with api_harness(tmp_path) as one:
        result = {"type": "function_call_output", "call_id": "never", "output": "x"}
        body = msgspec.json.encode({"input": [result]})
        told = await one.ask("POST", path, body, X_Hermes_Session_Id="s1")
        assert (told.status, told.code) == (400, "unknown_tool_call")
        assert await one.sessions() == []
        await one.chat({"messages": [{"role": "user", "content": "hi"}]}, X_Hermes_Session_Id="s1")
        said = await one.said("s1")
        told = await one.ask("POST", path, body, X_Hermes_Session_Id="s1")
        assert (told.status, told.code) == (400, "unknown_tool_call")
        assert await one.said("s1") == said
