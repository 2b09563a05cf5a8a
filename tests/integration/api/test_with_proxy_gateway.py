"""API requests are answered here even if another gateway runs the chat turns."""

from pathlib import Path

import aiohttp
import anyio

from hermes.api.server import ApiServer
from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.api_server import KEY, ApiHarness, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT

UNREACHABLE = "http://127.0.0.1:9"
WEATHER = '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}'


async def ended(harness: ApiHarness, run: str) -> str:
    """Return the last event of a run."""
    response = await harness.ask("GET", f"/v1/runs/{run}/events")
    return response.body.decode().rpartition("data: ")[2]


async def test_runs_and_callback_sessions_are_answered_locally(tmp_path: Path) -> None:
    """They can get later messages like a chat, but they are not chats."""
    (tmp_path / "config.yaml").write_text(f"gateway: {{proxy_url: '{UNREACHABLE}'}}\n")
    script = Script(
        rules=[Rule("weather", [Reply(calls=[Call("weather", {})])])], default=Reply("From here.")
    )
    settings = api_settings(callback_allow_private=True)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script, settings=settings) as harness:
            run = (await harness.ask("POST", "/v1/runs", b'{"input": "hi"}')).json["run_id"]
            assert '"output":"From here."' in await ended(harness, run)
            called = (
                f'{{"id": "s", "callback_url": "{UNREACHABLE}/", "callback_secret": "{"s" * 32}"}}'
            )
            assert (await harness.ask("POST", "/api/sessions", called.encode())).status == 201
            body = (
                f'{{"messages": [{{"role": "user", "content": "weather"}}], "tools": [{WEATHER}]}}'
            )
            response = await harness.ask(
                "POST", "/v1/chat/completions", body.encode(), X_Hermes_Session_Id="s"
            )
            assert response.json["choices"][0]["finish_reason"] == "tool_calls"
            aside = b'{"messages": [{"role": "user", "content": "A title."}]}'
            response = await harness.ask("POST", "/v1/chat/completions", aside, X_Hermes_Task="1")
            assert "x-hermes-session-id" not in response.headers
            assert len(harness.model_server.requests) == 3


async def test_gateway_without_a_model_is_healthy(tmp_path: Path) -> None:
    env = Env(
        {"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "GATEWAY_PROXY_URL": UNREACHABLE}
    )
    choices = AppOptions(workspace=str(tmp_path), source="gateway")
    with anyio.fail_after(TEST_TIMEOUT):
        async with open_app(resolve_home(env), env, choices) as app:
            server = ApiServer(api_settings(), SystemClock())
            server.attach("default", app)
            async with server, aiohttp.ClientSession() as http:
                url = f"http://127.0.0.1:{server.port}/health/detailed"
                headers = {"Authorization": f"Bearer {KEY}"}
                async with http.get(url, headers=headers) as response:
                    reply = await response.json()
    assert reply["readiness"]["checks"]["model"]["status"] == "ok"
    assert "another gateway" in reply["readiness"]["checks"]["model"]["detail"]
