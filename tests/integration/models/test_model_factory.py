"""Models built from settings: keys, fallbacks and discovery over real sockets."""

from pathlib import Path

import msgspec
import pytest

from hermes.kit.clock import SystemClock
from hermes.models.discovery import find_local_servers, list_models
from hermes.models.resilient_model import build_model
from hermes.models.resolver import ResolvedModels, resolve_models, resolve_with_discovery
from hermes.models.settings import CustomProvider, FallbackModel, ModelOverrides, ModelSettings
from hermes.ports.model import ModelRequest
from hermes.schema.errors import (
    ConfigError,
    NotFound,
    NotRunning,
    Overloaded,
    Unauthorized,
    Unreachable,
)
from hermes.schema.events import Notice, StreamReset
from hermes.schema.messages import Media, Text, User
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import StreamRecord, read_stream
from hermes.testing.fake_openai import FakeOpenAiServer, Fault, Reply, Script, serve
from support.cli_process import reserved_port


class NoBlobs:
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise AssertionError("nothing is stored here")

    async def read(self, digest: str) -> bytes:
        raise NotFound(digest)


def settings(*servers: FakeOpenAiServer, **more) -> ModelSettings:
    customs = tuple(
        CustomProvider(name=f"s{n}", base_url=server.url, api_key="k1,k2", model="m")
        for n, server in enumerate(servers)
    )
    spare = tuple(FallbackModel(provider=f"s{n}") for n in range(1, len(servers)))
    return ModelSettings(provider="s0", custom_providers=customs, fallback_providers=spare, **more)


def resolved_for(*servers: FakeOpenAiServer, **more) -> ResolvedModels:
    return resolve_models(settings(*servers, **more), {}.get)


async def ask(resolved: ResolvedModels, clock: FakeClock | None = None) -> StreamRecord:
    model = build_model(resolved, NoBlobs(), clock or FakeClock(auto=True))
    try:
        return await read_stream(model)
    finally:
        await model.aclose()


def failing(name: str, **headers: str) -> Reply:
    return Reply(fault=Fault("status", named=name, headers=headers))


async def test_refused_key_is_replaced_by_the_next():
    async with serve(Script(api_key="k2")) as server:
        record = await ask(resolved_for(server))
    assert record.answer.text == "Hello from the mock model."
    assert (record.answer.model, record.answer.provider) == ("m", "s0")
    assert [one.headers["authorization"] for one in server.requests] == ["Bearer k1", "Bearer k2"]


async def test_broken_stream_is_reset_and_retried():
    cut = Reply(text="Half an answer", fault=Fault("cut", after=1))
    clock = FakeClock(auto=True)
    async with serve(Script(replies=[cut])) as server:
        record = await ask(resolved_for(server), clock)
    assert [type(chunk) for chunk in record.chunks if isinstance(chunk, StreamReset | Notice)] == [
        StreamReset,
        Notice,
    ]
    assert record.text == record.answer.text == "Hello from the mock model."
    assert len(clock.slept) == 1


async def test_fallback_server_takes_over():
    down = Script(default=failing("overloaded"))
    up = Script(default=Reply(text="from the second"))
    async with serve(down) as first, serve(up) as second:
        record = await ask(resolved_for(first, second))
    assert record.answer.text == "from the second"
    assert record.answer.provider == "s1"
    assert (len(first.requests), len(second.requests)) == (3, 1)


async def test_failure_of_all_servers_raises_one_error():
    down = Script(default=failing("unavailable"))
    async with serve(down) as first, serve(down) as second:
        with pytest.raises(Overloaded, match="gave up after 6 attempts with m at s0, m at s1"):
            await ask(resolved_for(first, second))


async def test_retry_after_header_is_honoured():
    clock = FakeClock(auto=True)
    limited = [failing("rate_limited_seconds"), failing("rate_limited_ms"), failing("rate_limited")]
    async with serve(Script(replies=limited)) as server:
        await ask(resolved_for(server, tries=4), clock)
    assert clock.slept[0] == 1.5
    assert len(clock.slept) == 2


async def test_unsupported_api_mode_is_refused_with_a_hint():
    custom = CustomProvider(name="a", base_url="http://127.0.0.1:1/v1", api_mode="x", model="m")
    resolved = resolve_models(ModelSettings(provider="a", custom_providers=(custom,)), {}.get)
    with pytest.raises(ConfigError, match="a's API mode 'x' is not supported") as caught:
        build_model(resolved, NoBlobs(), FakeClock())
    assert "chat_completions" in caught.value.hint


async def test_running_server_is_discovered_and_used():
    async with serve(Script(models=("text-embed", "chatty"))) as server:
        with reserved_port() as port:
            env = {"LM_BASE_URL": server.url, "OLLAMA_HOST": f"127.0.0.1:{port}"}
            found = await find_local_servers(env.get, timeout=60.0)
        mine = [one for one in found if one.base_url == server.url]
        assert [(one.provider, list(one.models)) for one in mine] == [
            ("lmstudio", ["text-embed", "chatty"])
        ]

        async def look():
            return mine

        resolved = await resolve_with_discovery(
            ModelSettings(), {}.get, ModelOverrides(), look, list_models
        )
        record = await ask(resolved)
    assert (record.answer.provider, record.answer.model) == ("lmstudio", "chatty")


async def test_missing_model_name_is_taken_from_the_servers_list():
    async with serve(Script(models=("first", "second"))) as server:
        env = {"LLAMACPP_BASE_URL": server.url}.get

        async def look():
            raise AssertionError("the provider is known")

        wanted = ModelSettings(provider="llamacpp")
        resolved = await resolve_with_discovery(wanted, env, ModelOverrides(), look, list_models)
    assert (resolved.primary.model, resolved.primary.base_url) == ("first", server.url)


async def test_failed_listing_names_the_reason():
    async with serve(Script(api_key="secret")) as server:
        target = msgspec.structs.replace(resolved_for(server).primary, key_env="MOCK_KEY")
        with pytest.raises(Unauthorized, match=r"s0 rejected the key \(401\)") as caught:
            await list_models(target)
        assert "Check MOCK_KEY" in caught.value.hint
        keyless = msgspec.structs.replace(target, keys=())
        with pytest.raises(Unauthorized) as caught:
            await list_models(keyless)
        assert "Set MOCK_KEY" in caught.value.hint
    with pytest.raises(Unreachable, match="cannot connect"):
        await list_models(target)


async def test_stopped_local_server_fails_without_retries(tmp_path: Path) -> None:
    """There are no retries on a port where nothing listens."""
    chunks = []
    with reserved_port() as port:
        settings = ModelSettings(base_url=f"http://127.0.0.1:{port}/v1", default="m")
        model = build_model(
            resolve_models(settings, lambda _: None), FileBlobs(tmp_path), SystemClock()
        )
        with pytest.raises(NotRunning):
            async with model.stream(ModelRequest("", [User("u", (Text("hi"),))])) as stream:
                chunks = [chunk async for chunk in stream]
    assert chunks == []
    await model.aclose()
