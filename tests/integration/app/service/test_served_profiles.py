"""One gateway process with two profiles of two chats each: nothing leaks between them."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest
from openai import AsyncOpenAI

from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.chat_platform.server import PlatformServer, serve_platform
from support.cli_process import (
    TEST_TIMEOUT,
    FakeModelProcess,
    RunningCli,
    fake_model_process,
    reserved_port,
)
from support.preloaded_python import PreloadedPython

SECRETS = {"default": "sk-default-4f1c9d7e2b", "work": "sk-work-77aa12cd90ef"}
ENV_CALL = Call("terminal", {"command": "env | sort > seen-$HERMES_SESSION_PROFILE; env | sort"})


def settings(profile: str, platform: str, more: str) -> str:
    return f"""
model: {{default: mock, provider: openai}}
platforms:
  test:
    enabled: true
    extra:
      url: {platform}
      account: {profile}
      allow_from: [ann, bob]
      allow_admin_from: [ann]
{more}
"""


class ProfilesHarness:
    """The process, its platform, and a model for each profile."""

    def __init__(
        self, root: Path, platform: PlatformServer, models: Mapping[str, FakeModelProcess]
    ) -> None:
        self.home = root / "home"
        self.platform = platform
        self.models = models
        self.env = {"PATH": os.environ["PATH"], "HOME": str(root), "HERMES_HOME": str(self.home)}

    def profile(self, name: str) -> Path:
        return self.home if name == "default" else self.home / "profiles" / name

    def write_settings(self, more: str = "") -> None:
        for name, model in self.models.items():
            folder = self.profile(name)
            folder.mkdir(parents=True, exist_ok=True)
            given = more if name == "default" else ""
            (folder / "config.yaml").write_text(settings(name, self.platform.url, given))
            (folder / ".env").write_text(
                f"OPENAI_API_KEY={SECRETS[name]}\nOPENAI_BASE_URL={model.url}\n"
            )

    @contextmanager
    def gateway(self) -> Iterator[RunningCli]:
        command = ["-m", "support.chat_platform.gateway"]
        with PreloadedPython(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                yield RunningCli(process)
            finally:
                process.kill()

    async def until(self, true: Callable[[], bool]) -> None:
        with anyio.fail_after(TEST_TIMEOUT):
            await self.platform.until(true)

    async def sees(self, profile: str, chat: str, *texts: str) -> None:
        def seen() -> list[str]:
            return [one.text for one in self.platform.platform.posts_in(profile, chat)]

        with anyio.move_on_after(TEST_TIMEOUT):
            await self.platform.until(lambda: seen() == list(texts))
        assert seen() == list(texts)


@asynccontextmanager
async def profiles_harness(root: Path) -> AsyncGenerator[ProfilesHarness]:
    with ExitStack() as stack:
        models: dict[str, FakeModelProcess] = {}
        for name in SECRETS:
            rules = [
                Rule(contains="env", steps=[Reply(calls=[ENV_CALL]), Reply(text=f"{name} looked")]),
                Rule(contains="", steps=[Reply(text=f"this is {name}")]),
            ]
            models[name] = stack.enter_context(fake_model_process(root / name, Script(rules=rules)))
        async with serve_platform() as platform:
            yield ProfilesHarness(root, platform, models)


MANY = "gateway: {multiplex_profiles: true}"


async def test_two_profiles_in_one_process(tmp_path: Path) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(MANY)
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            for profile in SECRETS:
                for chat in ("c1", "c2"):
                    harness.platform.say(profile, chat, "ann", f"hello {profile} {chat}")
            for profile in SECRETS:
                for chat in ("c1", "c2"):
                    await harness.sees(profile, chat, f"this is {profile}")
            for profile in SECRETS:
                harness.platform.say(profile, "c1", "ann", "env")
            for profile in SECRETS:
                await harness.sees(profile, "c1", f"this is {profile}", f"{profile} looked")
            ended = await anyio.to_thread.run_sync(gateway.send_signal, signal.SIGTERM)
        assert (ended.code, ended.err) == (128 + signal.SIGTERM, "")
        _nothing_crossed(harness)


def _nothing_crossed(harness: ProfilesHarness) -> None:
    for profile, other in (("default", "work"), ("work", "default")):
        sent = msgspec.json.encode(harness.models[profile].requests()).decode()
        assert f"hello {profile} c1" in sent
        assert f"hello {other}" not in sent
        folder = harness.home if profile == "default" else harness.home / "profiles" / profile
        seen = (folder / "workspace" / f"seen-{profile}").read_text()
        assert f"HERMES_SESSION_PROFILE={profile}\n" in seen
        space = "main" if profile == "default" else profile
        assert f"HERMES_SESSION_KEY=agent:{space}:test:dm:c1\n" in seen
        for text in (sent, seen):
            assert not any(secret in text for secret in SECRETS.values())
    for name in ("hermes.db", "hermes.db-wal"):
        own = harness.home / name
        if own.exists():
            assert b"hello work" not in own.read_bytes()


async def test_chat_is_routed_to_another_profile(tmp_path: Path) -> None:
    routes = """
gateway:
  multiplex_profiles: true
  profile_routes:
    - {platform: test, chat_id: c2, profile: work}
"""
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(routes)
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            harness.platform.say("default", "c1", "ann", "hello")
            harness.platform.say("default", "c2", "ann", "hello")
            await harness.sees("default", "c1", "this is default")
            await harness.sees("default", "c2", "this is work")
            harness.platform.say("default", "c2", "eve", "let me in")
            harness.platform.say("default", "c2", "ann", "/profile")
            await harness.until(
                lambda: len(harness.platform.platform.posts_in("default", "c2")) == 2
            )
            assert "work" in harness.platform.platform.posts_in("default", "c2")[1].text


async def test_broken_profile_does_not_affect_others(tmp_path: Path) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(MANY)
        (harness.profile("work") / "config.yaml").write_text("platforms: [")
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            harness.platform.say("default", "c1", "ann", "hello")
            await harness.sees("default", "c1", "this is default")
            state = msgspec.json.decode((harness.home / "gateway_state.json").read_bytes())
        assert state["served_profiles"] == ["default"]


async def test_shared_account_is_refused_by_name(tmp_path: Path) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(MANY)
        for profile in SECRETS:
            file = harness.profile(profile) / "config.yaml"
            file.write_text(
                file.read_text().replace("enabled: true", "enabled: true\n    token: t0ken-123")
            )
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            log = (harness.profile("work") / "logs" / "errors.log").read_text()
        assert "The profiles default and work use the same test account." in log


async def test_broken_own_profile_ends_the_process(tmp_path: Path) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(MANY)
        (harness.home / "config.yaml").write_text("platforms: [")
        with harness.gateway() as gateway:
            _, reply = await anyio.to_thread.run_sync(
                gateway.process.communicate, None, TEST_TIMEOUT
            )
        assert gateway.process.returncode == 78
        assert "config.yaml" in reply.decode()


async def test_running_turn_finishes_before_exit(tmp_path: Path) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(MANY)
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            harness.platform.hold("posts")
            harness.platform.say("work", "c1", "bob", "hello")
            await harness.until(lambda: not harness.platform.platform.unacknowledged())
            harness.platform.release("posts")
            await anyio.to_thread.run_sync(gateway.send_signal, signal.SIGTERM)
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")

            def texts() -> set[str]:
                seen = harness.platform.platform.posts_in("work", "c1")
                return {post.text.removeprefix("(recovered) ") for post in seen}

            await harness.until(lambda: texts() == {"this is work"})


async def test_restart_is_refused_while_the_settings_are_wrong(tmp_path: Path) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings()
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            (harness.home / "config.yaml").write_text("agent: [")
            gateway.process.send_signal(signal.SIGUSR1)
            harness.platform.say("default", "c1", "ann", "/restart")

            def refused() -> bool:
                posts = harness.platform.platform.posts_in("default", "c1")
                return any("invalid YAML" in post.text for post in posts)

            await harness.until(refused)
            ended = await anyio.to_thread.run_sync(gateway.send_signal, signal.SIGTERM)
        assert ended.code == 128 + signal.SIGTERM


KEY = "0123456789abcdef0123"


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as one:
        yield one


async def test_api_is_served_alongside_chats(tmp_path: Path, port: int) -> None:
    async with profiles_harness(tmp_path) as harness:
        harness.write_settings(MANY)
        env = {"API_SERVER_ENABLED": "true", "API_SERVER_KEY": KEY, "API_SERVER_PORT": str(port)}
        harness.env |= env
        client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0)
        work = AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/p/work/v1", api_key=KEY, max_retries=0
        )
        with harness.gateway() as gateway:
            await anyio.to_thread.run_sync(gateway.wait_for, "READY=1")
            for endpoint, answer in ((client, "this is default"), (work, "this is work")):
                done = await endpoint.chat.completions.create(
                    model="hermes-agent", messages=[{"role": "user", "content": "hello"}]
                )
                assert done.choices[0].message.content == answer
                await endpoint.close()
            api = f"http://127.0.0.1:{port}"
            state = json.loads((harness.home / "gateway_state.json").read_text())
            assert state["platforms"]["api_server"]["address"] == f"{api}/v1"
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
                async with http.get(f"{api}/health/detailed") as reply:
                    health = await reply.json()
                assert health["gateway_state"] == "running"
                assert health["platforms"]["api_server"]["state"] == "connected"
                assert health["profiles"] == ["default", "work"]
                async with http.get(f"{api}/api/sessions?limit=1") as reply:
                    session = (await reply.json())["data"][0]["id"]
                with anyio.fail_after(TEST_TIMEOUT):
                    follow = await http.get(f"{api}/api/sessions/{session}/events")
                    assert (await follow.content.readline()).startswith(b"id: ")
                    ended = await anyio.to_thread.run_sync(gateway.send_signal, signal.SIGTERM)
                    # A complete response: an aborted one would be an error here.
                    await follow.content.read()
        assert (ended.code, ended.err) == (128 + signal.SIGTERM, "")
        logs = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.log")]
        assert any("the gateway has ended" in log for log in logs)
        assert not any("broke" in log or "Traceback" in log for log in logs)
