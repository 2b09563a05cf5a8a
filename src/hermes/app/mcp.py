"""The MCP servers of a profile: settings become connections, and those become tools.

Nothing is loaded or started before the first turn, and nothing at all where there is no server.
"""

import logging
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.app.planner import StandardPlanner
from hermes.app.toolbox import NO_MCP, Toolbox
from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.load import Loaded, load_config
from hermes.config.masking import secrets_in
from hermes.config.sections.work import McpServer
from hermes.kit.clock import Clock
from hermes.kit.outside import parsed
from hermes.kit.redact import Redactor
from hermes.kit.tasks import beside
from hermes.kit.text import plural
from hermes.ports.blobs import Blobs
from hermes.ports.sandbox import Job, Process, Reach, Sandbox
from hermes.sandbox.child_env import bare_env
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.tools import ToolSpec
from hermes.telemetry.rotation import RotatingFile
from hermes.tools.toolsets import known_toolsets

if TYPE_CHECKING:
    from hermes.mcp.link import Link, Near
    from hermes.mcp.server import Program, Server, Way

log = logging.getLogger(__name__)

LOADING = 30.0
"""Seconds that a turn waits at most for the SDK itself, which takes about one."""
LARGEST_LOG = 1_000_000
_INSTALL = f"{sys.executable} -m pip install 'mcp>=2.3,<3'"
TRANSPORTS = ("", "stdio", "http", "streamable_http", "streamable-http", "sse")


class ServerParts(Struct, frozen=True, kw_only=True):
    """What of a profile its servers need; `early` connects them before the first turn."""

    home: Home
    env: Env
    loaded: Loaded
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


def _load_sdk() -> str:
    """In a thread, because it takes so long. Returns why it cannot be used."""
    try:
        import_module("hermes.mcp.tools")
    except ImportError as error:
        return f"MCP servers cannot be used: {error}. Install it anew: {_INSTALL}"
    return ""


def server_of(name: str, given: McpServer, env: Env, workspace: str) -> "Server":
    """Raises `ConfigError` that says what is wrong with it, and what to do."""
    from hermes.mcp.server import NAME, Server  # noqa: PLC0415 - most homes have no server

    if not NAME.fullmatch(name):
        raise _wrong(name, "its name may have up to 32 letters, digits, dots, lines and dashes")
    if name in {*known_toolsets(), NO_MCP}:
        raise _wrong(name, "that is the name of a toolset already")
    if given.timeout <= 0 or given.connect_timeout <= 0:
        raise _wrong(name, "timeout and connect_timeout are seconds, more than 0")
    return Server(
        name=name,
        way=_way(name, given, env, workspace),
        timeout=given.timeout,
        connect=given.connect_timeout,
        idle=given.idle_timeout_seconds,
        lifetime=given.max_lifetime_seconds,
        include=given.tools.include,
        exclude=given.tools.exclude,
        parallel=given.supports_parallel_tool_calls,
        resources=given.tools.resources,
        prompts=given.tools.prompts,
    )


def _way(name: str, given: McpServer, env: Env, workspace: str) -> "Way":
    from hermes.mcp.server import Program, Site  # noqa: PLC0415 - as above

    if bool(given.command) == bool(given.url):
        raise _wrong(name, "it has a command to start, or a url to call: one of the two")
    if given.transport not in TRANSPORTS:
        raise _wrong(name, f"there is no transport {given.transport!r}, only http and sse")
    _check_variables(name, given)
    if given.command:
        home = user_home(env)
        command, *_ = words = _from_home((given.command, *given.args), home)
        if not command.strip() or any("\0" in word for word in words):
            raise _wrong(name, "its command cannot be run")
        folder = Path(workspace, *_from_home([given.cwd], home)) if given.cwd else Path(workspace)
        variables = {**bare_env(env), **given.env}
        return Program(argv=tuple(words), cwd=str(folder), env=variables, walled=given.sandbox)
    if parsed(given.url) is None:
        raise _wrong(name, "its url is no address over http or https without a password in it")
    if given.auth:
        raise _wrong(name, f"auth: {given.auth} is not known here; put a token into its headers")
    if any("\n" in one or not one.isascii() for pair in given.headers.items() for one in pair):
        raise _wrong(name, "its headers have letters that no header has")
    return Site(url=given.url, headers=given.headers, events=given.transport == "sse")


def _check_variables(name: str, given: McpServer) -> None:
    texts = [given.command, *given.args, given.url, *given.env.values(), *given.headers.values()]
    for text in texts:
        if "${" in text:
            variable = text.partition("${")[2].partition("}")[0]
            mend = f"Set it: hermes config set {variable} VALUE"
            raise _wrong(name, f"the variable {variable} is not set", mend)


def _from_home(words: Iterable[str], home: Path) -> list[str]:
    return [f"{home}{word[1:]}" if word.startswith("~/") else word for word in words]


def _wrong(name: str, why: str, hint: str = "Correct it: hermes config edit") -> ConfigError:
    return ConfigError(f"The MCP server {name!r} cannot be used: {why}.", hint=hint)


def launched(sandbox: Sandbox, program: "Program") -> AbstractAsyncContextManager[Process]:
    """Through the one door. The owner named the program; without `sandbox` no wall holds it."""
    if program.walled and not sandbox.wall:
        raise SandboxError("it is to run in the sandbox, and there is none here")
    near = Reach(network=True, writable=(program.cwd,))
    return sandbox.open(
        Job(
            argv=program.argv,
            cwd=program.cwd,
            env=program.env,
            timeout=0,
            reach=near if program.walled else Reach(beyond=True, network=True),
            apart=True,
        )
    )


class Servers:
    """All of a profile's. Connected with the first plan, and then kept by their own tasks."""

    def __init__(self, parts: ServerParts, group: TaskGroup, stderr: RotatingFile) -> None:
        self._parts = parts
        self._group = group
        self._stderr = stderr
        self._given = parts.loaded.config.mcp_servers
        self._masks = Redactor()
        """What came with settings that were read again."""
        self._reloading = anyio.Lock()
        self._links: dict[str, tuple[Link, anyio.CancelScope]] = {}
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
        with anyio.move_on_after(LOADING):
            await self._loaded.wait()
        with anyio.CancelScope(deadline=self._until):
            for link, _ in [*self._links.values()]:
                await link.settled.wait()

    async def _load(self) -> None:
        """The SDK takes about a second to load, which nobody else has to wait for."""
        usable, self.troubles = self._looked_at()
        if usable and (why := await run_sync(_load_sdk)):
            self.troubles |= {server.name: why for server in usable}
        else:
            for server in usable:
                self._connect(server)
        for trouble in dict.fromkeys(self.troubles.values()):
            log.warning("%s", trouble)
        self._until = anyio.current_time() + self._parts.loaded.config.mcp_discovery_timeout
        self._loaded.set()

    def _looked_at(self) -> tuple[list["Server"], dict[str, str]]:
        """The servers that can be tried, and why the others cannot."""
        usable: list[Server] = []
        troubles: dict[str, str] = {}
        for name, given in self._given.items():
            if not given.enabled or not self._parts.toolbox.may_offer(name):
                continue
            try:
                server = server_of(name, given, self._parts.env, self._parts.workspace)
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

    def _connect(self, server: "Server") -> None:
        from hermes.mcp.link import Link  # noqa: PLC0415 - most homes have no server

        link = Link(server, self._near())
        scope = anyio.CancelScope()
        self._links[server.name] = link, scope
        self._parts.toolbox.join((), server.name)
        link.wake()
        self._group.start_soon(self._keep, link, scope)

    async def _keep(self, link: "Link", scope: anyio.CancelScope) -> None:
        with scope:
            await link.run()

    def _near(self) -> "Near":
        from hermes.mcp.link import Near  # noqa: PLC0415 - as above

        return Near(
            launch=partial(launched, self._parts.toolbox.sandboxes.near),
            log=self._write_log,
            redact=self._redact,
            listed=self._listed,
        )

    def _listed(self, link: "Link") -> None:
        from hermes.mcp.results import Reading  # noqa: PLC0415 - as above
        from hermes.mcp.tools import tools_of  # noqa: PLC0415 - as above

        tools = tools_of(link, Reading(self._parts.blobs, self._redact))
        self._parts.toolbox.join(tools, link.server.name)
        log.info("MCP server %s: %s", link.server.name, plural(len(tools), "tool"))

    def _redact(self, text: str) -> str:
        return self._masks.redact(self._parts.redactor.redact(text))

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
        for name, (link, _) in self._links.items():
            tools = plural(len(link.tools), "tool")
            told[name] = (
                f"{link.state}: {link.trouble}" if link.trouble else f"{link.state}, {tools}"
            )
        return sorted(told.items())

    def status(self) -> str:
        return "; ".join(f"{name} {state}" for name, state in self.states())

    @property
    def confirms(self) -> bool:
        return self._parts.loaded.config.approvals.mcp_reload_confirm

    async def reload(self) -> str:
        """Calls that run are lost, and whoever waits for them is told so."""
        async with self._reloading:
            if self._begun:
                await self._loaded.wait()
            return await self._reload()

    async def _reload(self) -> str:
        parts = self._parts
        env = env_of(parts.home.dotenv, parts.env)
        loaded = await run_sync(load_config, parts.home, env)
        for name, (_, scope) in self._links.items():
            scope.cancel()
            parts.toolbox.join((), name)
        self._links, self.troubles = {}, {}
        self._given = loaded.config.mcp_servers
        hides = loaded.config.security.redact_secrets
        self._masks = Redactor(secrets_in(loaded.raw) if hides else ())
        self._parts = structs.replace(parts, loaded=loaded, env=env)
        self._loaded, self._begun = anyio.Event(), False
        if not self._given:
            return "There are no MCP servers in the settings."
        await self.ready()
        states = self.states() or [("all", "switched off")]
        return "\n".join(f"{name}: {state}" for name, state in states)


@asynccontextmanager
async def open_servers(parts: ServerParts, planner: StandardPlanner) -> AsyncGenerator[Servers]:
    """For as long as a profile is open; leaving the block ends what was started."""
    stderr = RotatingFile(parts.home.logs / "mcp-stderr.log", LARGEST_LOG, 1)
    with closing(stderr):
        async with beside() as group:
            servers = Servers(parts, group, stderr)
            planner.waits_for(servers.ready)
            if parts.early:
                servers.begin()
            yield servers


class Trial(Struct, frozen=True, kw_only=True):
    """What came of connecting once; `trouble` says why nothing did."""

    version: str = ""
    tools: Sequence[ToolSpec] = ()
    trouble: str = ""


async def tried(server: "Server", sandbox: Sandbox, redactor: Redactor) -> Trial:
    """Connect to one server, look at what it has, and leave it."""
    if why := missing_sdk() or await run_sync(_load_sdk):
        return Trial(trouble=why)
    from hermes.mcp.link import Link, Near  # noqa: PLC0415 - as above
    from hermes.mcp.listing import specs_of  # noqa: PLC0415 - as above

    async def unheard(name: str, text: str) -> None:
        """The last line is told with the failure."""

    near = Near(
        launch=partial(launched, sandbox),
        log=unheard,
        redact=redactor.redact,
        listed=lambda link: None,
    )
    link = Link(server, near)
    async with beside() as group:
        link.wake()
        settled = link.settled
        group.start_soon(link.run)
        await settled.wait()
        if link.trouble:
            return Trial(trouble=link.trouble)
        specs = [spec for _, spec in specs_of(server, link.tools).values()]
        return Trial(version=link.version, tools=specs)
