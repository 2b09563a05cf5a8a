"""Keys of `auth.json` in real requests: rotation, and cooldowns that outlive the process."""

import json
import os
from pathlib import Path

import pytest

from emulators.fake_provider.anthropic import AnthropicDialect
from emulators.fake_provider.gemini import GeminiDialect
from emulators.fake_provider.server import serve_provider
from hermes.app.models import ModelSelector
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.models.auth_file import AuthFile, Cooldown, Credential
from hermes.models.settings import CustomProvider, ModelSettings
from hermes.store.blobs import FileBlobs
from hermes.testing.contracts.model import read_stream
from hermes.testing.fake_openai import Fault, Reply, Script
from support.cli_process import TEST_TIMEOUT, CliResult
from support.preloaded_python import run_python


def selector(home: Path, url: str, mode: str) -> ModelSelector:
    custom = CustomProvider(name="mine", base_url=url, api_mode=mode, api_key="k0", model="m")
    settings = ModelSettings(provider="mine", custom_providers=(custom,))
    place = Home(home, home)
    return ModelSelector(place, Env({}), settings, FileBlobs(home / "blobs"), SystemClock())


@pytest.mark.parametrize("named", ["unauthorized", "rate_limited", "out_of_credit"])
async def test_cooldown_outlives_the_process(tmp_path: Path, named: str):
    file = AuthFile(tmp_path / "auth.json")
    for token in ("k1", "k2"):
        file.add("mine", Credential(access_token=token), SystemClock().now())
    bad = Reply(fault=Fault("status", named=named))
    async with serve_provider(AnthropicDialect(), Script(replies=[bad, bad])) as server:
        for _ in range(2):
            cli = selector(tmp_path, server.url, "anthropic_messages")
            received = await read_stream(await cli.find())
            await cli.aclose()
            assert received.answer.text
    used = [one.headers["x-api-key"] for one in server.requests]
    assert used == ["k0", "k1", "k2", "k2"]


async def test_models_are_listed_for_every_api_mode(tmp_path: Path):
    for dialect, mode in (
        (AnthropicDialect(), "anthropic_messages"),
        (GeminiDialect(), "gemini_native"),
    ):
        async with serve_provider(dialect, Script(models=("m-1", "m-2"))) as server:
            custom = CustomProvider(name="mine", base_url=server.url, api_mode=mode, api_key="k")
            settings = ModelSettings(provider="mine", custom_providers=(custom,))
            home = Home(tmp_path, tmp_path)
            cli = ModelSelector(home, Env({}), settings, FileBlobs(tmp_path / "b"), SystemClock())
            model = await cli.find()
            assert model.name == "m-1"
            assert (await read_stream(model)).answer.text
            await cli.aclose()


class AuthCli:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.env = {"PATH": os.environ["PATH"], "HERMES_HOME": str(self.home), "LANG": "C.UTF-8"}

    def __call__(self, *args: str, stdin: str = "", **env: str) -> CliResult:
        done = run_python(
            ["-m", "hermes", "auth", *args],
            env=self.env | env,
            stdin=stdin.encode(),
            timeout=TEST_TIMEOUT,
        )
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def auth(tmp_path: Path) -> AuthCli:
    return AuthCli(tmp_path)


KEY = "sk-ant-api03-abcdefghijklmnop"


def test_keys_are_managed_by_the_auth_command(auth: AuthCli):
    assert auth("list").err.startswith("No keys yet")
    added = auth("add", "claude", stdin=f"{KEY}\n")
    assert (added.code, added.out) == (
        0,
        "Added key-1 (sk-a…mnop) to anthropic, which now has 1 key\n",
    )
    second = auth("add", "anthropic", "sk-ant-second-0123456789", "--label", "spare")
    assert second.code == 0
    table = auth("list", ANTHROPIC_API_KEY="sk-env-0123456789abc").out
    assert KEY not in table
    assert table.splitlines()[1].split() == ["anthropic", "sk-e…9abc", "ANTHROPIC_API_KEY", "ready"]
    assert auth("status").out == (
        "anthropic: uses key-1 sk-a…mnop from auth.json: the first key that is ready "
        "(fill_first) (2 keys)\n"
    )
    assert auth("remove", "anthropic", "spare").out == "Removed spare from anthropic\n"
    (left,) = json.loads(auth("list", "--json").out)
    assert (left["label"], left["key"], left["rests_seconds"]) == ("key-1", "sk-a…mnop", 0)


def test_cooldowns_are_listed_and_reset(auth: AuthCli):
    auth("add", "openai", "sk-first-0123456789")
    auth("add", "openai", "sk-second-0123456789")
    file = AuthFile(auth.home / "auth.json")
    now = SystemClock().now()
    file.add_cooldown(
        "openai", "sk-first-0123456789", Cooldown(now.timestamp() + 3000, "rate_limit"), now
    )
    assert "paused for 50 min (rate limited)" in auth("list").out
    assert "all other keys are on cooldown (2 keys)" in auth("status", "openai").out
    assert auth("reset", "openai").out == "1 key of openai reset\n"
    assert "paused" not in auth("list").out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("add", "antropic", "k"), "Did you mean anthropic?"),
        (("add", "openai", "k\u00e9y"), "another invalid character"),
        (("add", "openai", "--oauth"), "Login is not configured for openai"),
        (("remove", "openai", "1"), "openai has no key '1'"),
        (("add", "openai"), "No key given"),
    ],
)
def test_invalid_commands_are_reported(auth: AuthCli, args: tuple[str, ...], message: str):
    ran = auth(*args)
    assert ran.code == 2
    assert message in ran.err
    assert not (auth.home / "auth.json").exists() or args[0] == "remove"
