"""Connections that fail, recover or are closed: callers get an error in time."""

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
from hermes.mcp.servers import launch_program
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from support.cli_process import TEST_TIMEOUT
from support.faulty_link import NO_BREAK, BreakKind, LinkBreak, faulty_link
from support.mcp_harness import SERVER_SCRIPT, http_server, lines, mcp_harness, wait_until
from support.polling import pause

FAST_RETRY = ReconnectPolicy(backoff=Backoff(base=0.05, cap=0.1), max_failures=100, attempts=100)
SLOW_RETRY = ReconnectPolicy(backoff=Backoff(base=600.0, cap=600.0), max_failures=2)


class Shared(NamedTuple):
    """A server shared by the tests of this file; its files are in `root`."""

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
    async def ignore(name: str, text: str) -> None:
        pass

    with Spawner() as spawner:
        parts = McpConnectionDeps(
            launch=partial(launch_program, LocalSandbox(spawner)),
            log_stderr=ignore,
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
    """Start connecting, as the first turn does, without waiting for the result."""
    link.wake()
    while link.state is not ConnectionState.CONNECTING:
        await pause()


async def test_failing_server_is_not_retried_for_a_while(tmp_path: Path) -> None:
    way = shell("echo x >> tries; printf 'no luck' >&2; exit 1", tmp_path)
    async with linked(way, SLOW_RETRY) as link:
        for _ in range(2):
            with pytest.raises(ToolError, match="its last output: no luck"):
                await link.call(add)
        with pytest.raises(ToolError, match=r"Next attempt in \d+ s"):
            await link.call(add)
        assert (tmp_path / "tries").read_text() == "x\nx\n"
        assert link.state is ConnectionState.BROKEN


async def test_server_is_reconnected_automatically(tmp_path: Path) -> None:
    """Output that is not a message is ignored."""
    noise = 'echo Welcome!; echo \'{"jsonrpc": 7}\'; exec "$@"'
    way = shell(f"test -e ok || exit 1; {noise}", tmp_path)
    async with linked(way, FAST_RETRY) as link:
        with pytest.raises(ToolError, match="is unavailable"):
            await link.call(add)
        (tmp_path / "ok").touch()
        await wait_until(lambda: link.state is ConnectionState.READY)
        assert await link.call(add) == "{'result': 3}"
        assert {"add", "note"} <= {*link.tools}


async def test_silent_server_times_out(tmp_path: Path) -> None:
    async with linked(shell("exec sleep 1000", tmp_path), SLOW_RETRY, connect=0.2) as link:
        with pytest.raises(ToolError, match=r"did not answer within 0\.2 s"):
            await link.call(add)


async def test_failure_is_followed_by_a_pause_despite_calls(tmp_path: Path) -> None:
    script = "echo x >> tries; until test -e go; do sleep 0.01; done; exit 1"
    async with linked(shell(script, tmp_path), SLOW_RETRY) as link:
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
async def test_idle_server_is_restarted_only_for_a_call(shared: Shared, limit: str) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, SLOW_RETRY, begun.append, **{limit: 0.05}) as link:
        await begin(link)
        assert await link.call(add) == "{'result': 3}"
        await wait_until(lambda: link.state is ConnectionState.RESTING)
        assert len(begun) == 1
        assert await link.call(add) == "{'result': 3}"
        assert len(begun) == 2


@pytest.mark.parametrize("limit", ["idle", "lifetime"])
async def test_server_with_pending_calls_does_not_idle(shared: Shared, limit: str) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, SLOW_RETRY, begun.append, **{limit: 0.05}) as link:
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(link.call, hang)
            # Another call ends long after the idle timeout.
            with anyio.move_on_after(0.3):
                await link.call(hang)
            await wait_until(lambda: link.state is ConnectionState.READY)
            assert len(begun) == 1
            waiting.cancel_scope.cancel()
        await wait_until(lambda: link.state is ConnectionState.RESTING)
        assert len(begun) == 1


async def test_server_without_answers_is_restarted(shared: Shared) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, FAST_RETRY, begun.append, timeout=0.1) as link:
        for _ in range(2):
            with pytest.raises(CallTimedOut, match=r"did not answer within 0\.1 s"):
                await link.call(hang)
        assert len(begun) == 1
        with pytest.raises(CallTimedOut):
            await link.call(hang)
        await wait_until(lambda: len(begun) == 2)


async def test_cancelled_calls_do_not_count_as_unanswered(shared: Shared) -> None:
    begun: list[McpConnection] = []
    async with linked(shared.way, FAST_RETRY, begun.append) as link:
        for _ in range(4):
            with anyio.move_on_after(0.05):
                await link.call(hang)
        assert await link.call(add) == "{'result': 3}"
        assert len(begun) == 1


async def test_failing_listener_does_not_block_calls(shared: Shared) -> None:
    def fail(link: McpConnection) -> None:
        raise RuntimeError("no room for them")

    async with linked(shared.way, SLOW_RETRY, fail, connect=1000.0) as link:
        assert await link.call(add) == "{'result': 3}"
        assert link.state is ConnectionState.READY


async def test_pending_call_fails_when_disconnected(tmp_path: Path) -> None:
    failures: list[str] = []
    async with linked(shell('exec "$@"', tmp_path), SLOW_RETRY) as link:

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


async def test_http_server_reconnects(shared: Shared) -> None:
    address = urlsplit(shared.way.url)
    assert address.port
    async with (
        faulty_link(address.port) as wire,
        linked(HttpEndpoint(url=f"{wire.url}{address.path}", headers={}), FAST_RETRY) as link,
    ):
        assert await link.call(add) == "{'result': 3}"
        wire.plan = lambda: LinkBreak(up=0, kind=BreakKind.RESET)
        wire.hang_up()
        with pytest.raises(ToolError):
            await link.call(add)
        wire.plan = lambda: NO_BREAK
        await wait_until(lambda: link.state is ConnectionState.READY)
        assert await link.call(add) == "{'result': 3}"


@pytest.mark.parametrize(("flags", "requests"), [((), 4), (("--sse",), 5)], ids=["http", "sse"])
async def test_restarted_http_server_announces_its_tools(
    tmp_path: Path, flags: Sequence[str], requests: int
) -> None:
    """Without a call, and the first call does not report a loss."""
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
                HttpEndpoint(url=f"{wire.url}{old.path}", headers={}, sse=bool(flags)),
                FAST_RETRY,
            ) as link,
        ):
            assert await link.call(add) == "{'result': 3}"
            # One of them is the subscription to changes.
            await wait_until(lambda: len(wire.request_lines) >= requests)
            assert "plus" not in link.tools
            wire.port = new.port
            wire.hang_up()
            await wait_until(lambda: "plus" in link.tools)
            await link.call(lambda client: client.call_tool("note", {"text": "here"}))
    assert lines(after / "notes") == ["here"]


async def test_sandboxed_server_can_write_only_its_folder(tmp_path: Path) -> None:
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
        await wait_until(lambda: all(state.endswith("output: over") for _, state in states()))
    assert {path.name for path in tmp_path.iterdir()} >= {"free", "work"}
    assert not (tmp_path / "walled").exists()
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"free", "walled"}
    log = (tmp_path / "home" / "logs" / "mcp-stderr.log").read_text()
    assert any(" free: " in line and "mcp_servers" in line for line in log.splitlines())
    assert not any(" walled: " in line and "mcp_servers" in line for line in log.splitlines())
