"""The gateway under its public names, which lead to our own code."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio.abc import SocketStream

from hermes.compat.gateway_config import Platform
from hermes.compat.gateway_platforms_api_server import APIServerAdapter
from hermes.compat.gateway_platforms_base import BasePlatformAdapter
from hermes.compat.gateway_run import GatewayRunner
from hermes.session.keys import SessionSource
from hermes.session.session_context import (
    async_delivery_supported,
    clear_session_vars,
    get_session_env,
)
from support.remote_gateway import error_response, fake_remote_gateway, full_answer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the home in the environment of this process."""
    for name in ("GATEWAY_PROXY_URL", "GATEWAY_PROXY_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


async def ask(runner: GatewayRunner, **more: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "message": "hi",
        "context_prompt": "Be kind.",
        "history": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "source": SessionSource(platform=Platform("matrix"), chat_id="!r:s"),
        "session_id": "sess-1",
    }
    return await runner._run_agent(**request | more)


async def test_proxy_url_is_read_from_the_home(home: Path, monkeypatch: Any) -> None:
    runner = GatewayRunner()
    assert runner._get_proxy_url() is None
    (home / "config.yaml").write_text("gateway:\n  proxy_url: http://there:1/\n")
    assert runner._get_proxy_url() == "http://there:1"
    (home / ".env").write_text("GATEWAY_PROXY_URL=http://dotenv:2\n")
    assert runner._get_proxy_url() == "http://dotenv:2"


async def test_turn_runs_on_the_remote_gateway(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_remote_gateway(full_answer("Hello ", "there")) as remote:
        monkeypatch.setenv("GATEWAY_PROXY_URL", remote.url + "/v1/")
        monkeypatch.setenv("GATEWAY_PROXY_KEY", "key-0123456789abc")
        result = await ask(GatewayRunner())
    assert result == {
        "final_response": "Hello there",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello there"},
        ],
        "api_calls": 1,
        "tools": [],
        "history_offset": 2,
        "session_id": "sess-1",
    }
    (request,) = remote.asked
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer key-0123456789abc"
    assert [one["content"] for one in request.body["messages"]] == ["Be kind.", "a", "b", "hi"]


async def test_remote_error_is_the_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_remote_gateway(error_response(503, b"busy")) as remote:
        monkeypatch.setenv("GATEWAY_PROXY_URL", remote.url)
        result = await ask(GatewayRunner())
    assert result["final_response"].startswith("⚠️ Proxy error (503): busy.")
    assert result["api_calls"] == 0


async def test_only_the_newest_run_returns_an_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = GatewayRunner()
    runner._session_run_generation["key"] = 1

    async def overtaken(stream: SocketStream) -> None:
        runner._session_run_generation["key"] = 2
        await stream.send(full_answer("stale"))

    async with fake_remote_gateway(overtaken, full_answer("fresh")) as remote:
        monkeypatch.setenv("GATEWAY_PROXY_URL", remote.url)
        late = await ask(runner, session_key="key", run_generation=1)
        newest = await ask(runner, session_key="key", run_generation=2)
    assert (late["final_response"], late["messages"], late["api_calls"]) == ("", [], 0)
    assert newest["final_response"] == "fresh"


def test_api_request_has_no_async_delivery() -> None:
    assert BasePlatformAdapter.supports_async_delivery
    assert not APIServerAdapter.supports_async_delivery
    tokens = APIServerAdapter._bind_api_server_session(chat_id="c", session_key="k")
    try:
        assert not async_delivery_supported()
        assert get_session_env("HERMES_SESSION_PLATFORM") == "api_server"
        assert get_session_env("HERMES_SESSION_KEY") == "k"
    finally:
        clear_session_vars(tokens)
    assert async_delivery_supported()


@pytest.mark.slow
def test_public_names_are_our_modules() -> None:
    code = (
        "import hermes.compat; hermes.compat.install()\n"
        "import gateway.run, gateway.platforms.api_server, hermes.compat.gateway_run as ours\n"
        "assert gateway.run is ours\n"
        "from gateway.config import StreamingConfig; StreamingConfig()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
