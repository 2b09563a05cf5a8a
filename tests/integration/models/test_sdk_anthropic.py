"""Compare the Anthropic wire with the official SDK: same requests, same answers."""

import json
from typing import Any

import msgspec
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message

from emulators.fake_provider.anthropic import SIGNATURE, AnthropicDialect
from emulators.fake_provider.server import serve_provider
from emulators.fake_provider.wire_rig import model_at
from hermes.models.providers import EffortFormat, ModelProfile
from hermes.models.urls import anthropic_headers
from hermes.models.wire.anthropic_messages import AnthropicWire
from hermes.schema.messages import Assistant, Reasoning, Text, ToolCall
from hermes.testing.contracts.model import REQUEST, read_stream
from hermes.testing.fake_openai import Call, Reply, Script, TokenCounts
from support.wire_samples import IMAGE_URLS, sample_model, sample_request

STORED_SIGNATURE = '{"type":"thinking","signature":"sig-1"}'
MARK: Any = {"type": "ephemeral"}


async def sdk_request(**params: Any) -> dict[str, Any]:
    async with serve_provider(AnthropicDialect(), Script()) as server:
        async with (
            AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as client,
            client.messages.stream(**params) as stream,
        ):
            await stream.get_final_message()
        (request,) = server.requests
    return json.loads(request.body)


async def test_request_matches_the_sdk():
    profile = ModelProfile(effort=EffortFormat.BUDGET)
    ours = json.loads(
        AnthropicWire(sample_model(profile)).body(sample_request(STORED_SIGNATURE), IMAGE_URLS)
    )
    call_2 = ours["messages"][1]["content"][3]["id"]
    assert call_2.startswith("call_")
    picture: Any = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    theirs = await sdk_request(
        model="m-1",
        max_tokens=20480,
        system=[{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        thinking={"type": "enabled", "budget_tokens": 16384},
        tools=[
            {
                "name": "look",
                "description": "Look at a place.",
                "input_schema": {
                    "type": "object",
                    "properties": {"at": {"type": "string"}},
                    "required": ["at"],
                },
            }
        ],
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    picture,
                    {
                        "type": "image",
                        "source": {"type": "url", "url": "https://pictures.example/far.png"},
                    },
                    {"type": "text", "text": "[the image lost.png is no longer stored]"},
                    {
                        "type": "text",
                        "text": "[attached: a.pdf (application/pdf), not readable by this model]",
                        "cache_control": MARK,
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig-1"},
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "x"}},
                    {
                        "type": "tool_use",
                        "id": call_2,
                        "name": "look",
                        "input": {},
                        "cache_control": MARK,
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [{"type": "text", "text": "seen:"}, picture],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": call_2,
                        "content": "broken arguments",
                        "is_error": True,
                    },
                    {"type": "text", "text": "and now?", "cache_control": MARK},
                ],
            },
        ],
    )
    assert ours == theirs


REPLIES = [
    Reply(text="Hello, you. Äöü 日本 😀", chunk=3),
    Reply(
        text="On it.",
        reasoning="let me see",
        calls=[Call("look", '{"at": "x", "n": [1, 2.5, null]}', "toolu_1"), Call("stop", "{}")],
        usage=TokenCounts(120, 30, 100, 12),
        chunk=2,
    ),
    Reply(text="half an ans", finish="length"),
    Reply(text="I will not.", finish="content_filter"),
    Reply(),
]


def matches_sdk(ours: Assistant, theirs: Message) -> bool:
    blocks = [_block(part) for part in ours.parts]
    messages = [block.model_dump(exclude_none=True) for block in theirs.content]
    wanted = [
        {name: block[name] for name in ("type", "text", "thinking", "signature", "name", "input")
         if name in block}
        for block in messages
        if block.get("text") != ""
    ]  # fmt: skip
    assert blocks == wanted
    usage = theirs.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert ours.usage.input == usage.input_tokens + read + written
    assert (ours.usage.output, ours.usage.cache_read) == (usage.output_tokens, read)
    return True


def _block(part: Text | Reasoning | ToolCall) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Reasoning():
            seal = msgspec.json.decode(part.signature or "{}")
            return {"type": "thinking", "thinking": part.text, "signature": seal["signature"]}
        case ToolCall():
            return {"type": "tool_use", "name": part.name, "input": json.loads(bytes(part.args))}


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply.finish_reason)
async def test_answer_matches_the_sdk(reply: Reply):
    async with serve_provider(AnthropicDialect(), Script(replies=[reply, reply])) as server:
        async with model_at(server.url, AnthropicWire, key="k") as model:
            ours = (await read_stream(model)).answer
        async with (
            AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as client,
            client.messages.stream(
                model="mock-model", max_tokens=10, messages=[{"role": "user", "content": "hello"}]
            ) as stream,
        ):
            theirs = await stream.get_final_message()
    assert matches_sdk(ours, theirs)
    assert REQUEST.messages[0].parts[0] == Text("hello")
    if reply.reasoning:
        assert SIGNATURE in (ours.parts[0].signature or "")


async def test_headers_match_the_sdk():
    async with serve_provider(AnthropicDialect(), Script(api_key="k")) as server:
        async with model_at(server.url, AnthropicWire, key="k") as model:
            await read_stream(model)
        async with (
            AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as client,
            client.messages.stream(
                model="mock-model", max_tokens=10, messages=[{"role": "user", "content": "hello"}]
            ) as stream,
        ):
            await stream.get_final_message()
    ours, theirs = server.requests
    assert ours.path == theirs.path.partition("?")[0]
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert ours.headers["x-api-key"] == "k"
    at_home = anthropic_headers("k", "https://api.anthropic.com/v1")
    assert at_home["anthropic-version"] == theirs.headers["anthropic-version"]
