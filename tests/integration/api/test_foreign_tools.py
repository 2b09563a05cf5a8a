"""Tools of types that are not supported are left out and named; all others are served."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness

FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Subagents.",
    "tools": [
        {"type": "function", "name": "spawn", "parameters": {"type": "object"}},
        {"type": "something_new"},
    ],
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Change files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE+"},
}
HOSTED = [{"type": "web_search", "external_web_access": True}, {"type": "mcp", "server_label": "x"}]
SCRIPT = Script(
    rules=[
        Rule("spawn", [Reply(calls=[Call("agents__spawn", {"n": 1}, id="c1")]), Reply("Spawned.")]),
        Rule(
            "patch", [Reply(calls=[Call("apply_patch", {"input": "+ x"}, id="c2")]), Reply("Ok.")]
        ),
    ],
    default=Reply("Hello."),
)


async def create(harness: ApiHarness, **body: object) -> ApiResponse:
    response = await harness.ask("POST", "/v1/responses", msgspec.json.encode(body))
    assert response.status == 200, response.body
    return response


def offered(harness: ApiHarness) -> dict[str, dict[str, Any]]:
    tools = harness.model_request(-1).get("tools", [])
    return {tool["function"]["name"]: tool["function"] for tool in tools}


async def test_response_tools_are_served_as_far_as_possible(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        with caplog.at_level(logging.INFO, "hermes.api"):
            response = await create(harness, input="hi", tools=[FUNCTION, AGENTS, PATCH, *HOSTED])
        ignored = ["agents.something_new", "web_search", "mcp"]
        assert response.json["hermes"]["ignored_tools"] == ignored
        assert response.headers["x-hermes-ignored-tools"] == ", ".join(ignored)
        assert response.json["tools"] == [FUNCTION, AGENTS, PATCH]
        assert sum("web_search" in record.getMessage() for record in caplog.records) == 1
        tools = offered(harness)
        assert {"weather", "agents__spawn", "apply_patch", "terminal"} <= tools.keys()
        assert "start: LINE+" in tools["apply_patch"]["description"]


async def test_tools_in_the_input_are_offered(tmp_path: Path) -> None:
    """Codex sends them so with some models."""
    async with api_harness(tmp_path, SCRIPT) as harness:
        added = {"type": "additional_tools", "role": "developer", "tools": [AGENTS, *HOSTED]}
        items = [added, {"role": "user", "content": "spawn"}]
        response = await create(harness, input=items, tools=[FUNCTION])
        assert {"weather", "agents__spawn"} <= offered(harness).keys()
        assert "web_search" in response.json["hermes"]["ignored_tools"]
        (call,) = response.json["output"]
        assert (call["namespace"], call["name"]) == ("agents", "spawn")


async def test_calls_come_back_in_the_form_of_their_tool(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for words, tool, call, kind in (
            ("spawn", AGENTS, {"name": "spawn", "namespace": "agents", "arguments": '{"n":1}'},
             "function_call"),
            ("patch", PATCH, {"name": "apply_patch", "input": "+ x"}, "custom_tool_call"),
        ):  # fmt: skip
            question = {"role": "user", "content": words}
            item = (await create(harness, input=[question], tools=[tool])).json["output"][0]
            assert {**item, **call, "type": kind} == item
            streamed = await create(harness, input=[question], tools=[tool], stream=True)
            assert f'"type":"{kind}"' in streamed.body.decode()
            output = {"type": f"{kind}_output", "call_id": item["call_id"], "output": "done"}
            done = await create(harness, input=[question, item, output], tools=[tool])
            assert done.json["output"][0]["content"][0]["text"] in {"Spawned.", "Ok."}
            sent = harness.model_request(-1)["messages"][-2]["tool_calls"][0]["function"]
            assert sent["name"] in offered(harness)


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "web_search"}, {"type": "web_search_preview"}, {"type": "mcp"},
     {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}],
)  # fmt: skip
async def test_choice_of_an_unsupported_tool_is_auto(tmp_path: Path, choice: object) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await create(harness, input="hi", tools=HOSTED, tool_choice=choice)
        assert response.json["output"][0]["content"][0]["text"] == "Hello."
        assert "terminal" in offered(harness), "the agent's own tools stay"


async def test_allowed_tools_limit_the_offered_tools(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        allowed = [{"type": "function", "name": "weather"}]
        choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
        await create(harness, input="hi", tools=[FUNCTION, PATCH], tool_choice=choice)
        assert offered(harness).keys() == {"weather"}


async def test_chat_tools_of_other_types_are_named(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        function = {"type": "function", "function": {"name": "weather"}}
        tools = [{"type": "custom", "custom": {"name": "x"}}, {"type": "web\nsearch"}, function]
        body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools}
        response = await harness.chat(body)
        assert response.status == 200
        assert response.json["hermes"]["ignored_tools"] == ["custom", "web search"]
        assert response.headers["x-hermes-ignored-tools"] == "custom, web search"
        assert "weather" in offered(harness)


async def test_chat_served_elsewhere_with_custom_tools_is_continued(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        custom = {"type": "custom", "custom": {"name": "x"}}
        call = {"id": "c1", "type": "custom", "custom": {"name": "x", "input": "+ a"}}
        messages = [
            {"role": "user", "content": "change it"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "user", "content": "hi"},
        ]
        body = {"messages": messages, "tools": [custom], "tool_choice": custom}
        response = await harness.chat(body)
        assert response.json["choices"][0]["message"]["content"] == "Hello."
        (sent,) = harness.model_request(-1)["messages"][2]["tool_calls"]
        assert sent["function"] == {"name": "x", "arguments": '{"input":"+ a"}'}


async def test_input_items_of_other_services_are_left_out(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        items = [
            {"role": "user", "content": "who?"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
            {"role": "assistant", "content": "Ada."},
            {"role": "user", "content": "hi"},
        ]
        await create(harness, input=items)
        roles = [one["role"] for one in harness.model_request(-1)["messages"][1:]]
        assert roles == ["user", "assistant", "user"]


async def test_repeated_conversation_is_one_session(tmp_path: Path) -> None:
    """As codex does it: every request has the whole conversation, and nothing is stored."""
    async with api_harness(tmp_path, SCRIPT) as harness:
        items: list[dict[str, Any]] = [
            {"type": "message", "role": "developer", "content": "You are codex."},
            {"role": "user", "content": "spawn"},
        ]
        for text in ("done", None):
            body = {"input": items, "tools": [AGENTS], "store": False}
            (item,) = (await create(harness, **body)).json["output"]
            items.append(item)
            if text:
                output = {"type": "function_call_output", "call_id": item["call_id"]}
                items.append({**output, "output": text})
        items.append({"role": "user", "content": "and now?"})
        await create(harness, input=items, store=False)
        (kept,) = await harness.sessions()
        assert len(await harness.messages(kept.session.id)) == 6
        # The same conversation from elsewhere is another one.
        await create(harness, input=items[:2], store=False, tools=[AGENTS])
        assert len(await harness.sessions()) == 2
