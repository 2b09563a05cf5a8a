"""The requests of Open WebUI, which is too large to run here.

For each chat message it streams a completion with its own tools, runs the calls and asks again;
then it asks three more times, without a session, for a title, tags and follow-ups. Those three are
side calls: cheap, and without sessions.
"""

from pathlib import Path
from typing import Any

import msgspec

from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.api_server import ApiHarness, api_harness

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
    harness: ApiHarness, messages: list[dict[str, Any]]
) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and calls of one completion, assembled as the page does it."""
    body = {
        "stream": True,
        "model": "hermes-agent",
        "messages": messages,
        "tools": [TOOL],
        "stream_options": {"include_usage": True},
    }
    response = await harness.chat(body, X_OpenWebUI_User_Name="Ada", Accept="text/event-stream")
    assert response.status == 200
    lines = response.body.decode().splitlines()
    data = [line[6:] for line in lines if line.startswith("data: {")]
    chunks = [msgspec.json.decode(line, type=dict[str, Any]) for line in data]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    return "".join(delta.get("content") or "" for delta in deltas), calls


async def ask_for(harness: ApiHarness, task: str, messages: list[dict[str, Any]]) -> str:
    history = "\n".join(f"{one['role'].upper()}: {one['content']}" for one in messages)
    prompt = f"### Task:\nGenerate {task}.\n<chat_history>\n{history}\n</chat_history>"
    body = {
        "model": "hermes-agent",
        "messages": [{"role": "user", "content": prompt}],
        "stream": False,
        "max_completion_tokens": 1000,
        "metadata": {"task": task, "chat_id": "c"},
    }
    response = await harness.chat(body)
    assert response.status == 200, response
    return response.json["choices"][0]["message"]["content"]


async def test_chat_with_tools_and_three_side_calls(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        assert (await harness.ask("GET", "/v1/models")).json["data"][0]["id"] == "hermes-agent"
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What time is it?"}]
        _, calls = await streamed(harness, messages)
        assert [call["function"]["name"] for call in calls] == ["get_time"]
        called = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
        result = {"role": "tool", "tool_call_id": "call_t", "content": "12:00"}
        calling = {"role": "assistant", "content": "", "tool_calls": called}
        text, _ = await streamed(harness, [*messages, calling, result])
        assert text == "It is noon."
        messages.append({"role": "assistant", "content": text})
        for task in TASKS:
            assert task in await ask_for(harness, task, messages)
        text, _ = await streamed(
            harness, [*messages, {"role": "user", "content": "What did I ask?"}]
        )
        assert text == "You asked for the time."
        talks = [len(await harness.messages(kept.session.id)) for kept in await harness.sessions()]
        assert talks == [6], "the chat is one session, whatever is asked between"
        assert len(harness.model_server.requests) == 6
        sent = [len(request.body) for request in harness.model_server.requests]
        assert max(sent[2:5]) < 1000 < min(sent[0], sent[1], sent[5])


async def test_chat_with_documents_is_not_a_side_call(tmp_path: Path) -> None:
    """Its first message looks like a side call: the page puts the documents before the question."""
    found = "### Task:\nRespond to the user query using the provided context.\n<context>"
    async with api_harness(tmp_path, SCRIPT) as harness:
        text, _ = await streamed(harness, [{"role": "user", "content": f"{found}</context>\nWhy?"}])
        assert text == "You asked for the time."
        assert len(await harness.sessions()) == 1
