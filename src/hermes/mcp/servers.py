"""Connect a profile's MCP servers and add their tools.

Nothing is started before the first turn. The SDK is slow to load, which is done in a thread.
"""

import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.config.env import Env, profile_env
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.schema import Config
from hermes.config.variables import secrets_in
from hermes.kit.clock import Clock
from hermes.kit.installation import install_command
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.kit.text import one_line, plural
from hermes.logs import RotatingFile
from hermes.mcp.server_config import ServerConfig, StdioEndpoint
from hermes.mcp.settings import ServerContext, server_config
from hermes.ports.sandbox import Process, ProcessPermissions, ProcessSpec, Sandbox
from hermes.ports.store import Blobs
from hermes.ports.tool import Tool
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.tools import ToolSpec

if TYPE_CHECKING:
    from hermes.mcp.connection import McpConnection
    from hermes.mcp.tool_list import ActingTools

log = logging.getLogger(__name__)

SDK_TIMEOUT = 30.0
"""Seconds a turn waits for the SDK to load, which takes about one."""
STOP_TIMEOUT = 10.0
"""Seconds for a server to end before it is replaced."""
_PACKAGE = "mcp>=2.3,<3"


class ToolRegistry(Protocol):
    """Where the tools of servers are added."""

    def add_tools(self, tools: Sequence[Tool], *, toolset: str = "") -> None: ...
    def remove_toolset(self, toolset: str) -> None: ...
    def update_settings(self, config: Config) -> None: ...

    def may_offer(self, toolset: str) -> bool:
        """Whether any platform could get its tools."""
        ...


class McpDeps(Struct, frozen=True, kw_only=True):
    """What the servers need from the profile."""

    home: Home
    env: Env
    loaded: LoadedConfig
    toolbox: ToolRegistry
    sandbox: Sandbox
    reserved: Collection[str]  # names of our own toolsets
    blobs: Blobs
    clock: Clock
    redactor: Redactor
    workspace: str


def missing_sdk() -> str:
    """Why MCP cannot be used, and what to do; empty if the SDK is installed."""
    if find_spec("mcp") is not None:
        return ""
    return (
        f"MCP servers need a package that is not installed. Install it: {install_command(_PACKAGE)}"
    )


def load_sdk() -> str:
    """Load the SDK (in a thread, as it is slow); returns why it cannot be used.

    Third-party code may raise anything; the profile then works without servers.
    """
    try:
        import_module("hermes.mcp.tools")
    except Exception as error:
        log.exception("cannot load the MCP package")
        reason = one_line(str(error), 200)
        return f"Cannot load the MCP package ({reason}). Reinstall it: {install_command(_PACKAGE)}"
    return ""


@asynccontextmanager
async def launch_program(sandbox: Sandbox, program: StdioEndpoint) -> AsyncGenerator[Process]:
    """Start a server's program. It is unsandboxed unless the owner configured `sandbox`."""
    permissions = ProcessPermissions(unsandboxed=True, network=True)
    if program.sandboxed:
        isolation = (await sandbox.confinement()).isolation
        if not isolation:
            raise SandboxError("it must run in a sandbox, but none is available")
        permissions = ProcessPermissions(network=True, writable=(program.cwd,), isolation=isolation)
    spec = ProcessSpec(
        argv=program.argv,
        cwd=program.cwd,
        env=program.env,
        timeout=0,
        permissions=permissions,
        separate_stderr=True,
    )
    async with sandbox.open(spec) as process:
        yield process


class _ServerTask:
    """A connection running in its own task."""

    def __init__(self, connection: "McpConnection") -> None:
        self.connection = connection
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def run(self) -> None:
        try:
            with self._scope:
                await self.connection.run()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Wait until the server has ended: the next one may need its port or lock."""
        self._scope.cancel()
        with anyio.move_on_after(STOP_TIMEOUT) as limit:
            await self._ended.wait()
        if limit.cancelled_caught:
            log.warning("MCP server %s has not ended yet", self.connection.server.name)


class McpServers:
    """All MCP servers of a profile, connected with the first plan and kept by their tasks."""

    def __init__(self, parts: McpDeps, group: TaskGroup, stderr: RotatingFile) -> None:
        self._parts = parts
        self._group = group
        self._stderr = stderr
        self._settings = parts.loaded.config.mcp_servers
        self._extra_redactor = Redactor()
        """Secrets from reloaded settings."""
        self._reloading = anyio.Lock()
        self._tasks: dict[str, _ServerTask] = {}
        self._acting: ActingTools | None = None
        self._started = False
        self._loaded = anyio.Event()
        self._until = 0.0
        self.errors: dict[str, str] = {}
        """Servers that cannot be tried, with the reason."""

    def start(self) -> None:
        """Start connecting, once."""
        if self._settings and not self._started:
            self._started = True
            self._group.start_soon(self._load)

    async def wait_ready(self) -> None:
        """Wait before a plan: fast servers are there for the first turn, others for later ones."""
        if not self._settings:
            return
        self.start()
        with anyio.move_on_after(SDK_TIMEOUT):
            await self._loaded.wait()
        with anyio.CancelScope(deadline=self._until):
            for task in [*self._tasks.values()]:
                await task.connection.settled.wait()

    async def _load(self) -> None:
        """Load the SDK, which takes about a second, and connect."""
        usable, self.errors = self._usable_servers()
        if usable and (why := await run_sync(load_sdk)):
            self.errors |= {server.name: why for server in usable}
        elif usable:
            from hermes.mcp.tool_list import ActingTools  # noqa: PLC0415 - as above

            self._acting = await run_sync(ActingTools, self._parts.home.mcp_acting_tools)
            for server in usable:
                self._connect(server)
        for error in dict.fromkeys(self.errors.values()):
            log.warning("%s", error)
        self._until = anyio.current_time() + self._parts.loaded.config.mcp_discovery_timeout
        self._loaded.set()

    def _usable_servers(self) -> tuple[list[ServerConfig], dict[str, str]]:
        """The servers that can be tried, and why the others cannot."""
        usable: list[ServerConfig] = []
        errors: dict[str, str] = {}
        parts = self._parts
        context = ServerContext(parts.env, parts.home.path, parts.workspace, parts.reserved)
        enabled = {
            name: server
            for name, server in self._settings.items()
            if server.enabled and parts.toolbox.may_offer(context.toolset(name))
        }
        for name, settings in enabled.items():
            try:
                usable.append(server_config(name, settings, context, enabled))
            except ConfigError as error:
                errors[name] = error.sentence
        if usable and (why := missing_sdk()):
            return [], errors | {server.name: why for server in usable}
        return usable, errors

    def warnings(self) -> list[str]:
        """Warn about a missing package; `setting_problems` reports wrong settings."""
        why = missing_sdk() if any(server.enabled for server in self._settings.values()) else ""
        return [why] if why else []

    def _connect(self, server: ServerConfig) -> None:
        from hermes.mcp.connection import McpConnection, McpConnectionDeps  # noqa: PLC0415 - only with servers

        deps = McpConnectionDeps(
            launch=partial(launch_program, self._parts.sandbox),
            log_stderr=self._write_log,
            redact=self._redact,
            on_tools_changed=self._add_tools,
            acting_tools=self._acting,
        )
        link = McpConnection(server, deps)
        task = self._tasks[server.name] = _ServerTask(link)
        self._parts.toolbox.add_tools((), toolset=server.toolset)
        link.wake()
        self._group.start_soon(task.run)

    def _add_tools(self, link: "McpConnection") -> None:
        from hermes.mcp.tools import ResultReader, server_tools  # noqa: PLC0415 - loaded on first use

        task = self._tasks.get(link.server.name)
        if task is None or task.connection is not link:
            return
        tools = server_tools(link, ResultReader(self._parts.blobs, self._redact))
        self._parts.toolbox.add_tools(tools, toolset=link.server.toolset)
        log.info("MCP server %s: %s", link.server.name, plural(len(tools), "tool"))

    def _redact(self, text: str) -> str:
        return self._extra_redactor.redact(self._parts.redactor.redact(text))

    async def _write_log(self, name: str, text: str) -> None:
        now = f"{self._parts.clock.now():%Y-%m-%d %H:%M:%S}"
        lines = "".join(f"{now} {name}: {line}\n" for line in text.splitlines())
        try:
            await run_sync(self._stderr.append, lines.encode())
        except OSError as error:
            log.warning("cannot write %s: %s", self._stderr.path, error.strerror)

    def states(self) -> list[tuple[str, str]]:
        """Each server's name and status, for people."""
        states = dict(self.errors)
        for name, task in self._tasks.items():
            link = task.connection
            tools = plural(len(link.tools), "tool")
            states[name] = link.state + (f": {link.problem}" if link.problem else f", {tools}")
        return sorted(states.items())

    @property
    def confirms_reload(self) -> bool:
        return self._parts.loaded.config.approvals.mcp_reload_confirm

    async def reload(self) -> str:
        """Reconnect with the current settings; running calls fail."""
        async with self._reloading:
            if self._started:
                await self._loaded.wait()
            return await self._reload()

    async def _reload(self) -> str:
        parts = self._parts
        env = profile_env(parts.home.dotenv, parts.env)
        loaded = await run_sync(load_config, parts.home, env)
        before, self._tasks, self.errors = self._tasks, {}, {}
        async with anyio.create_task_group() as stopping:
            for task in before.values():
                parts.toolbox.remove_toolset(task.connection.server.toolset)
                stopping.start_soon(task.stop)
        parts.toolbox.update_settings(loaded.config)
        self._settings = loaded.config.mcp_servers
        redacts = loaded.config.security.redact_secrets
        self._extra_redactor = Redactor(secrets_in(loaded.raw) if redacts else ())
        self._parts = structs.replace(parts, loaded=loaded, env=env)
        self._loaded, self._started = anyio.Event(), False
        if not self._settings:
            return "No MCP servers are configured."
        await self.wait_ready()
        states = self.states() or [("all", "disabled")]
        return "\n".join(f"{name}: {state}" for name, state in states)


class ConnectionTest(Struct, frozen=True, kw_only=True):
    """The result of connecting once."""

    version: str = ""
    tools: Sequence[ToolSpec] = ()
    error: str = ""  # why it failed


async def test_connection(
    server: ServerConfig, sandbox: Sandbox, redactor: Redactor, home: Home, blobs: Blobs
) -> ConnectionTest:
    """Connect to one server, list its tools and disconnect."""
    if why := missing_sdk() or await run_sync(load_sdk):
        return ConnectionTest(error=why)
    from hermes.mcp.connection import McpConnection, McpConnectionDeps  # noqa: PLC0415 - as above
    from hermes.mcp.tool_list import ActingTools  # noqa: PLC0415 - as above
    from hermes.mcp.tools import ResultReader, server_tools  # noqa: PLC0415 - loaded on first use

    async def ignore_stderr(name: str, text: str) -> None:
        """The last line is part of the error."""

    deps = McpConnectionDeps(
        launch=partial(launch_program, sandbox),
        log_stderr=ignore_stderr,
        redact=redactor.redact,
        on_tools_changed=lambda link: None,
        acting_tools=await run_sync(ActingTools, home.mcp_acting_tools),
    )
    link = McpConnection(server, deps)
    async with background_tasks() as group:
        link.wake()
        settled = link.settled
        group.start_soon(link.run)
        await settled.wait()
        if link.problem:
            return ConnectionTest(error=link.problem)
        reader = ResultReader(blobs, redactor.redact)
        specs = [tool.spec for tool in server_tools(link, reader)]
        return ConnectionTest(version=link.version, tools=specs)
