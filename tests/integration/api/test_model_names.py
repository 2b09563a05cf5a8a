"""Any model name is served, the answer says by what, and `strict_models` rejects unknown names."""

from pathlib import Path
from typing import Any

import msgspec

from hermes.api.settings import ModelRoute
from hermes.testing.fake_openai import Reply, Script
from support.api_runs import read_events
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings

SCRIPT = Script(default=Reply("Hello."))
UNKNOWN = ("mock-model", "openai/mock-model", "gpt-4o", "hermes-agent:latest")
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/runs": {"input": "hi"},
    "/api/sessions": {},
}


async def post(harness: ApiHarness, path: str, **more: object) -> ApiResponse:
    return await harness.ask("POST", path, msgspec.json.encode(BODIES.get(path, {}) | more))


async def test_unknown_name_is_served_by_the_agent(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for name in UNKNOWN:
            chat = await post(harness, "/v1/chat/completions", model=name)
            assert (chat.status, chat.json["model"]) == (200, "hermes-agent"), chat.body
            assert (chat.json["hermes"]["model"], chat.json["hermes"]["provider"]) == (
                "mock-model",
                "openai",
            )
            assert chat.headers["x-hermes-model"] == "openai/mock-model"
            made = await post(harness, "/v1/responses", model=name)
            assert (made.json["model"], made.json["hermes"]["model"]) == (
                "hermes-agent",
                "mock-model",
            )
            assert made.headers["x-hermes-model"] == "openai/mock-model"
            assert (await post(harness, "/api/sessions", model=name)).status == 201
        assert {sent.json["model"] for sent in harness.model_server.requests} == {"mock-model"}


async def test_stream_and_run_name_the_model_that_served_them(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        body = {**BODIES["/v1/chat/completions"], "model": "gpt-4o", "stream": True}
        lines = (await harness.chat(body)).body.decode().splitlines()
        last = msgspec.json.decode(lines[-4].removeprefix("data: "), type=dict[str, Any])
        assert (last["model"], last["hermes"]["model"]) == ("hermes-agent", "mock-model")
        run = (await post(harness, "/v1/runs", model="gpt-4o", reasoning_effort="low")).json
        assert run["ignored"] == ["reasoning_effort"]
        ended = (await read_events(harness, run["run_id"]))[-1]
        state = (await harness.ask("GET", f"/v1/runs/{run['run_id']}")).json
        for message in (ended.data, state):
            assert message["served_by"] == {"model": "mock-model", "provider": "openai"}


async def test_model_of_a_provider_is_used(tmp_path: Path) -> None:
    routes = {"fast": ModelRoute(model="quick-model", provider="openai")}
    async with api_harness(tmp_path, SCRIPT, settings=api_settings(model_routes=routes)) as harness:
        session = (await post(harness, "/api/sessions")).session["id"]
        chat = f"/api/sessions/{session}/chat"
        for path in ("/v1/chat/completions", "/v1/responses", chat):
            more = {"model": "other-model", "provider": "openai"}
            response = await post(harness, path, message="hi", **more)
            assert response.status == 200, response.body
            assert harness.model_request(-1)["model"] == "other-model"
            refused = await post(harness, path, message="hi", model="m", provider="nobody")
            assert (refused.status, refused.code) == (400, "provider_not_available")
            refused = await post(harness, path, message="hi", model="fast", provider="anthropic")
            assert (refused.status, refused.code) == (400, "provider_conflict")
        run = (await post(harness, "/v1/runs", model="other-model", provider="openai")).json
        await read_events(harness, run["run_id"])
        assert harness.model_request(-1)["model"] == "other-model"
        # Options of another service under the same name are ignored.
        body = {"provider": {"order": ["x"]}, "model": "gpt-4o"}
        assert (await post(harness, "/v1/chat/completions", **body)).status == 200
        # A session keeps its model.
        assert (await post(harness, chat, message="hi")).json["model"] == "other-model"


async def test_strict_models_reject_unknown_names(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT, settings=api_settings(strict_models=True)) as harness:
        for path in BODIES:
            for more in ({"model": "gpt-4o"}, {"model": "gpt-4o", "provider": "openai"}):
                response = await post(harness, path, **more)
                assert (response.status, response.code) == (404, "model_not_found"), path
                assert response.json["error"]["param"] == "model"
        assert (await harness.ask("GET", "/v1/models/gpt-4o")).status == 404
        assert await harness.sessions() == []
        for name in ("hermes-agent", "default", None):
            assert (await post(harness, "/v1/chat/completions", model=name)).status == 200
