"""Compare the Responses wire with the official SDK."""

import json
from typing import Any

import pytest
from openai import AsyncOpenAI

from emulators.fake_provider.openai import ENCRYPTED, ResponsesDialect
from emulators.fake_provider.server import serve_provider
from emulators.fake_provider.wire_rig import model_at
from hermes.models.providers import EffortFormat, ModelProfile
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall
from hermes.testing.contracts.model import read_stream
from hermes.testing.fake_openai import Call, Reply, Script, TokenCounts
from support.wire_samples import IMAGE_URLS, sample_model, sample_request

SIGNATURE = (
    '{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],'
    '"encrypted_content":"gAAAA"}'
)


async def test_request_matches_the_sdk():
    profile = ModelProfile(effort=EffortFormat.OBJECT)
    ours = json.loads(
        ResponsesWire(sample_model(profile)).body(sample_request(SIGNATURE), IMAGE_URLS)
    )
    call_2 = ours["input"][4]["call_id"]
    params: dict[str, Any] = {
        "model": "m-1",
        "store": False,
        "instructions": "Be brief.",
        "prompt_cache_key": "u1",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "max_output_tokens": 20_000,
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Look at a place.",
                "parameters": {
                    "type": "object",
                    "properties": {"at": {"type": "string"}},
                    "required": ["at"],
                },
                "strict": False,
            }
        ],
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": IMAGE_URLS["d1"], "detail": "auto"},
                    {"type": "input_image", "image_url": IMAGE_URLS["d2"], "detail": "auto"},
                    {"type": "input_text", "text": "[the image lost.png is no longer stored]"},
                    {
                        "type": "input_text",
                        "text": "[attached: a.pdf (application/pdf), not readable by this model]",
                    },
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "encrypted_content": "gAAAA",
            },
            {"role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "look",
                "arguments": '{"at":  "x"}',
            },
            {"type": "function_call", "call_id": call_2, "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    {"type": "input_text", "text": "seen:"},
                    {"type": "input_image", "image_url": IMAGE_URLS["d1"], "detail": "auto"},
                ],
            },
            {"type": "function_call_output", "call_id": call_2, "output": "broken arguments"},
            {"role": "user", "content": "and now?"},
        ],
    }
    async with serve_provider(ResponsesDialect(), Script()) as server:
        async with (
            AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
            client.responses.stream(**params) as stream,
        ):
            await stream.get_final_response()
        (request,) = server.requests
    assert request.path == "/responses"
    assert json.loads(request.body) == ours


REPLIES = [
    Reply(text="Hello, you. Äöü 日本 😀", chunk=3),
    Reply(
        text="On it.",
        reasoning="let me see",
        calls=[Call("look", '{"at": "x"}', "call_a"), Call("stop", "{}", "call_b")],
        usage=TokenCounts(120, 30, 100, 12),
        chunk=2,
    ),
    Reply(text="half an ans", finish="length"),
    Reply(),
]


def _items(answer: Assistant) -> list[tuple[str, ...]]:
    items: list[tuple[str, ...]] = []
    for part in answer.parts:
        match part:
            case Text():
                items.append(("message", part.text))
            case Reasoning():
                items.append(("reasoning", part.text, json.loads(part.signature or "{}")["id"]))
            case ToolCall():
                items.append(("function_call", part.id, part.name, bytes(part.args).decode()))
    return items


def _sdk_item(item: Any) -> tuple[str, ...]:
    match item.type:
        case "message":
            return ("message", "".join(part.text for part in item.content))
        case "reasoning":
            return ("reasoning", "".join(part.text for part in item.summary), item.id)
        case _:
            return ("function_call", item.call_id, item.name, item.arguments)


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply.finish_reason)
async def test_answer_matches_the_sdk(reply: Reply):
    script = Script(replies=[reply], default=reply, api_key="k")
    async with serve_provider(ResponsesDialect(), script) as server:
        async with model_at(server.url, ResponsesWire, key="k") as model:
            ours = (await read_stream(model)).answer
        async with AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            events = await client.responses.create(model="mock-model", input="hello", stream=True)
            last = [event async for event in events][-1]
    theirs: Any = last.response  # pyright: ignore[reportAttributeAccessIssue]
    items = [tuple(str(one) for one in _sdk_item(item)) for item in theirs.output]
    ours_items = _items(ours)
    assert [one[:1] for one in ours_items] == [one[:1] for one in items]
    assert [one[1:2] for one in ours_items] == [one[1:2] for one in items]
    assert ours.usage.input == theirs.usage.input_tokens
    assert ours.usage.output == theirs.usage.output_tokens
    assert ours.usage.cache_read == theirs.usage.input_tokens_details.cached_tokens
    assert ours.usage.reasoning == theirs.usage.output_tokens_details.reasoning_tokens
    assert (ours.stop is Stop.LENGTH) == (theirs.status == "incomplete")
    if reply.reasoning:
        assert ENCRYPTED in (ours.parts[0].signature or "")
