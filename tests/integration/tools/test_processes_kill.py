"""A gateway killed around the end of background processes reports each end once."""

import re
from collections import Counter
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import structs

from hermes.gateway.delivery import RECOVERED_MARK
from hermes.kit.clock import SystemClock
from hermes.schema.messages import User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.store.sqlite import open_store
from support.chat_platform.server import PlatformServer, serve_platform
from support.cli_process import TEST_TIMEOUT
from support.gateway_instances import GatewayInstance, run_instance
from support.gateway_process import GatewaySpec
from support.homes import ProfileSettings, write_profile

CHATS = [f"c{number}" for number in range(6)]
REPORT = re.compile(r"re: \[IMPORTANT: Background process (proc_\w+) ")
STARTED = re.compile(r'"session_id":"(proc_\w+)"')


def home(folder: Path, url: str) -> GatewaySpec:
    work = folder / "work"
    work.mkdir()
    write_profile(
        folder / "home",
        ProfileSettings(
            account="main",
            url=url,
            env={"MESSAGING_CWD": str(work)},
            settings={"terminal": {"backend": "local"}, "approvals": {"mode": "off"}},
        ),
    )
    return GatewaySpec(folder=str(folder), home=str(folder / "home"))


def ask(server: PlatformServer, command: str) -> None:
    args = {"command": command, "background": True, "notify_on_complete": True}
    call = msgspec.json.encode(args).decode()
    server.platform.say_all(
        [("main", chat, "ann", f"q-{chat} use:terminal {call}") for chat in CHATS]
    )
    server.changed()


def found(server: PlatformServer, pattern: re.Pattern[str], *, marked: bool = True) -> Counter[str]:
    """The processes that are named so in what people saw, perhaps without what says "recovered".

    A report that was under way when the gateway was killed is sent again under that mark: people
    may then have seen two, the second marked, or only the marked one.
    """
    texts = [post.text for chat in CHATS for post in server.platform.posts_in("main", chat)]
    return Counter(
        match[1]
        for text in texts
        if marked or not text.startswith(RECOVERED_MARK)
        for match in pattern.finditer(text)
    )


async def wait_all_started(server: PlatformServer) -> None:
    await server.until(lambda: len(found(server, STARTED)) == len(CHATS))


async def assert_each_reported_once(folder: Path, server: PlatformServer) -> None:
    started, plain = found(server, STARTED), found(server, REPORT, marked=False)
    assert len(started) == len(CHATS)
    assert set(found(server, REPORT)) == set(started)
    assert plain == dict.fromkeys(plain, 1)
    async with open_store(folder / "home" / "hermes.db", SystemClock()) as store:
        archive = store.archive_for(OWNER)
        texts = [
            text_of(row.message)
            for digest in await archive.list(SessionFilter(), limit=1000)
            for row in await archive.messages(digest.session.id)
            if isinstance(row.message, User)
        ]
        reports = Counter(name for text in texts for name in started if f"process {name} " in text)
        assert reports == dict.fromkeys(started, 1)
        assert not await store.processes.count_running()
        assert await store.queues.topics("inbox") == []
        ended = [Path(f"/proc/{process.pid}") for process in await store.processes.all()]
    # Orphans are reaped by another process, at its own pace.
    with anyio.fail_after(TEST_TIMEOUT):
        while any(process.exists() for process in ended):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.02)


async def restart_and_wait(folder: Path, server: PlatformServer, spec: GatewaySpec) -> None:
    async def end(life: GatewayInstance) -> None:
        await life.wait_ready()
        await server.until(lambda: len(found(server, REPORT)) == len(CHATS))
        life.end()

    await run_instance(structs.replace(spec, die_at=""), end)
    await assert_each_reported_once(folder, server)


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("failpoint", ["processes.exited", "processes.result_stored"])
async def test_kill_around_an_exit(tmp_path: Path, failpoint: str, nth: int) -> None:
    async with serve_platform(seed=1) as server:
        spec = structs.replace(home(tmp_path, server.url), die_at=failpoint, nth=nth)

        async def die(life: GatewayInstance) -> None:
            await life.wait_ready()
            ask(server, f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo made")
            await wait_all_started(server)
            (tmp_path / "go").touch()

        assert (await run_instance(spec, die)).killed
        await restart_and_wait(tmp_path, server, spec)


async def test_kill_while_processes_run(tmp_path: Path) -> None:
    async with serve_platform(seed=1) as server:
        spec = home(tmp_path, server.url)

        async def die(life: GatewayInstance) -> None:
            await life.wait_ready()
            ask(server, "echo started; sleep 1000")
            await wait_all_started(server)
            life.kill()

        assert (await run_instance(spec, die)).killed
        await restart_and_wait(tmp_path, server, spec)


async def test_shutdown_while_processes_run(tmp_path: Path) -> None:
    async with serve_platform(seed=1) as server:
        spec = home(tmp_path, server.url)

        async def shut_down(life: GatewayInstance) -> None:
            await life.wait_ready()
            ask(server, "echo started; sleep 1000")
            await wait_all_started(server)
            life.end()

        assert not (await run_instance(spec, shut_down)).killed
        await restart_and_wait(tmp_path, server, spec)
