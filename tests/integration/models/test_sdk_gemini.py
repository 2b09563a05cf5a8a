"""Compare the Gemini wire with the official SDK."""

import base64
import json
from typing import Any

import pytest
from google import genai
from google.genai import types

from emulators.fake_provider.gemini import SIGNATURE, GeminiDialect
from emulators.fake_provider.server import serve_provider
from emulators.fake_provider.wire_rig import model_at
from hermes.models.providers import EffortFormat, ModelProfile
from hermes.models.wire.gemini_native import GeminiWire
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall
from hermes.testing.contracts.model import read_stream
from hermes.testing.fake_openai import Call, Reply, Script, TokenCounts
from support.wire_samples import IMAGE_URLS, sample_model, sample_request

pytestmark = [
    # Their client subclasses a class that is not meant for it.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession"),
]

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}


def sdk_client(url: str) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))


def camel(value: Any) -> Any:
    """Google accepts both spellings of names, and its library uses both."""
    match value:
        case dict():
            return {_camel(name): camel(inner) for name, inner in value.items()}
        case list():
            return [camel(inner) for inner in value]
        case _:
            return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


async def test_request_matches_the_sdk():
    profile = ModelProfile(effort=EffortFormat.BUDGET)
    request = sample_request('{"thought_signature":"c2lnLTE="}')
    ours = json.loads(GeminiWire(sample_model(profile)).body(request, IMAGE_URLS))
    photo = types.Part(inline_data=types.Blob(data=base64.b64decode("AAAA"), mime_type="image/png"))
    contents = [
        types.Content(
            role="user",
            parts=[
                types.Part(text="What is this?"),
                photo,
                types.Part(
                    file_data=types.FileData(file_uri=IMAGE_URLS["d2"], mime_type="image/png")
                ),
                types.Part(text="[the image lost.png is no longer stored]"),
                types.Part(text="[attached: a.pdf (application/pdf), not readable by this model]"),
            ],
        ),
        types.Content(
            role="model",
            parts=[
                types.Part(text="Looking."),
                types.Part(
                    function_call=types.FunctionCall(id="call_1", name="look", args={"at": "x"})
                ),
                types.Part(function_call=types.FunctionCall(id="call:2/b", name="look", args={})),
            ],
        ),
        types.Content(
            role="user",
            parts=[
                types.Part(
                    function_response=types.FunctionResponse(
                        id="call_1",
                        name="look",
                        response={"output": "seen:\n[the image shot.png follows below]"},
                    )
                ),
                photo,
                types.Part(
                    function_response=types.FunctionResponse(
                        id="call:2/b", name="look", response={"error": "broken arguments"}
                    )
                ),
                types.Part(text="and now?"),
            ],
        ),
    ]
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        max_output_tokens=20_000,
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=16_384),
        tools=[
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(
                        name="look",
                        description="Look at a place.",
                        parameters_json_schema=SCHEMA,
                    )
                ]
            )
        ],
    )
    async with serve_provider(GeminiDialect(), Script()) as server:
        client = sdk_client(server.url)
        stream = await client.aio.models.generate_content_stream(
            model="m-1", contents=contents, config=config
        )
        async for _ in stream:
            pass
        await client.aio.aclose()
        (request,) = server.requests
    assert request.path == GeminiWire(sample_model()).path(server.url)
    assert camel(json.loads(request.body)) == ours


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
]


def _read(answer: Assistant) -> dict[str, Any]:
    return {
        "text": answer.text,
        "thought": "".join(one.text for one in answer.parts if isinstance(one, Reasoning)),
        "calls": [
            (one.id, one.name, json.loads(bytes(one.args)))
            for one in answer.parts
            if isinstance(one, ToolCall)
        ],
    }


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply.finish_reason)
async def test_answer_matches_the_sdk(reply: Reply):
    script = Script(replies=[reply], default=reply, api_key="k")
    async with serve_provider(GeminiDialect(), script) as server:
        async with model_at(server.url, GeminiWire, key="k") as model:
            ours = (await read_stream(model)).answer
        client = sdk_client(server.url)
        stream = await client.aio.models.generate_content_stream(
            model="mock-model", contents="hello"
        )
        chunks = [chunk async for chunk in stream]
        await client.aio.aclose()
    parts = [
        part
        for chunk in chunks
        for part in (chunk.candidates or [])[0].content.parts or []  # pyright: ignore[reportOptionalMemberAccess]
    ]
    assert _read(ours) == {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thought": "".join(part.text or "" for part in parts if part.thought),
        "calls": [
            (part.function_call.id, part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call
        ],
    }
    usage: Any = chunks[-1].usage_metadata
    assert ours.usage.input == usage.prompt_token_count
    thought = usage.thoughts_token_count or 0
    assert (ours.usage.output, ours.usage.reasoning) == (
        usage.candidates_token_count + thought,
        thought,
    )
    assert (ours.stop is Stop.LENGTH) == (reply.finish == "length")
    if reply.reasoning:
        seals = [one for one in ours.parts if isinstance(one, Reasoning) and one.signature]
        assert [SIGNATURE in (one.signature or "") for one in seals] == [True]
        assert isinstance(ours.parts[ours.parts.index(seals[0]) + 1], ToolCall)
        assert ours.text == Text("On it.").text
