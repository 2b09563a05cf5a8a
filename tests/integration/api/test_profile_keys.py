"""A profile with a key of its own: it opens that profile, and no other."""

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

pytestmark = pytest.mark.anyio

OWN = "work-0123456789abcdef"


@asynccontextmanager
async def two_profiles(folder: Path, *keys: str) -> AsyncGenerator[ApiHarness]:
    """`work` and `more` are served beside the default, with these keys of their own."""
    async with api_harness(folder / "home") as one, opened(folder / "work", one, keys[0]) as work:
        one.server.attach("work", work)
        async with opened(folder / "more", one, keys[1]) as more:
            one.server.attach("more", more)
            yield one


@asynccontextmanager
async def opened(folder: Path, one: ApiHarness, key: str) -> AsyncGenerator:
    folder.mkdir()
    (folder / ".env").write_text(f"API_SERVER_KEY={key}\n" if key else "")
    env = api_env(folder, one.mock.url)
    choices = AppOptions(workspace=str(folder), source="gateway")
    async with open_app(resolve_home(env), env, choices) as app:
        yield app


async def models(one: ApiHarness, prefix: str, key: str) -> int:
    return (await one.ask("GET", f"{prefix}/v1/models", key=key)).status


async def test_a_profiles_own_key_opens_it_alone(tmp_path: Path) -> None:
    async with two_profiles(tmp_path, OWN, "") as one:
        assert await models(one, "/p/work", OWN) == 200
        assert await models(one, "/p/more", OWN) == 401
        assert await models(one, "/p/default", OWN) == 401
        assert [await models(one, path, KEY) for path in ("", "/p/work", "/p/more")] == [200] * 3
        body = b'{"messages": [{"role": "user", "content": "hi"}]}'
        # Without a name in the address it is the profile whose key it is.
        assert (await one.ask("POST", "/v1/chat/completions", body, key=OWN)).status == 200
        assert await one.sessions() == []
        work = one.server.desk.apps["work"]
        assert await work.store.archive_for("owner").latest() is not None
        one.server.detach("work")
        assert await models(one, "", OWN) == 401


@pytest.mark.parametrize("how", [["--clone", "first"], ["--clone", "first", "--clone-all"]])
async def test_the_key_of_a_profile_does_not_open_its_clone(tmp_path: Path, how: list[str]) -> None:
    hermes = HermesCli(tmp_path, "http://127.0.0.1:9/v1")
    assert hermes("profile", "create", "first").code == 0
    set_key = hermes("-p", "first", "config", "set", "API_SERVER_KEY", OWN)
    assert set_key.code == 0, set_key
    cloned = hermes("profile", "create", "second", *how)
    assert cloned.code == 0, cloned
    assert "new API_SERVER_KEY" in cloned.out
    fresh = hermes("-p", "second", "config", "get", "API_SERVER_KEY").out.strip()
    assert fresh not in cloned.out
    async with api_harness(tmp_path / "served") as one:
        env = api_env(hermes.home / "profiles" / "second", one.mock.url)
        choices = AppOptions(workspace=str(tmp_path), source="gateway")
        async with open_app(resolve_home(env), env, choices) as app:
            one.server.attach("second", app)
            assert await models(one, "/p/second", OWN) == 401
            assert await models(one, "/p/second", fresh) == 200


@pytest.mark.parametrize("key", ["short", "changeme-changeme-changeme"])
async def test_a_poor_key_opens_nothing(tmp_path: Path, key: str) -> None:
    async with two_profiles(tmp_path, key, "") as one:
        assert await models(one, "/p/work", key) == 401
        assert await models(one, "/p/work", KEY) == 200


async def test_one_key_is_not_for_two(tmp_path: Path) -> None:
    async with two_profiles(tmp_path, OWN, OWN) as one:
        assert await models(one, "/p/work", OWN) == 200
        assert await models(one, "/p/more", OWN) == 401


def a_snapshot() -> bytes:
    """What a gateway says of itself, with a channel for each of two profiles."""
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


async def test_a_profiles_own_key_sees_that_profile_alone(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "profiles"
    async with api_harness(tmp_path / "home", status=a_snapshot) as one:
        folder.mkdir(exist_ok=True)
        async with opened(folder / "work", one, OWN) as work:
            one.server.attach("work", work)
            body = b'{"messages": [{"role": "user", "content": "hi"}]}'
            for _ in range(2):
                await one.ask("POST", "/v1/chat/completions", body, key=OWN)
            await one.ask("POST", "/v1/chat/completions", body)

            own = (await one.ask("GET", "/health/detailed", key=OWN)).json
            assert own["profiles"] == ["work"]
            assert list(own["platforms"]) == ["slack"]
            whole = (await one.ask("GET", "/health/detailed")).json
            assert whole["profiles"] == ["default", "work"]
            assert list(whole["platforms"]) == ["telegram", "work/slack"]

            own_numbers = (await one.ask("GET", "/metrics", key=OWN)).body.decode()
            assert 'hermes_api_turns_total{profile="work",outcome="done"} 2\n' in own_numbers
            assert "default" not in own_numbers
            numbers = (await one.ask("GET", "/metrics")).body.decode()
            assert 'hermes_api_turns_total{profile="default",outcome="done"} 1\n' in numbers
            assert 'hermes_api_turns_total{profile="work",outcome="done"} 2\n' in numbers
            assert 'hermes_api_turns_active{profile="work"} 0\n' in numbers
            part = (await one.ask("GET", "/p/work/metrics")).body.decode()
            assert "default" not in part


TURN = msgspec.json.encode({"stream": True, "messages": [{"role": "user", "content": "hi"}]})


async def test_a_profiles_own_key_has_its_share_of_the_turns(tmp_path: Path) -> None:
    hanging = [Reply(text="never", fault=Fault("hang"))] * 2
    given, limits = api_settings(most=4), ApiLimits(drain=0.05)
    async with (
        api_harness(tmp_path / "home", Script(replies=hanging), given=given, limits=limits) as one,
        opened(tmp_path / "work", one, OWN) as work,
        anyio.create_task_group() as group,
    ):
        one.server.attach("work", work)

        async def ask(key: str) -> ApiResponse:
            return await one.ask("POST", "/v1/chat/completions", TURN, key=key)

        for _ in hanging:
            group.start_soon(ask, OWN)
        with anyio.fail_after(TEST_TIMEOUT):
            await wait_until(lambda: len(one.mock.requests) == len(hanging))
            told = await ask(OWN)
            assert (told.status, told.code) == (429, "rate_limit_exceeded")
            assert told.headers["retry-after"] == "1"
            assert (await ask(KEY)).status == 200
            assert (await one.ask("POST", "/p/work/v1/chat/completions", TURN)).status == 200
        group.cancel_scope.cancel()
    assert one.server.entry.active == 0


async def test_a_profiles_own_key_has_its_share_of_the_connections(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path / "home", limits=ApiLimits(connections=6)) as one,
        opened(tmp_path / "work", one, OWN) as work,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {OWN}"}) as readers,
    ):
        one.server.attach("work", work)
        assert (await one.ask("POST", "/api/sessions", b'{"id": "rd"}', key=OWN)).status == 201
        with anyio.fail_after(TEST_TIMEOUT):
            following = [await readers.get(f"{one.url}/api/sessions/rd/events") for _ in range(4)]
            assert [one.status for one in following] == [200, 200, 200, 429]
            refused = msgspec.json.decode(await following[-1].read())
            assert refused["error"]["code"] == "too_many_requests"
            assert following[-1].headers["Connection"] == "close"
            assert await models(one, "", OWN) == 429
            assert await models(one, "", KEY) == 200
            for follow in following:
                follow.close()
            while await models(one, "", OWN) != 200:
                pass


async def test_what_nobody_serves_makes_no_numbers(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        await one.ask("GET", "/p/nobody/v1/models")
        await one.ask("GET", "/p/nobody/v1/models", key=None)
        numbers = (await one.ask("GET", "/metrics")).body.decode()
        assert "nobody" not in numbers
        assert 'hermes_api_errors_total{profile="",status="404"} 1\n' in numbers


async def test_the_gateway_around_it_is_told_of(tmp_path: Path) -> None:
    async with api_harness(tmp_path / "one", status=a_snapshot) as one:
        told = (await one.ask("GET", "/health/detailed")).json
        assert (told["gateway_state"], told["active_agents"]) == ("degraded", 3)
        assert told["exit_reason"] is None
        checks = told["readiness"]["checks"]
        assert checks.keys() == {
            "state_db", "config", "model", "disk", "gateway", "background_queues",
        }  # fmt: skip
        assert checks["gateway"] == {"status": "failed", "detail": "work/slack: No token."}
        assert checks["background_queues"]["status"] == "ok"
        assert told["status"] == "degraded"
    async with api_harness(tmp_path / "two") as one:
        told = (await one.ask("GET", "/health/detailed")).json
        assert (told["status"], told["gateway_state"], told["platforms"]) == ("ok", "running", {})
