"""A subagent gets the tools and the sandbox of the session that started it, and no more."""

import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Struct

from hermes.app.build import App, AppOptions, open_app
from hermes.config.home import resolve_home
from hermes.schema.events import Event, Outcome
from hermes.schema.messages import Result, Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import Session, SessionFilter
from hermes.session.turn_request import TurnRequest
from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from hermes.testing.fake_openai.server import FakeOpenAiServer, serve
from support.api_server import api_env
from support.cli_process import TEST_TIMEOUT
from support.conversation import run_turn

FEW = "[todo, delegation]"
CHAT = Address("test", "1")


class Harness:
    def __init__(self, app: App, mock: FakeOpenAiServer, work: Path) -> None:
        self._app = app
        self._mock = mock
        self._work = work

    async def delegates(
        self,
        source: str = "test",
        address: Address | None = CHAT,
        role: Role = Role.OWNER,
        *,
        later: bool = False,
        words: str = "hand it on",
        without: frozenset[str] = frozenset(),
    ) -> None:
        app = self._app
        turn = TurnRequest(
            session=Session(
                id="parent", started_at=datetime.now(UTC), source=source, cwd=str(self._work)
            ),
            message=User("m-1", (Text(words),), Trust.OWNER),
            new=True,
            address=address,
            role=role,
            principal="" if role is Role.OWNER else "test:member",
            async_delivery=later,
            excluded_tools=without,
        )
        with anyio.fail_after(TEST_TIMEOUT):
            assert await run_turn(app.runner, turn) is Outcome.DONE
            while await app.store.delegations.running():  # noqa: ASYNC110 - the disk
                await anyio.sleep(0.01)

    async def tool_result(self, *, levels: int = 1) -> str:
        """The tool results of the last subagent."""
        archive = self._app.store.archive_for(OWNER)
        found = await archive.list(SessionFilter(source="subagent"))
        assert len(found) == levels
        rows = [row for one in found for row in await archive.messages(one.session.id)]
        results = [one.message for one in rows if isinstance(one.message, Result)]
        (result,) = [text_of(one) for one in results if "results" not in text_of(one)]
        return result

    def offered(self) -> list[set[str]]:
        """The tools of each request that offers any."""
        bodies = [msgspec.json.decode(one.body, type=_Asked) for one in self._mock.requests]
        return [{tool.function.name for tool in one.tools} for one in bodies if one.tools]


class _Function(Struct):
    name: str


class _Tool(Struct):
    function: _Function


class _Asked(Struct):
    tools: list[_Tool] = []


async def _silent(event: Event) -> None:
    pass


def script(command: str) -> Script:
    def delegating(goal: str, role: str) -> Sequence[Reply]:
        return [Reply("", [Call("delegate_task", {"goal": goal, "role": role})]), Reply("Told.")]

    return Script(
        rules=[
            Rule("look about", [Reply("", [Call("terminal", {"command": command})]), Reply("So.")]),
            Rule("share it", [*delegating("look about", "leaf")]),
            Rule("hand it on", [*delegating("look about", "leaf")]),
            Rule("hand it down", [*delegating("share it", "orchestrator")]),
        ]
    )


@asynccontextmanager
async def harness(root: Path, settings: str, command: str = "id -u") -> AsyncGenerator[Harness]:
    home, work = root / "home", root / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.yaml").write_text(settings)
    async with serve(script(command)) as mock:
        env = api_env(home, mock.url)
        choices = AppOptions(workspace=str(work), source="gateway")
        async with open_app(resolve_home(env), env, choices) as app:
            yield Harness(app, mock, work)


ROLES = f"platforms: {{test: {{extra: {{roles: {{member: {{toolsets: {FEW}}}}}}}}}}}\n"


@pytest.mark.parametrize("later", [False, True], ids=["awaited", "in the background"])
async def test_subagent_of_a_member_lacks_tools_forbidden_to_the_role(
    tmp_path: Path, *, later: bool
) -> None:
    async with harness(tmp_path, ROLES) as one:
        await one.delegates(role=Role.MEMBER, later=later)
        assert "Unknown tool: terminal" in await one.tool_result()
        below = [tools for tools in one.offered() if "delegate_task" not in tools]
        assert below == [{"todo"}] * 2


@pytest.mark.parametrize(
    ("source", "address"),
    [("test", CHAT), ("telegram", CHAT), ("api_server", None), ("desk", None)],
    ids=["a chat", "a chat elsewhere than it began", "the API", "a terminal"],
)
async def test_subagent_lacks_tools_not_offered_on_the_platform(
    tmp_path: Path, source: str, address: Address | None
) -> None:
    few = ", ".join(f"{name}: {FEW}" for name in ("test", "api_server", "desk"))
    async with harness(tmp_path, f"platform_toolsets: {{{few}}}\n") as one:
        await one.delegates(source, address)
        assert "Unknown tool: terminal" in await one.tool_result()


async def test_subagent_lacks_tools_excluded_from_the_turn(tmp_path: Path) -> None:
    async with harness(tmp_path, "") as one:
        await one.delegates(without=frozenset({"terminal"}))
        assert "Unknown tool: terminal" in await one.tool_result()


async def test_nested_subagent_inherits_the_limits(tmp_path: Path) -> None:
    settings = f"delegation: {{max_spawn_depth: 2}}\nplatform_toolsets: {{test: {FEW}}}\n"
    async with harness(tmp_path, settings) as one:
        await one.delegates(words="hand it down")
        assert "Unknown tool: terminal" in await one.tool_result(levels=2)


async def test_subagent_commands_use_the_sandbox_of_the_platform(tmp_path: Path) -> None:
    settings = "terminal: {backend: local, backend_by_platform: {test: bubblewrap}}\n"
    seen = f"test -e {tmp_path}/home/config.yaml && echo bare || echo walled"
    async with harness(tmp_path, settings, seen) as one:
        await one.delegates()
        assert '"walled\\n"' in await one.tool_result()


@pytest.mark.parametrize("there", [False, True])
async def test_subagent_commands_use_the_network_setting_of_the_platform(
    tmp_path: Path, *, there: bool
) -> None:
    usual, own = str(not there).lower(), str(there).lower()
    settings = (
        f"terminal: {{backend: bubblewrap, network: {usual}, network_by_platform: {{test: {own}}}}}"
    )
    with socket.create_server(("127.0.0.1", 0)) as ears:
        port = ears.getsockname()[1]
        knock = f"timeout 20 bash -c 'echo hi > /dev/tcp/127.0.0.1/{port}' && echo in || echo out"
        async with harness(tmp_path, settings, knock) as one:
            await one.delegates()
            assert f"{'in' if there else 'out'}\\n" in await one.tool_result()
