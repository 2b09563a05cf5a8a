"""A connection that fails, comes back, or is taken away: whoever calls is told, and soon."""

import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from mcp.client import Client

from hermes.app.mcp import launched
from hermes.kit.retry import Backoff
from hermes.kit.tasks import beside
from hermes.mcp.link import Link, Lost, Near, Patience, State
from hermes.mcp.server import Program, Server, Site, Way
from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.schema.errors import ToolError
from mcp_talk import SERVER, site, talk, until
from processes import PATIENCE

pytestmark = pytest.mark.anyio
SOON = Patience(backoff=Backoff(base=0.05, cap=0.1), strikes=100, attempts=100)
LATE = Patience(backoff=Backoff(base=600.0, cap=600.0), strikes=2)


def shell(script: str, root: Path) -> Program:
    env = {"PATH": "/usr/bin:/bin", "PLAYGROUND": str(root)}
    argv = ("sh", "-c", script, "sh", sys.executable, SERVER)
    return Program(argv=argv, cwd=str(root), env=env)


@asynccontextmanager
async def linked(way: Way, patience: Patience, **more: object) -> AsyncGenerator[Link]:
    async def unheard(name: str, text: str) -> None:
        pass

    with Door() as door:
        near = Near(
            launch=partial(launched, LocalSandbox(door)),
            log=unheard,
            redact=lambda text: text,
            listed=lambda link: None,
            patience=patience,
        )
        link = Link(Server(name="play", way=way, **more), near)  # pyright: ignore[reportArgumentType]
        with anyio.fail_after(PATIENCE):
            async with beside() as group:
                group.start_soon(link.run)
                yield link


async def add(client: Client) -> str:
    result = await client.call_tool("add", {"a": 1, "b": 2})
    return str(result.structured_content)


async def test_one_that_keeps_failing_is_left_alone_for_a_while(tmp_path: Path) -> None:
    way = shell("echo x >> tries; echo no luck >&2; exit 1", tmp_path)
    async with linked(way, LATE) as link:
        for _ in range(2):
            with pytest.raises(ToolError, match="the last it said: no luck"):
                await link.call(add)
        with pytest.raises(ToolError, match=r"tried again in \d+ s"):
            await link.call(add)
        assert (tmp_path / "tries").read_text() == "x\nx\n"
        assert link.state is State.BROKEN


async def test_it_is_found_again_by_itself(tmp_path: Path) -> None:
    way = shell('test -e ok && exec "$@"', tmp_path)
    async with linked(way, SOON) as link:
        with pytest.raises(ToolError, match="cannot be used now"):
            await link.call(add)
        (tmp_path / "ok").touch()
        await until(lambda: link.state is State.READY)
        assert await link.call(add) == "{'result': 3}"
        assert {"add", "note"} <= {tool.name for tool in link.tools}


async def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async with linked(shell("exec sleep 1000", tmp_path), LATE, connect=0.2) as link:
        with pytest.raises(ToolError, match=r"did not answer within 0\.2 s"):
            await link.call(add)


async def test_noise_is_no_message_and_no_end(tmp_path: Path) -> None:
    way = shell('echo Welcome!; echo \'{"jsonrpc": 7}\'; exec "$@"', tmp_path)
    async with linked(way, LATE) as link:
        assert await link.call(add) == "{'result': 3}"


async def test_whoever_waits_hears_that_it_was_taken_away(tmp_path: Path) -> None:
    failures: list[str] = []
    async with linked(shell('exec "$@"', tmp_path), LATE) as link:

        async def hang() -> None:
            with pytest.raises(ToolError) as caught:
                await link.call(lambda client: client.call_tool("hang", {}))
            failures.append(str(caught.value))

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(hang)
            await until((tmp_path / "hangs").exists)
            with pytest.raises(Lost):
                await link.call(lambda client: client.call_tool("crash", {}))
        assert "was lost" in failures[0]
    with pytest.raises(ToolError, match="disconnected"):
        await link.call(add)


async def test_a_site_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with ExitStack() as first:
        way = Site(url=first.enter_context(site(tmp_path)), headers={})
        async with linked(way, SOON) as link:
            assert await link.call(add) == "{'result': 3}"
            first.close()
            with pytest.raises(ToolError):
                await link.call(add)
            with site(tmp_path, f"--port={urlsplit(way.url).port}"):
                await until(lambda: link.state is State.READY)
                assert await link.call(add) == "{'result': 3}"


async def test_behind_the_wall_only_its_folder_can_be_changed(tmp_path: Path) -> None:
    def server(name: str) -> dict[str, object]:
        script = f"touch ./{name} ../{name}; cat ../home/config.yaml; printf '\\nover\\n'; exit 1"
        return {"command": "sh", "args": ["-c", f"exec >&2; {script}"]}

    servers = {"walled": {**server("walled"), "sandbox": True}, "free": server("free")}
    async with talk(tmp_path, servers) as here:
        await here.names()
        states = here.app.servers.states
        await until(lambda: all(state.endswith("said: over") for _, state in states()))
    assert {path.name for path in tmp_path.iterdir()} >= {"free", "work"}
    assert not (tmp_path / "walled").exists()
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"free", "walled"}
    log = (tmp_path / "home" / "logs" / "mcp-stderr.log").read_text()
    assert any(" free: " in line and "mcp_servers" in line for line in log.splitlines())
    assert not any(" walled: " in line and "mcp_servers" in line for line in log.splitlines())
