"""Where another gateway runs the turns of chats, programs are still answered here."""

from pathlib import Path

import aiohttp
import anyio
import pytest

from hermes.api.server import ApiServer
from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.api_server import KEY, ApiHarness, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT

pytestmark = pytest.mark.anyio

NOBODY = "http://127.0.0.1:9"
WEATHER = '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}'


async def ended(one: ApiHarness, run: str) -> str:
    """The last event of a run."""
    told = await one.ask("GET", f"/v1/runs/{run}/events")
    return told.body.decode().rpartition("data: ")[2]


async def test_runs_and_sessions_with_a_callback_stay_here(tmp_path: Path) -> None:
    """Something can be brought to them later, as to a chat; that makes no chat of them."""
    (tmp_path / "config.yaml").write_text(f"gateway: {{proxy_url: '{NOBODY}'}}\n")
    script = Script(
        rules=[Rule("weather", [Reply(calls=[Call("weather", {})])])], default=Reply("From here.")
    )
    given = api_settings(callback_allow_private=True)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script, given=given) as one:
            run = (await one.ask("POST", "/v1/runs", b'{"input": "hi"}')).json["run_id"]
            assert '"output":"From here."' in await ended(one, run)
            called = f'{{"id": "s", "callback_url": "{NOBODY}/", "callback_secret": "{"s" * 32}"}}'
            assert (await one.ask("POST", "/api/sessions", called.encode())).status == 201
            body = (
                f'{{"messages": [{{"role": "user", "content": "weather"}}], "tools": [{WEATHER}]}}'
            )
            told = await one.ask(
                "POST", "/v1/chat/completions", body.encode(), X_Hermes_Session_Id="s"
            )
            assert told.json["choices"][0]["finish_reason"] == "tool_calls"
            aside = b'{"messages": [{"role": "user", "content": "A title."}]}'
            told = await one.ask("POST", "/v1/chat/completions", aside, X_Hermes_Task="1")
            assert "x-hermes-session-id" not in told.headers
            assert len(one.mock.requests) == 3


async def test_a_gateway_without_a_model_of_its_own_is_well(tmp_path: Path) -> None:
    env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "GATEWAY_PROXY_URL": NOBODY})
    choices = AppOptions(workspace=str(tmp_path), source="gateway")
    with anyio.fail_after(TEST_TIMEOUT):
        async with open_app(resolve_home(env), env, choices) as app:
            server = ApiServer(api_settings(), SystemClock())
            server.attach("default", app)
            async with server, aiohttp.ClientSession() as http:
                url = f"http://127.0.0.1:{server.port}/health/detailed"
                headers = {"Authorization": f"Bearer {KEY}"}
                async with http.get(url, headers=headers) as response:
                    told = await response.json()
    assert told["readiness"]["checks"]["model"]["status"] == "ok"
    assert "another gateway" in told["readiness"]["checks"]["model"]["detail"]
