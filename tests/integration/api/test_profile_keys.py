"""A profile with a key of its own: it opens that profile, and no other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from api_house import KEY, House, env_of, house
from hermes.app.build import Choices, open_app
from hermes.config.home import resolve_home

pytestmark = pytest.mark.anyio

OWN = "work-0123456789abcdef"


@asynccontextmanager
async def two_profiles(folder: Path, *keys: str) -> AsyncGenerator[House]:
    """`work` and `more` are served beside the default, with these keys of their own."""
    async with house(folder / "home") as one, opened(folder / "work", one, keys[0]) as work:
        one.server.attach("work", work)
        async with opened(folder / "more", one, keys[1]) as more:
            one.server.attach("more", more)
            yield one


@asynccontextmanager
async def opened(folder: Path, one: House, key: str) -> AsyncGenerator:
    folder.mkdir()
    (folder / ".env").write_text(f"API_SERVER_KEY={key}\n" if key else "")
    env = env_of(folder, one.mock.url)
    choices = Choices(workspace=str(folder), source="gateway")
    async with open_app(resolve_home(env), env, choices) as app:
        yield app


async def models(one: House, prefix: str, key: str) -> int:
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
        assert await work.store.seen_by("owner").latest() is not None
        one.server.detach("work")
        assert await models(one, "", OWN) == 401


@pytest.mark.parametrize("key", ["short", "changeme-changeme-changeme"])
async def test_a_poor_key_opens_nothing(tmp_path: Path, key: str) -> None:
    async with two_profiles(tmp_path, key, "") as one:
        assert await models(one, "/p/work", key) == 401
        assert await models(one, "/p/work", KEY) == 200


async def test_one_key_is_not_for_two(tmp_path: Path) -> None:
    async with two_profiles(tmp_path, OWN, OWN) as one:
        assert await models(one, "/p/work", OWN) == 200
        assert await models(one, "/p/more", OWN) == 401
