"""A profile's own key gives access to that profile only."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.api.context import ApiLimits
from hermes.app.build import AppOptions, open_app
from hermes.config.home import resolve_home
from hermes.testing.fake_openai.script import Fault, Reply, Script
from support.api_server import KEY, ApiHarness, ApiResponse, api_env, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT, HermesCli
from support.gateway import wait_until

OWN = "work-0123456789abcdef"


@asynccontextmanager
async def two_profiles(folder: Path, *keys: str) -> AsyncGenerator[ApiHarness]:
    """Serve `work` and `more` besides the default profile, with these keys."""
    async with (
        api_harness(folder / "home") as harness,
        opened(folder / "work", harness, keys[0]) as work,
    ):
        harness.server.attach("work", work)
        async with opened(folder / "more", harness, keys[1]) as more:
            harness.server.attach("more", more)
            yield harness


@asynccontextmanager
async def opened(folder: Path, harness: ApiHarness, key: str) -> AsyncGenerator:
    folder.mkdir()
    (folder / ".env").write_text(f"API_SERVER_KEY={key}\n" if key else "")
    env = api_env(folder, harness.model_server.url)
    choices = AppOptions(workspace=str(folder), source="gateway")
    async with open_app(resolve_home(env), env, choices) as app:
        yield app


async def models(harness: ApiHarness, prefix: str, key: str) -> int:
    return (await harness.ask("GET", f"{prefix}/v1/models", key=key)).status


async def test_profile_key_gives_access_to_its_profile_only(tmp_path: Path) -> None:
    async with two_profiles(tmp_path, OWN, "") as harness:
        assert await models(harness, "/p/work", OWN) == 200
        assert await models(harness, "/p/more", OWN) == 401
        assert await models(harness, "/p/default", OWN) == 401
        assert [await models(harness, path, KEY) for path in ("", "/p/work", "/p/more")] == [
            200
        ] * 3
        body = b'{"messages": [{"role": "user", "content": "hi"}]}'
        # Without a profile in the path, it is the profile of the key.
        assert (await harness.ask("POST", "/v1/chat/completions", body, key=OWN)).status == 200
        assert await harness.sessions() == []
        work = harness.server.context.apps["work"]
        assert await work.store.archive_for("owner").latest() is not None
        harness.server.detach("work")
        assert await models(harness, "", OWN) == 401


@pytest.mark.parametrize("how", [["--clone", "first"], ["--clone", "first", "--clone-all"]])
async def test_profile_key_does_not_work_for_its_clone(tmp_path: Path, how: list[str]) -> None:
    hermes = HermesCli(tmp_path, "http://127.0.0.1:9/v1")
    assert hermes("profile", "create", "first").code == 0
    set_key = hermes("-p", "first", "config", "set", "API_SERVER_KEY", OWN)
    assert set_key.code == 0, set_key
    cloned = hermes("profile", "create", "second", *how)
    assert cloned.code == 0, cloned
    assert "new API_SERVER_KEY" in cloned.out
    fresh = hermes("-p", "second", "config", "get", "API_SERVER_KEY").out.strip()
    assert fresh not in cloned.out
    async with api_harness(tmp_path / "served") as harness:
        env = api_env(hermes.home / "profiles" / "second", harness.model_server.url)
        choices = AppOptions(workspace=str(tmp_path), source="gateway")
        async with open_app(resolve_home(env), env, choices) as app:
            harness.server.attach("second", app)
            assert await models(harness, "/p/second", OWN) == 401
            assert await models(harness, "/p/second", fresh) == 200


@pytest.mark.parametrize("key", ["short", "changeme-changeme-changeme"])
async def test_weak_profile_key_is_ignored(tmp_path: Path, key: str) -> None:
    async with two_profiles(tmp_path, key, "") as harness:
        assert await models(harness, "/p/work", key) == 401
        assert await models(harness, "/p/work", KEY) == 200


async def test_shared_profile_key_is_ignored(tmp_path: Path) -> None:
    async with two_profiles(tmp_path, OWN, OWN) as harness:
        assert await models(harness, "/p/work", OWN) == 200
        assert await models(harness, "/p/more", OWN) == 401


def gateway_snapshot() -> bytes:
    """Return a gateway status with a channel for each of two profiles."""
    return msgspec.json.encode(
        {
            "gateway_state": "degraded",
            "exit_reason": None,
            "active_agents": 3,
            "platforms": {
                "telegram": {"state": "connected"},
                "work/slack": {"state": "fatal", "error_message": "No token."},
            },
        }
    )


async def test_profile_key_sees_only_its_profile(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "profiles"
    async with api_harness(tmp_path / "home", status=gateway_snapshot) as harness:
        folder.mkdir(exist_ok=True)
        async with opened(folder / "work", harness, OWN) as work:
            harness.server.attach("work", work)
            body = b'{"messages": [{"role": "user", "content": "hi"}]}'
            for _ in range(2):
                await harness.ask("POST", "/v1/chat/completions", body, key=OWN)
            await harness.ask("POST", "/v1/chat/completions", body)

            own = (await harness.ask("GET", "/health/detailed", key=OWN)).json
            assert own["profiles"] == ["work"]
            assert list(own["platforms"]) == ["slack"]
            whole = (await harness.ask("GET", "/health/detailed")).json
            assert whole["profiles"] == ["default", "work"]
            assert list(whole["platforms"]) == ["telegram", "work/slack"]

            own_numbers = (await harness.ask("GET", "/metrics", key=OWN)).body.decode()
            assert 'hermes_api_turns_total{profile="work",outcome="done"} 2\n' in own_numbers
            assert "default" not in own_numbers
            numbers = (await harness.ask("GET", "/metrics")).body.decode()
            assert 'hermes_api_turns_total{profile="default",outcome="done"} 1\n' in numbers
            assert 'hermes_api_turns_total{profile="work",outcome="done"} 2\n' in numbers
            assert 'hermes_api_turns_active{profile="work"} 0\n' in numbers
            part = (await harness.ask("GET", "/p/work/metrics")).body.decode()
            assert "default" not in part


TURN = msgspec.json.encode({"stream": True, "messages": [{"role": "user", "content": "hi"}]})


async def test_profile_key_is_limited_to_its_share_of_turns(tmp_path: Path) -> None:
    hanging = [Reply(text="never", fault=Fault("hang"))] * 2
    settings, limits = api_settings(max_turns=4), ApiLimits(drain=0.05)
    async with (
        api_harness(
            tmp_path / "home", Script(replies=hanging), settings=settings, limits=limits
        ) as harness,
        opened(tmp_path / "work", harness, OWN) as work,
        anyio.create_task_group() as group,
    ):
        harness.server.attach("work", work)

        async def ask(key: str) -> ApiResponse:
            return await harness.ask("POST", "/v1/chat/completions", TURN, key=key)

        for _ in hanging:
            group.start_soon(ask, OWN)
        with anyio.fail_after(TEST_TIMEOUT):
            await wait_until(lambda: len(harness.model_server.requests) == len(hanging))
            response = await ask(OWN)
            assert (response.status, response.code) == (429, "rate_limit_exceeded")
            assert response.headers["retry-after"] == "1"
            assert (await ask(KEY)).status == 200
            assert (await harness.ask("POST", "/p/work/v1/chat/completions", TURN)).status == 200
        group.cancel_scope.cancel()
    assert harness.server.turn_gate.active == 0


async def test_profile_key_is_limited_to_its_share_of_connections(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path / "home", limits=ApiLimits(connections=6)) as harness,
        opened(tmp_path / "work", harness, OWN) as work,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {OWN}"}) as readers,
    ):
        harness.server.attach("work", work)
        assert (await harness.ask("POST", "/api/sessions", b'{"id": "rd"}', key=OWN)).status == 201
        with anyio.fail_after(TEST_TIMEOUT):
            following = [
                await readers.get(f"{harness.url}/api/sessions/rd/events") for _ in range(4)
            ]
            assert [one.status for one in following] == [200, 200, 200, 429]
            refused = msgspec.json.decode(await following[-1].read())
            assert refused["error"]["code"] == "too_many_requests"
            assert following[-1].headers["Connection"] == "close"
            assert await models(harness, "", OWN) == 429
            assert await models(harness, "", KEY) == 200
            for follow in following:
                follow.close()
            while await models(harness, "", OWN) != 200:
                pass


async def test_unknown_profile_creates_no_metrics(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        await harness.ask("GET", "/p/nobody/v1/models")
        await harness.ask("GET", "/p/nobody/v1/models", key=None)
        numbers = (await harness.ask("GET", "/metrics")).body.decode()
        assert "nobody" not in numbers
        assert 'hermes_api_errors_total{profile="",status="404"} 1\n' in numbers


async def test_health_includes_the_gateway_status(tmp_path: Path) -> None:
    async with api_harness(tmp_path / "one", status=gateway_snapshot) as harness:
        response = (await harness.ask("GET", "/health/detailed")).json
        assert (response["gateway_state"], response["active_agents"]) == ("degraded", 3)
        assert response["exit_reason"] is None
        checks = response["readiness"]["checks"]
        assert checks.keys() == {
            "state_db", "config", "model", "disk", "gateway", "background_queues",
        }  # fmt: skip
        assert checks["gateway"] == {"status": "failed", "detail": "work/slack: No token."}
        assert checks["background_queues"]["status"] == "ok"
        assert response["status"] == "degraded"
    async with api_harness(tmp_path / "two") as harness:
        response = (await harness.ask("GET", "/health/detailed")).json
        assert (response["status"], response["gateway_state"], response["platforms"]) == (
            "ok",
            "running",
            {},
        )
