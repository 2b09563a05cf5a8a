"""Open WebUI, by its requests: it needs more memory than all of this, so it is played here.

For each message of a chat it streams a completion with tools of its own, runs what is called and
asks again; then it asks three more times, without a session, for a title, tags and follow-ups.
Those three are side calls: cheap, and no sessions.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.api_server import ApiHarness, api_harness

pytestmark = pytest.mark.anyio

TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "The time.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}
TASKS = ("title", "tags", "follow_ups")
SCRIPT = Script(
    rules=[
        *(
            Rule(f"Generate {name}", [Reply(msgspec.json.encode({name: "x"}).decode())])
            for name in TASKS
        ),
        Rule("time", [Reply(calls=[Call("get_time", {}, id="call_t")]), Reply("It is noon.")]),
    ],
    default=Reply("You asked for the time."),
)


async def streamed(
    one: ApiHarness, messages: list[dict[str, Any]]
) -> tuple[str, list[dict[str, Any]]]:
    """The words and the calls of one completion, put together as the page does it."""
    body = {
        "stream": True,
        "model": "hermes-agent",
        "messages": messages,
        "tools": [TOOL],
        "stream_options": {"include_usage": True},
    }
    told = await one.chat(body, X_OpenWebUI_User_Name="Ada", Accept="text/event-stream")
    assert told.status == 200
    lines = told.body.decode().splitlines()
    data = [line[6:] for line in lines if line.startswith("data: {")]
    chunks = [msgspec.json.decode(line, type=dict[str, Any]) for line in data]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    return "".join(delta.get("content") or "" for delta in deltas), calls


async def ask_for(one: ApiHarness, task: str, said: list[dict[str, Any]]) -> str:
    history = "\n".join(f"{one['role'].upper()}: {one['content']}" for one in said)
    prompt = f"### Task:\nGenerate {task}.\n<chat_history>\n{history}\n</chat_history>"
    body = {
        "model": "hermes-agent",
        "messages": [{"role": "user", "content": prompt}],
        "stream": False,
        "max_completion_tokens": 1000,
        "metadata": {"task": task, "chat_id": "c"},
    }
    told = await one.chat(body)
    assert told.status == 200, told
    return told.json["choices"][0]["message"]["content"]


async def test_a_chat_with_tools_and_its_three_extra_questions(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        assert (await one.ask("GET", "/v1/models")).json["data"][0]["id"] == "hermes-agent"
        said: list[dict[str, Any]] = [{"role": "user", "content": "What time is it?"}]
        _, calls = await streamed(one, said)
        assert [call["function"]["name"] for call in calls] == ["get_time"]
        called = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
        result = {"role": "tool", "tool_call_id": "call_t", "content": "12:00"}
        asked = {"role": "assistant", "content": "", "tool_calls": called}
        text, _ = await streamed(one, [*said, asked, result])
        assert text == "It is noon."
        said.append({"role": "assistant", "content": text})
        for task in TASKS:
            assert task in await ask_for(one, task, said)
        text, _ = await streamed(one, [*said, {"role": "user", "content": "What did I ask?"}])
        assert text == "You asked for the time."
        talks = [len(await one.said(kept.session.id)) for kept in await one.sessions()]
        assert talks == [6], "the chat is one session, whatever is asked between"
        assert len(one.mock.requests) == 6
        sent = [len(request.body) for request in one.mock.requests]
        assert max(sent[2:5]) < 1000 < min(sent[0], sent[1], sent[5])


async def test_a_chat_with_documents_is_no_side_call(tmp_path: Path) -> None:
    """Its first message begins like one: the page puts what it found before the question."""
    found = "### Task:\nRespond to the user query using the provided context.\n<context>"
    async with api_harness(tmp_path, SCRIPT) as one:
        text, _ = await streamed(one, [{"role": "user", "content": f"{found}</context>\nWhy?"}])
        assert text == "You asked for the time."
        assert len(await one.sessions()) == 1
