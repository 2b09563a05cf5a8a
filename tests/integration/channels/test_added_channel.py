"""A platform is added with a folder and one line of the catalog, and serves two accounts."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec

import hermes.channels
from support.chat_platform.server import PlatformServer, serve_platform
from support.cli_process import TEST_TIMEOUT, RunningCli

MANIFEST = '''
"""The manifest of a platform that exists only in this test."""

from msgspec import Struct

from hermes.ports.channel import ChannelCapabilities, ChannelManifest, Markup


class PigeonOptions(Struct, frozen=True, kw_only=True):
    url: str = ""


MANIFEST = ChannelManifest(
    name="pigeon",
    label="Pigeon post",
    factory="hermes.channels.pigeon.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=200, markup=Markup.TELEGRAM, edit=True, typing=True, reactions=True, groups=True
    ),
    enabled_by=("PIGEON_TOKEN",),
    options=PigeonOptions,
    variables={"url": "PIGEON_URL"},
)
'''
DRIVER = '''
"""The driver of a platform that exists only in this test."""

from contextlib import asynccontextmanager

from hermes.channels.pigeon import MANIFEST, PigeonOptions
from hermes.ports.channel_options import read_options
from support.chat_platform.channel import open_platform_channel


@asynccontextmanager
async def open_channel(deps):
    settings = deps.settings
    options = read_options(
        PigeonOptions, MANIFEST.name, settings.extra, deps.env, MANIFEST.variables
    )
    account = settings.token or deps.env["PIGEON_TOKEN"]
    opened = open_platform_channel(options.url, account, deps.clock, deps.name, deps.blobs)
    async with opened as channel:
        channel.caps = MANIFEST.caps
        yield channel
'''
START = '''
"""Run the gateway with the catalog of this folder."""

import importlib.util
import os
import sys
from pathlib import Path

import hermes

here = Path(__file__).parent / "channels"
places = [str(here), str(Path(hermes.__file__).parent / "channels")]
spec = importlib.util.spec_from_file_location(
    "hermes.channels", here / "__init__.py", submodule_search_locations=places
)
module = importlib.util.module_from_spec(spec)
sys.modules["hermes.channels"] = hermes.channels = module
spec.loader.exec_module(module)

from hermes.app.service.lifecycle import RunOptions
from hermes.app.service.main import run_gateway
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home

env = Env(process_env())
sys.exit(run_gateway(resolve_home(env), env, RunOptions(ready_fd=os.dup(1))))
'''
CATALOG_LINE = "        webhook.MANIFEST,\n"


def write_platform(folder: Path) -> None:
    """Add the folder of the platform, and its line to a copy of the catalog."""
    pigeon = folder / "channels" / "pigeon"
    pigeon.mkdir(parents=True)
    (pigeon / "__init__.py").write_text(MANIFEST)
    (pigeon / "channel.py").write_text(DRIVER)
    catalog = Path(hermes.channels.__file__).read_text()
    assert catalog.count(CATALOG_LINE) == 1
    line = "        __import__('hermes.channels.pigeon').channels.pigeon.MANIFEST,\n"
    changed = catalog.replace(CATALOG_LINE, CATALOG_LINE + line)
    (folder / "channels" / "__init__.py").write_text(changed)
    (folder / "start.py").write_text(START)


def write_home(home: Path, url: str) -> None:
    people = {"allow_from": ["ann"], "allow_admin_from": ["ann"]}
    settings = {
        "model": {"default": "mock", "provider": "openai", "base_url": f"{url}/bot/v1"},
        "platforms": {"pigeon": {"extra": people, "accounts": {"second": {"token": "bot2"}}}},
    }
    home.mkdir()
    (home / "config.yaml").write_bytes(msgspec.json.encode(settings))
    (home / ".env").write_text(f"OPENAI_API_KEY=sk-x\nPIGEON_URL={url}\nPIGEON_TOKEN=bot\n")


@contextmanager
def gateway(folder: Path) -> Generator[RunningCli]:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HERMES_HOME": str(folder / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The driver of the test talks to the platform of `support`.
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, str(folder / "start.py")]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield RunningCli(process)
        finally:
            process.kill()


async def sees(server: PlatformServer, account: str, *texts: str) -> None:
    def seen() -> list[str]:
        return [one.text for one in server.platform.posts_in(account, "kitchen")]

    with anyio.move_on_after(TEST_TIMEOUT):
        await server.until(lambda: seen() == list(texts))
    assert seen() == list(texts)


async def test_added_platform_serves_two_accounts(tmp_path: Path) -> None:
    write_platform(tmp_path)
    async with serve_platform() as server:
        write_home(tmp_path / "home", server.url)
        with gateway(tmp_path) as running:
            await anyio.to_thread.run_sync(running.wait_for, "READY=1")
            server.say("bot", "kitchen", "ann", "one **bold** <word>")
            server.say("bot2", "kitchen", "ann", "two")
            server.say("bot2", "kitchen", "eve", "a stranger")
            await sees(server, "bot", "re: one <b>bold</b> &lt;word&gt;")
            await sees(server, "bot2", "re: two")
            ended = await anyio.to_thread.run_sync(running.send_signal, signal.SIGTERM)
        assert (ended.code, ended.err) == (128 + signal.SIGTERM, "")
    state = msgspec.json.decode((tmp_path / "home" / "channel_directory.json").read_bytes())
    assert set(state["platforms"]) == {"pigeon", "pigeon/second"}
