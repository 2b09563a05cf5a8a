"""The MCP servers of a profile: settings become connections, and those become tools.

Nothing is loaded or started before the first turn, and nothing at all where there is no server.
"""

import logging
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.app.planner import StandardPlanner
from hermes.app.toolbox import Toolbox
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.masking import secrets_in
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.kit.text import one_line, plural
from hermes.logs.files import RotatingFile
from hermes.ports.blobs import Blobs
from hermes.ports.sandbox import Process, ProcessPermissions, ProcessSpec, Sandbox
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.tools import ToolSpec

if TYPE_CHECKING:
    from hermes.mcp.connection import McpConnection, McpConnectionDeps
    from hermes.mcp.server_config import ServerConfig, StdioEndpoint
    from hermes.mcp.tool_list import ActingTools

log = logging.getLogger(__name__)

SDK_TIMEOUT = 30.0
"""Seconds that a turn waits at most for the SDK itself, which takes about one."""
STOP_TIMEOUT = 10.0
"""Seconds that a server has to end, asked and then forced, before another takes its place."""
MAX_LOG_BYTES = 1_000_000
_INSTALL = f"{sys.executable} -m pip install 'mcp>=2.3,<3'"


class McpDeps(Struct, frozen=True, kw_only=True):
    """What of a profile its servers need; `early` connects them before the first turn."""

    home: Home
    env: Env
    loaded: LoadedConfig
    toolbox: Toolbox
    blobs: Blobs
    clock: Clock
    redactor: Redactor
    workspace: str
    early: bool = False


def missing_sdk() -> str:
    """Why no server can be talked to, and what to do; empty where the SDK is installed."""
    if find_spec("mcp") is not None:
        return ""
    return f"MCP servers need a package that is not installed. Install it: {_INSTALL}"


def load_sdk() -> str:
    """In a thread, because it takes so long. Returns why it cannot be used.

    The boundary to packages of others: whatever they raise, a profile goes on without servers.
    """
    try:
        import_module("hermes.mcp.tools")
    except Exception as error:
        log.exception("the package of MCP servers cannot be loaded")
        why = f"their package cannot be loaded ({one_line(str(error), 200)})"
        return f"MCP servers cannot be used: {why}. Install it anew: {_INSTALL}"
    return ""


@asynccontextmanager
async def launch_program(sandbox: Sandbox, program: "StdioEndpoint") -> AsyncGenerator[Process]:
    """Through the one door. The owner named the program; without `sandbox` no wall holds it."""
    reach = ProcessPermissions(beyond=True, network=True)
    if program.walled:
        wall = (await sandbox.confinement()).wall
        if not wall:
            raise SandboxError("it is to run in the sandbox, and there is none here")
        reach = ProcessPermissions(network=True, writable=(program.cwd,), wall=wall)
    job = ProcessSpec(
        argv=program.argv, cwd=program.cwd, env=program.env, timeout=0, reach=reach, apart=True
    )
    async with sandbox.open(job) as process:
        yield process


class _ServerTask:
    """A connection in a task of its own, until it is let go."""

    def __init__(self, link: "McpConnection") -> None:
        self.link = link
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def run(self) -> None:
        try:
            with self._scope:
                await self.link.run()
        finally:
            self._ended.set()

    async def let_go(self) -> None:
        """Until what was started has ended: the next may need its port, or its lock."""
        self._scope.cancel()
        with anyio.move_on_after(STOP_TIMEOUT) as limit:
            await self._ended.wait()
        if limit.cancelled_caught:
            log.warning("MCP server %s has not ended yet", self.link.server.name)


class McpServers:
    """All of a profile's. Connected with the first plan, and then kept by their own tasks."""

    def __init__(self, parts: McpDeps, group: TaskGroup, stderr: RotatingFile) -> None:
        self._parts = parts
        self._group = group
        self._stderr = stderr
        self._given = parts.loaded.config.mcp_servers
        self._extra_redactor = Redactor()
        """What came with settings that were read again."""
        self._reloading = anyio.Lock()
        self._links: dict[str, _ServerTask] = {}
        self._acting: ActingTools | None = None
        self._begun = False
        self._loaded = anyio.Event()
        self._until = 0.0
        self.troubles: dict[str, str] = {}
        """Servers that cannot even be tried, each with why."""

    def begin(self) -> None:
        """Start connecting, once."""
        if self._given and not self._begun:
            self._begun = True
            self._group.start_soon(self._load)

    async def ready(self) -> None:
        """Before a plan: servers that are quick are there with the first, others with a later."""
        if not self._given:
            return
        self.begin()
        with anyio.move_on_after(SDK_TIMEOUT):
            await self._loaded.wait()
        with anyio.CancelScope(deadline=self._until):
            for kept in [*self._links.values()]:
                await kept.link.settled.wait()

    async def _load(self) -> None:
        """The SDK takes about a second to load, which nobody else has to wait for."""
        usable, self.troubles = self._looked_at()
        if usable and (why := await run_sync(load_sdk)):
            self.troubles |= {server.name: why for server in usable}
        elif usable:
            from hermes.mcp.tool_list import ActingTools  # noqa: PLC0415 - as above

            self._acting = await run_sync(ActingTools, self._parts.home.acting_tools)
            for server in usable:
                self._connect(server)
        for trouble in dict.fromkeys(self.troubles.values()):
            log.warning("%s", trouble)
        self._until = anyio.current_time() + self._parts.loaded.config.mcp_discovery_timeout
        self._loaded.set()

    def _looked_at(self) -> tuple[list["ServerConfig"], dict[str, str]]:
        """The servers that can be tried, and why the others cannot."""
        from hermes.app.mcp_settings import ServerFolders, server_config  # noqa: PLC0415 - most homes have none

        usable: list[ServerConfig] = []
        troubles: dict[str, str] = {}
        parts = self._parts
        may_offer = parts.toolbox.may_offer
        ground = ServerFolders(parts.env, parts.home.path, parts.workspace)
        wanted = {name: one for name, one in self._given.items() if one.enabled and may_offer(name)}
        for name, given in wanted.items():
            try:
                server = server_config(name, given, ground, wanted)
            except ConfigError as error:
                troubles[name] = error.sentence
            else:
                usable.append(server)
        if usable and (why := missing_sdk()):
            return [], troubles | {server.name: why for server in usable}
        return usable, troubles

    def warnings(self) -> list[str]:
        """What is wrong with the settings, or missing."""
        return list(dict.fromkeys(self._looked_at()[1].values())) if self._given else []

    def _connect(self, server: "ServerConfig") -> None:
        from hermes.mcp.connection import McpConnection  # noqa: PLC0415 - most homes have no server

        link = McpConnection(server, self._link_parts())
        kept = self._links[server.name] = _ServerTask(link)
        self._parts.toolbox.join((), toolset=server.name)
        link.wake()
        self._group.start_soon(kept.run)

    def _link_parts(self) -> "McpConnectionDeps":
        from hermes.mcp.connection import McpConnectionDeps  # noqa: PLC0415 - as above

        return McpConnectionDeps(
            launch=partial(launch_program, self._parts.toolbox.sandboxes.near),
            log=self._write_log,
            redact=self._redact,
            listed=self._listed,
            acting=self._acting,
        )

    def _listed(self, link: "McpConnection") -> None:
        from hermes.mcp.results import ResultReader  # noqa: PLC0415 - as above
        from hermes.mcp.tools import server_tools  # noqa: PLC0415 - as above

        kept = self._links.get(link.server.name)
        if kept is None or kept.link is not link:
            return
        tools = server_tools(link, ResultReader(self._parts.blobs, self._redact))
        self._parts.toolbox.join(tools, toolset=link.server.name)
        log.info("MCP server %s: %s", link.server.name, plural(len(tools), "tool"))

    def _redact(self, text: str) -> str:
        return self._extra_redactor.redact(self._parts.redactor.redact(text))

    async def _write_log(self, name: str, text: str) -> None:
        now = f"{self._parts.clock.now():%Y-%m-%d %H:%M:%S}"
        lines = "".join(f"{now} {name}: {line}\n" for line in text.splitlines())
        try:
            await run_sync(self._stderr.append, lines.encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", self._stderr.path, error.strerror)

    def states(self) -> list[tuple[str, str]]:
        """Each server by name, and how it is, for people."""
        told = dict(self.troubles)
        for name, kept in self._links.items():
            link = kept.link
            tools = plural(len(link.tools), "tool")
            told[name] = (
                f"{link.state}: {link.trouble}" if link.trouble else f"{link.state}, {tools}"
            )
        return sorted(told.items())

    def status(self) -> str:
        return "; ".join(f"{name} {state}" for name, state in self.states())

    @property
    def confirms_reload(self) -> bool:
        return self._parts.loaded.config.approvals.mcp_reload_confirm

    async def reload(self) -> str:
        """Calls that run are lost, and whoever waits for them is told so."""
        async with self._reloading:
            if self._begun:
                await self._loaded.wait()
            return await self._reload()

    async def _reload(self) -> str:
        parts = self._parts
        env = profile_env(parts.home.dotenv, parts.env)
        loaded = await run_sync(load_config, parts.home, env)
        before, self._links, self.troubles = self._links, {}, {}
        async with anyio.create_task_group() as leaving:
            for name, kept in before.items():
                parts.toolbox.leave(name)
                leaving.start_soon(kept.let_go)
        parts.toolbox.update_settings(loaded.config)
        self._given = loaded.config.mcp_servers
        hides = loaded.config.security.redact_secrets
        self._extra_redactor = Redactor(secrets_in(loaded.raw) if hides else ())
        self._parts = structs.replace(parts, loaded=loaded, env=env)
        self._loaded, self._begun = anyio.Event(), False
        if not self._given:
            return "There are no MCP servers in the settings."
        await self.ready()
        states = self.states() or [("all", "switched off")]
        return "\n".join(f"{name}: {state}" for name, state in states)


@asynccontextmanager
async def open_mcp_servers(parts: McpDeps, planner: StandardPlanner) -> AsyncGenerator[McpServers]:
    """For as long as a profile is open; leaving the block ends what was started."""
    stderr = RotatingFile(parts.home.logs / "mcp-stderr.log", MAX_LOG_BYTES, 1)
    with closing(stderr):
        async with background_tasks() as group:
            servers = McpServers(parts, group, stderr)
            planner.waits_for(servers.ready)
            if parts.early:
                servers.begin()
            yield servers


class ConnectionTest(Struct, frozen=True, kw_only=True):
    """What came of connecting once; `trouble` says why nothing did."""

    version: str = ""
    tools: Sequence[ToolSpec] = ()
    trouble: str = ""


async def test_connection(
    server: "ServerConfig", sandbox: Sandbox, redactor: Redactor, home: Home
) -> ConnectionTest:
    """Connect to one server, look at what it has, and leave it."""
    if why := missing_sdk() or await run_sync(load_sdk):
        return ConnectionTest(trouble=why)
    from hermes.mcp.connection import McpConnection, McpConnectionDeps  # noqa: PLC0415 - as above
    from hermes.mcp.results import ResultReader  # noqa: PLC0415 - as above
    from hermes.mcp.tool_list import ActingTools  # noqa: PLC0415 - as above
    from hermes.mcp.tools import server_tools  # noqa: PLC0415 - as above
    from hermes.store.blobs import FileBlobs  # noqa: PLC0415 - as above

    async def unheard(name: str, text: str) -> None:
        """The last line is told with the failure."""

    parts = McpConnectionDeps(
        launch=partial(launch_program, sandbox),
        log=unheard,
        redact=redactor.redact,
        listed=lambda link: None,
        acting=await run_sync(ActingTools, home.acting_tools),
    )
    link = McpConnection(server, parts)
    async with background_tasks() as group:
        link.wake()
        settled = link.settled
        group.start_soon(link.run)
        await settled.wait()
        if link.trouble:
            return ConnectionTest(trouble=link.trouble)
        reading = ResultReader(FileBlobs(home.cache / "blobs"), redactor.redact)
        specs = [one.spec for one in server_tools(link, reading)]
        return ConnectionTest(version=link.version, tools=specs)
