"""The MCP servers of a profile; their code is loaded with the first server."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from hermes.app.plugins import ProfileBase
from hermes.app.toolbox import Toolbox, reserved_toolsets
from hermes.logs import RotatingFile

if TYPE_CHECKING:
    from hermes.mcp.servers import McpServers
    from hermes.sandbox.sandboxes import Sandboxes

MAX_LOG_BYTES = 1_000_000


class McpService:
    """Implements the service of `/reload-mcp`."""

    def __init__(
        self,
        base: ProfileBase,
        *,
        toolbox: Toolbox,
        sandboxes: Callable[[], "Sandboxes"],
        workspace: str,
        tasks: TaskGroup,
    ) -> None:
        """The servers are loaded if the settings name any; their tasks belong to the profile."""
        self._base = base
        self._toolbox = toolbox
        self._sandboxes = sandboxes
        self._workspace = workspace
        self._tasks = tasks
        self._stderr: RotatingFile | None = None
        self._servers: McpServers | None = None
        if base.config.mcp_servers:
            self.load()

    @property
    def confirms_reload(self) -> bool:
        servers = self._servers
        if servers is None:
            return self._base.config.approvals.mcp_reload_confirm
        return servers.confirms_reload

    def load(self) -> "McpServers":
        """Load the code; nothing is connected before the first turn."""
        if self._servers is None:
            from hermes.mcp.servers import McpDeps, McpServers  # noqa: PLC0415 - only with servers

            base = self._base
            deps = McpDeps(
                home=base.home,
                env=base.env,
                loaded=base.loaded,
                toolbox=self._toolbox,
                sandbox=self._sandboxes().local,
                reserved=reserved_toolsets(),
                blobs=base.blobs,
                clock=base.clock,
                redactor=base.redactor,
                workspace=self._workspace,
            )
            log = base.home.logs / "mcp-stderr.log"
            self._stderr = RotatingFile(log, MAX_LOG_BYTES, 1)
            self._servers = McpServers(deps, self._tasks, self._stderr)
        return self._servers

    def start(self) -> None:
        """Connect before the first turn, if there are servers."""
        if self._servers is not None:
            self._servers.start()

    def close(self) -> None:
        """Close the log of the servers, once their tasks have ended."""
        if self._stderr is not None:
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
