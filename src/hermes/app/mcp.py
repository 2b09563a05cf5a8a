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
from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.load import Loaded, load_config
from hermes.config.masking import secrets_in
from hermes.kit.clock import Clock
from hermes.kit.redact import Redactor
from hermes.kit.tasks import beside
from hermes.kit.text import one_line, plural
from hermes.ports.blobs import Blobs
from hermes.ports.sandbox import Job, Process, Reach, Sandbox
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.tools import ToolSpec
from hermes.telemetry.rotation import RotatingFile

if TYPE_CHECKING:
    from hermes.mcp.acting import Acting
    from hermes.mcp.link import Link, LinkParts
    from hermes.mcp.server import Program, Server

log = logging.getLogger(__name__)

LOADING = 30.0
"""Seconds that a turn waits at most for the SDK itself, which takes about one."""
LEAVING = 10.0
"""Seconds that a server has to end, asked and then forced, before another takes its place."""
LARGEST_LOG = 1_000_000
_INSTALL = f"{sys.executable} -m pip install 'mcp>=2.3,<3'"


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
async def launched(sandbox: Sandbox, program: "Program") -> AsyncGenerator[Process]:
    """Through the one door. The owner named the program; without `sandbox` no wall holds it."""
    reach = Reach(beyond=True, network=True)
    if program.walled:
        wall = (await sandbox.confinement()).wall
        if not wall:
            raise SandboxError("it is to run in the sandbox, and there is none here")
        reach = Reach(network=True, writable=(program.cwd,), wall=wall)
    job = Job(
        argv=program.argv, cwd=program.cwd, env=program.env, timeout=0, reach=reach, apart=True
    )
    async with sandbox.open(job) as process:
        yield process


class _Kept:
    """A connection in a task of its own, until it is let go."""

    def __init__(self, link: "Link") -> None:
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
        with anyio.move_on_after(LEAVING) as limit:
            await self._ended.wait()
        if limit.cancelled_caught:
            log.warning("MCP server %s has not ended yet", self.link.server.name)


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
        self._links: dict[str, _Kept] = {}
        self._acting: Acting | None = None
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
            for kept in [*self._links.values()]:
                await kept.link.settled.wait()

    async def _load(self) -> None:
        """The SDK takes about a second to load, which nobody else has to wait for."""
        usable, self.troubles = self._looked_at()
        if usable and (why := await run_sync(load_sdk)):
            self.troubles |= {server.name: why for server in usable}
        elif usable:
            from hermes.mcp.acting import Acting  # noqa: PLC0415 - as above

            self._acting = await run_sync(Acting, self._parts.home.acting_tools)
            for server in usable:
                self._connect(server)
        for trouble in dict.fromkeys(self.troubles.values()):
            log.warning("%s", trouble)
        self._until = anyio.current_time() + self._parts.loaded.config.mcp_discovery_timeout
        self._loaded.set()

    def _looked_at(self) -> tuple[list["Server"], dict[str, str]]:
        """The servers that can be tried, and why the others cannot."""
        from hermes.app.server_settings import Ground, server_of  # noqa: PLC0415 - most homes have none

        usable: list[Server] = []
        troubles: dict[str, str] = {}
        parts = self._parts
        may_offer = parts.toolbox.may_offer
        ground = Ground(parts.env, parts.home.path, parts.workspace)
        wanted = {name: one for name, one in self._given.items() if one.enabled and may_offer(name)}
        for name, given in wanted.items():
            try:
                server = server_of(name, given, ground, wanted)
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

        link = Link(server, self._link_parts())
        kept = self._links[server.name] = _Kept(link)
        self._parts.toolbox.join((), toolset=server.name)
        link.wake()
        self._group.start_soon(kept.run)

    def _link_parts(self) -> "LinkParts":
        from hermes.mcp.link import LinkParts  # noqa: PLC0415 - as above

        return LinkParts(
            launch=partial(launched, self._parts.toolbox.sandboxes.near),
            log=self._write_log,
            redact=self._redact,
            listed=self._listed,
            acting=self._acting,
        )

    def _listed(self, link: "Link") -> None:
        from hermes.mcp.results import Reading  # noqa: PLC0415 - as above
        from hermes.mcp.tools import tools_of  # noqa: PLC0415 - as above

        kept = self._links.get(link.server.name)
        if kept is None or kept.link is not link:
            return
        tools = tools_of(link, Reading(self._parts.blobs, self._redact))
        self._parts.toolbox.join(tools, toolset=link.server.name)
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
        before, self._links, self.troubles = self._links, {}, {}
        async with anyio.create_task_group() as leaving:
            for name, kept in before.items():
                parts.toolbox.leave(name)
                leaving.start_soon(kept.let_go)
        parts.toolbox.take_up(loaded.config)
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


async def tried(server: "Server", sandbox: Sandbox, redactor: Redactor, home: Home) -> Trial:
    """Connect to one server, look at what it has, and leave it."""
    if why := missing_sdk() or await run_sync(load_sdk):
        return Trial(trouble=why)
    from hermes.mcp.acting import Acting  # noqa: PLC0415 - as above
    from hermes.mcp.link import Link, LinkParts  # noqa: PLC0415 - as above
    from hermes.mcp.results import Reading  # noqa: PLC0415 - as above
    from hermes.mcp.tools import tools_of  # noqa: PLC0415 - as above
    from hermes.store.blobs import FileBlobs  # noqa: PLC0415 - as above

    async def unheard(name: str, text: str) -> None:
        """The last line is told with the failure."""

    parts = LinkParts(
        launch=partial(launched, sandbox),
        log=unheard,
        redact=redactor.redact,
        listed=lambda link: None,
        acting=await run_sync(Acting, home.acting_tools),
    )
    link = Link(server, parts)
    async with beside() as group:
        link.wake()
        settled = link.settled
        group.start_soon(link.run)
        await settled.wait()
        if link.trouble:
            return Trial(trouble=link.trouble)
        reading = Reading(FileBlobs(home.cache / "blobs"), redactor.redact)
        specs = [one.spec for one in tools_of(link, reading)]
        return Trial(version=link.version, tools=specs)
