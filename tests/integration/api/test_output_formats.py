"""JSON answers: the requested format reaches the model, or is rejected."""

from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from hermes.api.settings import ModelRoute
from hermes.testing.fake_openai import Reply, Script
from support.api_server import api_harness, api_settings

SCRIPT = Script(default=Reply('{"city": "Oslo"}'))
MESSAGES = [{"role": "user", "content": "where"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class City(BaseModel):
    city: str


async def test_official_client_parses_structured_output(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client()
        done = await client.chat.completions.parse(
            model="hermes-agent",
            messages=[{"role": "user", "content": "where"}],
            response_format=City,
        )
        assert done.choices[0].message.parsed == City(city="Oslo")
        request = harness.model_request(0)["response_format"]
        assert (request["type"], request["json_schema"]["name"]) == ("json_schema", "City")
        assert request["json_schema"]["strict"] is True
        assert request["json_schema"]["schema"]["required"] == ["city"]
        parsed = await client.responses.parse(model="hermes-agent", input="where", text_format=City)
        assert parsed.output_parsed == City(city="Oslo")
        assert harness.model_request(1)["response_format"] == request
        assert parsed.text is not None
        assert parsed.text.format is not None
        assert parsed.text.format.type == "json_schema"


async def test_json_object_and_text_formats(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for arguments, sent in (
            ({"type": "json_object"}, {"type": "json_object"}),
            ({"type": "text"}, None),
            (None, None),
        ):
            response = await harness.chat({"messages": MESSAGES, "response_format": arguments})
            assert response.status == 200
            assert harness.model_request(-1).get("response_format") == sent


@pytest.mark.parametrize(
    "value",
    [{}, {"type": "yaml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}, 7],
)
async def test_invalid_format_is_rejected(tmp_path: Path, value: object) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat({"messages": MESSAGES, "response_format": value})
        assert (response.status, response.code) == (400, "invalid_request")
        body = msgspec.json.encode({"input": "x", "text": {"format": value}})
        if value != {}:
            assert (await harness.ask("POST", "/v1/responses", body)).status == 400
        assert await harness.sessions() == []


async def test_model_without_json_support_is_not_called(tmp_path: Path) -> None:
    route = ModelRoute(model="claude-sonnet-4-5", provider="anthropic")
    settings = api_settings(model_routes={"other": route})
    (tmp_path / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-none-0123456789\n")
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    async with api_harness(tmp_path, SCRIPT, settings=settings) as harness:
        response = await harness.chat(
            {"model": "other", "messages": MESSAGES, "response_format": form}
        )
        assert (response.status, response.code) == (400, "unsupported_response_format")
        flat = {"type": "json_schema", "name": "city", "schema": SCHEMA}
        body = {"model": "other", "input": "where", "text": {"format": flat}}
        response = await harness.ask("POST", "/v1/responses", msgspec.json.encode(body))
        assert (response.status, response.code) == (400, "unsupported_response_format")
        assert await harness.sessions() == []
