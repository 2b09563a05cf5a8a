"""The MCP servers of a profile; their code is loaded with the first server."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from hermes.app.plugins import ProfileBase
from hermes.app.toolbox import Toolbox, reserved_toolsets
from hermes.logs import RotatingFile

if TYPE_CHECKING:
    from hermes.mcp.servers import McpServers

MAX_LOG_BYTES = 1_000_000


class McpService:
    """Implements the service of `/reload-mcp`."""

    def __init__(
        self, build: Callable[[], "McpServers"], stderr: RotatingFile, *, confirms_reload: bool
    ) -> None:
        self._build = build
        self._stderr = stderr
        self._servers: McpServers | None = None
        self._confirms_reload = confirms_reload

    @property
    def confirms_reload(self) -> bool:
        servers = self._servers
        return self._confirms_reload if servers is None else servers.confirms_reload

    def load(self) -> "McpServers":
        """Load the code; nothing is connected before the first turn."""
        if self._servers is None:
            self._servers = self._build()
        return self._servers

    def start(self) -> None:
        """Connect before the first turn, if there are servers."""
        if self._servers is not None:
            self._servers.start()

    def close(self) -> None:
        """Close the log of the servers, once their tasks have ended."""
        self._stderr.close()

    async def wait_ready(self) -> None:
        """Wait before a plan, until fast servers are connected."""
        if self._servers is not None:
            await self._servers.wait_ready()

    def warnings(self) -> list[str]:
        return self._servers.warnings() if self._servers is not None else []

    def states(self) -> list[tuple[str, str]]:
        """Each server's name and status, for people."""
        return self._servers.states() if self._servers is not None else []

    def status(self) -> str:
        return "; ".join(f"{name} {state}" for name, state in self.states())

    async def reload(self) -> str:
        """Reconnect with the current settings; running calls fail."""
        return await self.load().reload()


def build_mcp(
    base: ProfileBase, toolbox: Toolbox, *, workspace: str, tasks: TaskGroup
) -> McpService:
    """The servers are loaded if the settings name any; their tasks belong to the profile."""
    stderr = RotatingFile(base.home.logs / "mcp-stderr.log", MAX_LOG_BYTES, 1)

    def build() -> "McpServers":
        from hermes.mcp.servers import McpDeps, McpServers  # noqa: PLC0415 - only with servers

        deps = McpDeps(
            home=base.home,
            env=base.env,
            loaded=base.loaded,
            toolbox=toolbox,
            sandbox=toolbox.sandboxes.local,
            reserved=reserved_toolsets(),
            blobs=base.blobs,
            clock=base.clock,
            redactor=base.redactor,
            workspace=workspace,
        )
        return McpServers(deps, tasks, stderr)

    confirms = base.config.approvals.mcp_reload_confirm
    service = McpService(build, stderr, confirms_reload=confirms)
    if base.config.mcp_servers:
        service.load()
    return service
