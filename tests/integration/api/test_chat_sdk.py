"""Chat completions with the official client: complete, streamed, with tools, images and errors."""

import base64
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from hermes.schema.messages import Assistant, Result, User, text_of
from hermes.testing.fake_openai.script import Call, Fault, Reply, Rule, Script
from support.api_server import api_harness

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


async def test_complete_answer(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply(text="Hello there, friend."))) as harness:
        done = await harness.client().chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": "hi"}]
        )
        assert done.object == "chat.completion"
        assert done.choices[0].message.content == "Hello there, friend."
        assert done.choices[0].finish_reason == "stop"
        assert done.usage is not None
        assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (10, 5)
        (kept,) = await harness.sessions()
        assert kept.session.source == "api_server"
        assert [text_of(message) for message in await harness.messages(kept.session.id)] == [
            "hi",
            "Hello there, friend.",
        ]


async def test_streamed_answer_equals_the_stored_one(tmp_path: Path) -> None:
    script = Script(
        replies=[
            Reply(text="Let me look.", calls=[Call("todo", {})]),
            Reply(text="There is nothing to do."),
        ]
    )
    async with api_harness(tmp_path, script) as harness:
        stream = await harness.client().chat.completions.create(
            model="hermes-agent",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "Let me look.\n\nThere is nothing to do."
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert not chunks[-1].choices
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == 30
        (kept,) = await harness.sessions()
        answers = [m for m in await harness.messages(kept.session.id) if isinstance(m, Assistant)]
        assert "\n\n".join(a.text for a in answers) == text
        whole = await harness.client().chat.completions.create(
            model="hermes-agent",
            messages=[
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": text},
                {"role": "user", "content": "and now?"},
            ],
        )
        assert whole.model_extra is not None
        assert whole.model_extra["hermes"]["session_id"] == kept.session.id


async def test_client_tool_calls_are_returned(tmp_path: Path) -> None:
    script = Script(
        replies=[
            Reply(calls=[Call("weather", {"city": "Oslo"}, id="call_w")]),
            Reply(text="It rains in Oslo."),
        ]
    )
    async with api_harness(tmp_path, script) as harness:
        client = harness.client()
        first = await client.chat.completions.create(
            model="hermes-agent",
            messages=[{"role": "user", "content": "weather in Oslo?"}],
            tools=[WEATHER],
        )
        assert first.choices[0].finish_reason == "tool_calls"
        (call,) = first.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert (call.id, call.function.name) == ("call_w", "weather")
        assert call.function.arguments == '{"city":"Oslo"}'
        offered = {tool["function"]["name"] for tool in harness.model_request(0)["tools"]}
        assert {"weather", "read_file"} <= offered
        second = await client.chat.completions.create(
            model="hermes-agent",
            messages=[
                {"role": "user", "content": "weather in Oslo?"},
                first.choices[0].message.model_dump(exclude_none=True),  # pyright: ignore[reportArgumentType]
                {"role": "tool", "tool_call_id": "call_w", "content": "rain"},
            ],
            tools=[WEATHER],
        )
        assert second.choices[0].message.content == "It rains in Oslo."
        (kept,) = await harness.sessions()
        user, asking, result, answer = await harness.messages(kept.session.id)
        assert isinstance(user, User)
        assert isinstance(asking, Assistant)
        assert isinstance(result, Result)
        assert (result.call, text_of(result), result.failed) == ("call_w", "rain", False)
        assert text_of(answer) == "It rains in Oslo."
        assert [m["role"] for m in harness.model_request(1)["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("required", "required"),
        ({"type": "function", "function": {"name": "weather"}}, None),
    ],
)
async def test_tool_choice_reaches_the_model(tmp_path: Path, choice: Any, wire: str | None) -> None:
    script = Script(default=Reply(calls=[Call("weather", {"city": "Oslo"})]))
    async with api_harness(tmp_path, script) as harness:
        done = await harness.client().chat.completions.create(
            model="hermes-agent",
            messages=[{"role": "user", "content": "weather?"}],
            tools=[WEATHER],
            tool_choice=choice,
            parallel_tool_calls=False,
        )
        assert done.choices[0].finish_reason == "tool_calls"
        request = harness.model_request(0)
        assert request["tool_choice"] == (wire or choice)
        assert request["parallel_tool_calls"] is False
        assert [tool["function"]["name"] for tool in request["tools"]] == ["weather"]
        response = await harness.client().responses.create(
            model="hermes-agent",
            input="weather?",
            tools=[{"type": "function", "strict": None, **WEATHER["function"]}],  # pyright: ignore[reportArgumentType]
            tool_choice=wire or {"type": "function", "name": "weather"},  # pyright: ignore[reportArgumentType]
        )
        assert response.output[0].type == "function_call"
        assert harness.model_request(1)["tool_choice"] == (wire or choice)
        assert "parallel_tool_calls" not in harness.model_request(1)


async def test_tool_calls_are_streamed(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="Hm.", calls=[Call("weather", {"city": "Oslo"})])])
    async with api_harness(tmp_path, script) as harness:
        stream = await harness.client().chat.completions.create(
            model="hermes-agent",
            messages=[{"role": "user", "content": "weather?"}],
            tools=[WEATHER],
            stream=True,
        )
        chunks = [chunk async for chunk in stream]
        calls = [c.choices[0].delta.tool_calls for c in chunks if c.choices[0].delta.tool_calls]
        assert calls[0] is not None
        assert calls[0][0].index == 0
        assert calls[0][0].function is not None
        assert calls[0][0].function.arguments == '{"city":"Oslo"}'
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        assert chunks[-1].usage is not None


async def test_images_reach_the_model(tmp_path: Path) -> None:
    async with api_harness(tmp_path, Script(default=Reply(text="A picture."))) as harness:
        url = "data:image/png;base64," + base64.b64encode(PNG).decode()
        done = await harness.client().chat.completions.create(
            model="hermes-agent",
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what is it?"},
                        {"type": "image_url", "image_url": {"url": url}},
                    ],
                }
            ],
        )
        assert done.choices[0].message.content == "A picture."
        assert url in harness.model_server.requests[0].body.decode()


async def test_errors_map_to_the_client_errors(tmp_path: Path) -> None:
    rules = [
        Rule(contains="fail", steps=[Reply(fault=Fault("status", named="unauthorized"))]),
    ]
    async with api_harness(tmp_path, Script(rules=rules)) as harness:
        create = harness.client().chat.completions.create
        with pytest.raises(openai.AuthenticationError):
            await harness.client("wrong-key-0123456789").models.list()
        with pytest.raises(openai.BadRequestError):
            await create(model="hermes-agent", messages=[])
        with pytest.raises(openai.InternalServerError) as failed:
            await create(model="hermes-agent", messages=[{"role": "user", "content": "fail"}])
        assert (failed.value.status_code, failed.value.code) == (502, "provider_auth")
        with pytest.raises(openai.InternalServerError, match="key"):
            await create(
                model="hermes-agent", messages=[{"role": "user", "content": "fail"}], stream=True
            )
        assert [model.id async for model in harness.client().models.list()] == ["hermes-agent"]
