"""What is bound while an API turn runs, and how the server shuts down."""

from collections.abc import Sequence
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.api.context import ApiLimits
from hermes.api.server import ApiServer
from hermes.api.settings import ModelRoute
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.store import Write
from hermes.schema.errors import ConfigError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Message, Text, User
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.session_context import async_delivery_supported, get_session_env
from hermes.session.turn_request import TurnRequest
from hermes.testing.fake_openai.script import Fault, Reply, Script
from hermes.testing.fake_openai.server import serve
from support.api_server import KEY, ApiHarness, api_harness, api_settings
from support.gateway import wait_until

TIMEOUT = 60


def ask(session: Session, *, new: bool = False, followed: bool = False) -> TurnRequest:
    question = User(new_id("msg"), (Text("hi"),))
    return TurnRequest(session=session, message=question, new=new, async_delivery=followed)


class Listener:
    """A reader of events that keeps the end."""

    def __init__(self) -> None:
        self.ended: RunEnded | None = None

    def on_event(self, event: Event) -> None:
        self.ended = event if isinstance(event, RunEnded) else None

    async def flush(self) -> None: ...

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return ()


async def test_async_delivery_is_off_only_for_the_turn(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        seen: list[tuple[bool, str]] = []

        def observe(request: TurnRequest, scope: Scope) -> None:
            seen.append((async_delivery_supported(), get_session_env("HERMES_SESSION_SOURCE")))

        listener = Listener()
        session = Session(
            id="begun-elsewhere", started_at=harness.app.clock.now(), source="telegram"
        )
        with harness.app.runner.observed_by(observe):
            await harness.server.turn_gate.run_turn(harness.app, ask(session, new=True), listener)
        assert listener.ended is not None
        assert listener.ended.outcome is Outcome.DONE
        assert seen == [(False, "api_server")]
        assert async_delivery_supported()
        with harness.app.runner.observed_by(observe):
            followed = ask(session, followed=True)
            await harness.server.turn_gate.run_turn(harness.app, followed, listener)
        assert seen[-1] == (True, "api_server")
        kept = await harness.app.store.archive_for("owner").get(session.id)
        assert kept.source == "telegram"
        assert harness.server.turn_gate.active == 0


async def test_shutdown_waits_for_turns_and_then_ends_them(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="never", fault=Fault("hang"))])
    async with anyio.create_task_group() as group:
        async with api_harness(tmp_path, script, limits=ApiLimits(drain=0.05)) as harness:
            body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}

            async def fail_to_read(harness: ApiHarness) -> None:
                with pytest.raises(aiohttp.ClientError):
                    await harness.chat(body)

            group.start_soon(fail_to_read, harness)
            with anyio.fail_after(TIMEOUT):
                await wait_until(lambda: bool(harness.model_server.requests))
        assert harness.server.metrics.turns[Outcome.CANCELLED] == 1


async def test_client_that_stops_reading_is_disconnected(tmp_path: Path) -> None:
    script = Script(default=Reply(text="word " * 2_000_000, chunk=1_000_000))
    limits = ApiLimits(write_seconds=0.2)
    async with api_harness(tmp_path, script, limits=limits) as harness:
        body = msgspec.json.encode(
            {"stream": True, "messages": [{"role": "user", "content": "go on"}]}
        )
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        stream = await anyio.connect_tcp("127.0.0.1", harness.server.port)
        async with stream:
            await stream.send(head.encode() + body)
            with anyio.fail_after(TIMEOUT):
                await wait_until(lambda: bool(harness.model_server.requests))
                await harness.server.turn_gate.wait_idle()
        assert harness.server.turn_gate.active == 0


async def test_port_in_use_is_reported(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        twin = ApiServer(api_settings(port=harness.server.port), SystemClock())
        with pytest.raises(ConfigError, match="cannot listen"):
            async with twin:
                pass
        with pytest.raises(ValueError, match="already"):
            harness.server.attach("default", harness.app)
        harness.server.detach("default")
        response = await harness.ask("GET", "/v1/models")
        assert (response.status, response.code) == (404, "profile_not_found")


async def test_server_with_a_weak_key_does_not_start() -> None:
    with pytest.raises(ConfigError):
        ApiServer(api_settings(key="short"), SystemClock())


async def test_model_route_with_its_own_base_url(tmp_path: Path) -> None:
    async with serve(Script(api_key="other-key", default=Reply(text="from there"))) as other:
        route = ModelRoute(
            model="m2", provider="custom:api-far", base_url=other.url, api_key="other-key"
        )
        async with api_harness(
            tmp_path, settings=api_settings(model_routes={"far": route})
        ) as harness:
            request_body = {"messages": [{"role": "user", "content": "hi"}], "model": "far"}
            response = await harness.chat(request_body)
            assert response.json["choices"][0]["message"]["content"] == "from there"
            assert harness.model_server.requests == []
            body = {"messages": [{"role": "user", "content": "hi"}]}
            await harness.chat(body, X_Hermes_Session_Id=response.headers["x-hermes-session-id"])
            assert len(other.requests) == 2
