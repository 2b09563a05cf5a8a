"""A connection that fails, comes back, or is taken away: whoever calls is told, and soon."""

import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.lowlevel import checkpoint
from mcp.client import Client
from mcp_types import CallToolResult

from hermes.app.mcp_servers import launch_program
from hermes.kit.retry import Backoff
from hermes.kit.tasks import background_tasks
from hermes.mcp.connection import (
    CallTimedOut,
    ConnectionLost,
    ConnectionState,
    McpConnection,
    McpConnectionDeps,
    ReconnectPolicy,
)
from hermes.mcp.server_config import Endpoint, HttpEndpoint, ServerConfig, StdioEndpoint
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.testing.faulty_link import NO_BREAK, BreakKind, LinkBreak, faulty_link
from support.cli_process import TEST_TIMEOUT
from support.mcp_harness import SERVER_SCRIPT, http_server, lines, mcp_harness, wait_until

pytestmark = pytest.mark.anyio
SOON = ReconnectPolicy(backoff=Backoff(base=0.05, cap=0.1), max_failures=100, attempts=100)
LATE = ReconnectPolicy(backoff=Backoff(base=600.0, cap=600.0), max_failures=2)


class Shared(NamedTuple):
    """A server for all tests of this file that need no other; its files are in `root`."""

    root: Path
    way: HttpEndpoint


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    root = tmp_path_factory.mktemp("site")
    with http_server(root) as url:
        yield Shared(root, HttpEndpoint(url=url, headers={}))


def shell(script: str, root: Path) -> StdioEndpoint:
    env = {"PATH": "/usr/bin:/bin", "PLAYGROUND": str(root)}
    argv = ("sh", "-c", script, "sh", sys.executable, SERVER_SCRIPT)
    return StdioEndpoint(argv=argv, cwd=str(root), env=env)


@asynccontextmanager
async def linked(
    way: Endpoint,
    patience: ReconnectPolicy,
    listed: Callable[[McpConnection], None] = lambda link: None,
    **more: object,
) -> AsyncGenerator[McpConnection]:
    async def unheard(name: str, text: str) -> None:
        pass

    with Spawner() as door:
        parts = McpConnectionDeps(
            launch=partial(launch_program, LocalSandbox(door)),
            log_stderr=unheard,
            redact=lambda text: text,
            on_tools_changed=listed,
            reconnect=patience,
        )
        link = McpConnection(ServerConfig(name="play", endpoint=way, **more), parts)  # pyright: ignore[reportArgumentType]
        with anyio.fail_after(TEST_TIMEOUT):
            async with background_tasks() as group:
                group.start_soon(link.run)
                yield link


async def add(client: Client) -> str:
    result = await client.call_tool("add", {"a": 1, "b": 2})
    return str(result.structured_content)


async def hang(client: Client) -> CallToolResult:
    return await client.call_tool("hang", {})


async def begin(link: McpConnection) -> None:
    """As the first turn does, which then calls while it is still being connected."""
    link.wake()
    while link.state is not ConnectionState.CONNECTING:
        await checkpoint()


async def test_one_that_keeps_failing_is_left_alone_for_a_while(tmp_path: Path) -> None:
    way = shell("echo x >> tries; printf 'no luck' >&2; exit 1", tmp_path)
    async with linked(way, LATE) as link:
        for _ in range(2):
            with pytest.raises(ToolError, match="its last output: no luck"):
                await link.call(add)
        with pytest.raises(ToolError, match=r"Next attempt in \d+ s"):
            await link.call(add)
        assert (tmp_path / "tries").read_text() == "x\nx\n"
        assert link.state is ConnectionState.BROKEN


async def test_it_is_found_again_by_itself(tmp_path: Path) -> None:
    """What it says besides is no message, and no end."""
    noise = 'echo Welcome!; echo \'{"jsonrpc": 7}\'; exec "$@"'
    way = shell(f"test -e ok || exit 1; {noise}", tmp_path)
    async with linked(way, SOON) as link:
        with pytest.raises(ToolError, match="is unavailable"):
            await link.call(add)
        (tmp_path / "ok").touch()
        await wait_until(lambda: link.state is ConnectionState.READY)
        assert await link.call(add) == "{'result': 3}"
        assert {"add", "note"} <= {*link.tools}


async def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async with linked(shell("exec sleep 1000", tmp_path), LATE, connect=0.2) as link:
        with pytest.raises(ToolError, match=r"did not answer within 0\.2 s"):
            await link.call(add)


async def test_a_failure_is_followed_by_a_pause_although_somebody_called(tmp_path: Path) -> None:
    script = "echo x >> tries; until test -e go; do sleep 0.01; done; exit 1"
    async with linked(shell(script, tmp_path), LATE) as link:
        link.wake()
        await wait_until((tmp_path / "tries").exists)

        async def call() -> None:
            with pytest.raises(ToolError, match="it exited before answering"):
                await link.call(add)

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(call)
            await checkpoint()
            (tmp_path / "go").touch()
        for _ in range(20):
            await checkpoint()
        assert link.state is ConnectionState.BROKEN
        assert lines(tmp_path / "tries") == ["x"]


@pytest.mark.parametrize("limit", ["idle", "lifetime"])
async def test_one_that_rests_is_begun_again_only_for_somebody(shared: Shared, limit: str) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, LATE, begun.append, **{limit: 0.05}) as link:
        await begin(link)
        assert await link.call(add) == "{'result': 3}"
        await wait_until(lambda: link.state is ConnectionState.RESTING)
        assert len(begun) == 1
        assert await link.call(add) == "{'result': 3}"
        assert len(begun) == 2


@pytest.mark.parametrize("limit", ["idle", "lifetime"])
async def test_one_that_is_waited_for_does_not_rest(shared: Shared, limit: str) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, LATE, begun.append, **{limit: 0.05}) as link:
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(link.call, hang)
            # Somebody else comes, and goes long after it could have rested.
            with anyio.move_on_after(0.3):
                await link.call(hang)
            await wait_until(lambda: link.state is ConnectionState.READY)
            assert len(begun) == 1
            waiting.cancel_scope.cancel()
        await wait_until(lambda: link.state is ConnectionState.RESTING)
        assert len(begun) == 1


async def test_one_that_answers_nobody_is_begun_anew(shared: Shared) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, SOON, begun.append, timeout=0.1) as link:
        for _ in range(2):
            with pytest.raises(CallTimedOut, match=r"did not answer within 0\.1 s"):
                await link.call(hang)
        assert len(begun) == 1
        with pytest.raises(CallTimedOut):
            await link.call(hang)
        await wait_until(lambda: len(begun) == 2)


async def test_who_goes_by_themselves_says_nothing_of_the_server(shared: Shared) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, SOON, begun.append) as link:
        for _ in range(4):
            with anyio.move_on_after(0.05):
                await link.call(hang)
        assert await link.call(add) == "{'result': 3}"
        assert len(begun) == 1


async def test_what_goes_wrong_with_its_tools_keeps_no_call_waiting(shared: Shared) -> None:
    def stumble(link: McpConnection) -> None:
        raise RuntimeError("no room for them")

    async with linked(shared.way, LATE, stumble, connect=1000.0) as link:
        assert await link.call(add) == "{'result': 3}"
        assert link.state is ConnectionState.READY


async def test_whoever_waits_hears_that_it_was_taken_away(tmp_path: Path) -> None:
    failures: list[str] = []
    async with linked(shell('exec "$@"', tmp_path), LATE) as link:

        async def wait() -> None:
            with pytest.raises(ToolError) as caught:
                await link.call(hang)
            failures.append(str(caught.value))

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(wait)
            await wait_until((tmp_path / "hangs").exists)
            with pytest.raises(ConnectionLost):
                await link.call(lambda client: client.call_tool("crash", {}))
        assert "was lost" in failures[0]
    with pytest.raises(ToolError, match="disconnected"):
        await link.call(add)


async def test_a_site_that_goes_away_and_comes_back(shared: Shared) -> None:
    there = urlsplit(shared.way.url)
    assert there.port
    async with (
        faulty_link(there.port) as wire,
        linked(HttpEndpoint(url=f"{wire.url}{there.path}", headers={}), SOON) as link,
    ):
        assert await link.call(add) == "{'result': 3}"
        wire.plan = lambda: LinkBreak(up=0, manner=BreakKind.RESET)
        wire.hang_up()
        with pytest.raises(ToolError):
            await link.call(add)
        wire.plan = lambda: NO_BREAK
        await wait_until(lambda: link.state is ConnectionState.READY)
        assert await link.call(add) == "{'result': 3}"


@pytest.mark.parametrize(("flags", "requests"), [((), 4), (("--sse",), 5)], ids=["http", "sse"])
async def test_a_site_that_was_begun_anew_tells_by_itself_what_it_has_now(
    tmp_path: Path, flags: Sequence[str], requests: int
) -> None:
    """Nobody has to call for it, and the first who does is not told that something was lost."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    (after / "grown").touch()
    with http_server(before, *flags) as first, http_server(after, *flags) as second:
        old, new = urlsplit(first), urlsplit(second)
        assert old.port
        assert new.port
        async with (
            faulty_link(old.port) as wire,
            linked(
                HttpEndpoint(url=f"{wire.url}{old.path}", headers={}, sse=bool(flags)), SOON
            ) as link,
        ):
            assert await link.call(add) == "{'result': 3}"
            # One of them is to hear of changes.
            await wait_until(lambda: len(wire.asked) >= requests)
            assert "plus" not in link.tools
            wire.port = new.port
            wire.hang_up()
            await wait_until(lambda: "plus" in link.tools)
            await link.call(lambda client: client.call_tool("note", {"text": "here"}))
    assert lines(after / "notes") == ["here"]


async def test_behind_the_wall_only_its_folder_can_be_changed(tmp_path: Path) -> None:
    def server(name: str) -> dict[str, object]:
        script = f"touch ./{name} ../{name}; cat ../home/config.yaml; printf '\\nover\\n'; exit 1"
        return {"command": "sh", "args": ["-c", f"exec >&2; {script}"]}

    servers = {
        "walled": {**server("walled"), "sandbox": True},
        "free": {**server("free"), "cwd": "."},
    }
    async with mcp_harness(tmp_path, servers) as here:
        await here.names()
        states = here.app.servers.states
        await wait_until(lambda: all(state.endswith("said: over") for _, state in states()))
    assert {path.name for path in tmp_path.iterdir()} >= {"free", "work"}
    assert not (tmp_path / "walled").exists()
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"free", "walled"}
    log = (tmp_path / "home" / "logs" / "mcp-stderr.log").read_text()
    assert any(" free: " in line and "mcp_servers" in line for line in log.splitlines())
    assert not any(" walled: " in line and "mcp_servers" in line for line in log.splitlines())
