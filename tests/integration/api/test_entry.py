"""The one way in: what is bound while a turn of the API runs, and how the server ends."""

from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.api.context import ApiLimits
from hermes.api.server import ApiServer
from hermes.api.settings import ModelRoute
from hermes.api.turn_gate import ApiTurnRequest
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.schema.errors import ConfigError
from hermes.schema.events import Event, Outcome, RunStarted
from hermes.schema.messages import Text, User
from hermes.schema.sessions import Session
from hermes.session.session_context import async_delivery_supported, get_session_env
from hermes.testing.fake_openai.script import Fault, Reply, Script
from hermes.testing.fake_openai.server import serve
from support.api_server import KEY, ApiHarness, api_harness, api_settings
from support.gateway import wait_until

pytestmark = pytest.mark.anyio

PATIENCE = 60


def ask(session: Session, *, new: bool = False, followed: bool = False) -> ApiTurnRequest:
    asked = User(new_id("msg"), (Text("hi"),))
    return ApiTurnRequest(session=session, asked=asked, new=new, followed=followed)


async def test_nothing_is_delivered_later_and_only_for_this_turn(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        seen: list[tuple[bool, str]] = []

        async def listen(event: Event) -> None:
            if isinstance(event, RunStarted):
                seen.append((async_delivery_supported(), get_session_env("HERMES_SESSION_SOURCE")))

        session = Session(id="begun-elsewhere", started_at=one.app.clock.now(), source="telegram")
        outcome = await one.server.entry.enter(one.app, ask(session, new=True), listen)
        assert outcome is Outcome.DONE
        assert seen == [(False, "api_server")]
        assert async_delivery_supported()
        await one.server.entry.enter(one.app, ask(session, followed=True), listen)
        assert seen[-1] == (True, "api_server")
        kept = await one.app.store.archive_for("owner").get(session.id)
        assert kept.source == "telegram"
        assert one.server.entry.active == 0


async def test_the_end_waits_for_turns_and_then_ends_them(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="never", fault=Fault("hang"))])
    async with anyio.create_task_group() as group:
        async with api_harness(tmp_path, script, limits=ApiLimits(drain=0.05)) as one:
            asked = {"messages": [{"role": "user", "content": "hi"}], "stream": True}

            async def hear_no_end(one: ApiHarness) -> None:
                with pytest.raises(aiohttp.ClientError):
                    await one.chat(asked)

            group.start_soon(hear_no_end, one)
            with anyio.fail_after(PATIENCE):
                await wait_until(lambda: bool(one.mock.requests))
        assert one.server.tally.turns[Outcome.CANCELLED] == 1


async def test_who_stops_reading_is_let_go(tmp_path: Path) -> None:
    script = Script(default=Reply(text="word " * 2_000_000, chunk=1_000_000))
    limits = ApiLimits(write_seconds=0.2)
    async with api_harness(tmp_path, script, limits=limits) as one:
        body = msgspec.json.encode(
            {"stream": True, "messages": [{"role": "user", "content": "go on"}]}
        )
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
        async with stream:
            await stream.send(head.encode() + body)
            with anyio.fail_after(PATIENCE):
                await wait_until(lambda: bool(one.mock.requests))
                await one.server.entry.idle()
        assert one.server.entry.active == 0


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        twin = ApiServer(api_settings(port=one.server.port), SystemClock())
        with pytest.raises(ConfigError, match="cannot listen"):
            async with twin:
                pass
        with pytest.raises(ValueError, match="already"):
            one.server.attach("default", one.app)
        one.server.detach("default")
        told = await one.ask("GET", "/v1/models")
        assert (told.status, told.code) == (404, "profile_not_found")


async def test_a_server_without_a_good_key_does_not_open() -> None:
    with pytest.raises(ConfigError):
        ApiServer(api_settings(key="short"), SystemClock())


async def test_a_route_may_have_an_address_of_its_own(tmp_path: Path) -> None:
    async with serve(Script(api_key="other-key", default=Reply(text="from there"))) as other:
        route = ModelRoute(
            model="m2", provider="custom:api-far", base_url=other.url, api_key="other-key"
        )
        async with api_harness(tmp_path, given=api_settings(model_routes={"far": route})) as one:
            asked = {"messages": [{"role": "user", "content": "hi"}], "model": "far"}
            told = await one.chat(asked)
            assert told.json["choices"][0]["message"]["content"] == "from there"
            assert one.mock.requests == []
            body = {"messages": [{"role": "user", "content": "hi"}]}
            await one.chat(body, X_Hermes_Session_Id=told.headers["x-hermes-session-id"])
            assert len(other.requests) == 2
