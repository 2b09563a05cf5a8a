"""The MCP servers in a profile's settings: list, add, remove and try them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hermes.app.storage import open_blobs
from hermes.app.toolbox import reserved_toolsets
from hermes.config.editor import EditResult, set_setting, unset_setting
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import LoadedConfig, expand_references, load_config
from hermes.config.sections.execution import McpServer
from hermes.config.values import format_path
from hermes.config.variables import is_secret_name, secret_values, secrets_in
from hermes.kit.clock import SystemClock
from hermes.kit.redact import MASK, Redactor
from hermes.kit.text import did_you_mean, one_line
from hermes.mcp.server_config import StdioEndpoint
from hermes.mcp.settings import ServerContext, missing_program, server_config
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ConfigError, NotFound, UsageError

if TYPE_CHECKING:
    from hermes.mcp.servers import ConnectionTest

MAX_ADDRESS = 200


class ServerRow(Struct, frozen=True, kw_only=True):
    """A server for people; secrets in its address are masked."""

    name: str
    state: str
    where: str = ""
    trouble: str = ""


class McpSettings:
    """`folder` is what relative paths are relative to."""

    def __init__(self, home: Home, env: Env, loaded: LoadedConfig, folder: str) -> None:
        self._home = home
        self._env = env
        self._loaded = loaded
        self._checks = ServerContext(env, home.path, folder, reserved_toolsets())
        self.servers: Mapping[str, McpServer] = loaded.config.mcp_servers

    def get(self, name: str) -> McpServer:
        """Raises `NotFound`."""
        if name not in self.servers:
            near = did_you_mean(name, self.servers)
            hint = near or "List the servers: hermes mcp list"
            raise NotFound(f"Unknown MCP server: {name!r}.", hint=hint)
        return self.servers[name]

    def rows(self) -> list[ServerRow]:
        return [self._row(name, server) for name, server in sorted(self.servers.items())]

    def add(self, name: str, fields: Mapping[str, object]) -> EditResult:
        """Add or replace a server. Raises `UsageError` if it could not be used."""
        self._check(name, fields)
        return self._set(name, fields)

    def trouble(self, name: str) -> str:
        """Return what a server lacks on this machine, and what to do; empty if nothing."""
        from hermes.mcp.servers import missing_sdk  # noqa: PLC0415 - few calls need it

        try:
            endpoint = server_config(name, self.get(name), self._checks).endpoint
        except ConfigError:  # such as a variable that is not set yet
            return missing_sdk()
        program = missing_program(endpoint) if isinstance(endpoint, StdioEndpoint) else ""
        return missing_sdk() or (program and f"{program} is not installed.")

    def enable(self, name: str, *, enabled: bool) -> EditResult:
        self.get(name)
        path = format_path(("mcp_servers", name, "enabled"))
        return set_setting(self._home, self._env, path, "true" if enabled else "false")

    def remove(self, name: str) -> None:
        self.get(name)
        unset_setting(self._home, self._env, format_path(("mcp_servers", name)))

    async def test(self, name: str) -> "ConnectionTest":
        """Connect once, list the tools, and disconnect. Raises `ConfigError`."""
        from hermes.mcp.servers import test_connection  # noqa: PLC0415 - few calls need it

        server = server_config(name, self.get(name), self._checks)
        with Spawner() as spawner:
            terminal = self._loaded.config.terminal
            deps = SandboxDeps(self._home, self._env, terminal, spawner, SystemClock())
            sandbox, blobs = Sandboxes(deps).local, open_blobs(self._home)
            return await test_connection(server, sandbox, self._redactor(), self._home, blobs)

    def _row(self, name: str, settings: McpServer) -> ServerRow:
        try:
            server = server_config(name, settings, self._checks, self.servers)
        except ConfigError as error:
            return ServerRow(name=name, state="wrong", trouble=str(error))
        off = not settings.enabled or name in self._loaded.config.agent.disabled_toolsets
        where = self._redactor().redact(self._configured_command(name) or server.address)
        return ServerRow(
            name=name, state="off" if off else "on", where=one_line(where, MAX_ADDRESS)
        )

    def _redactor(self) -> Redactor:
        return Redactor([*secrets_in(self._loaded.raw), *secret_values(self._env)])

    def _configured_command(self, name: str) -> str:
        """The command from the file: variables unexpanded and secrets masked."""
        settings = load_config(self._home, {}).config.mcp_servers.get(name, McpServer())
        shown: list[str] = []
        is_secret = False
        for word in (settings.command, *settings.args):
            flag, sign, _ = word.partition("=")
            if is_secret or (sign and is_secret_name(flag.lstrip("-"))):
                shown.append(MASK if is_secret else f"{flag}={MASK}")
            else:
                shown.append(word)
            is_secret = (
                not is_secret
                and not sign
                and word.startswith("-")
                and is_secret_name(word.lstrip("-"))
            )
        return " ".join(shown)

    def _check(self, name: str, fields: Mapping[str, object]) -> None:
        """Validate the server; variables may still be unset."""
        unset: dict[str, str] = {}
        now = {key: value for key, value in fields.items() if key not in {"headers", "env"}}
        if str(now.get("url", "")).startswith("${"):
            now["url"] = "http://later"
        now = expand_references(
            now, self._env, lambda _, variable: unset.update({variable: "later"}), (name,)
        )
        now = expand_references(now, unset, lambda _, variable: None)
        try:
            names = [*self.servers, name]
            server_config(name, msgspec.convert(now, McpServer), self._checks, names)
        except ConfigError as error:
            raise UsageError(str(error), hint="See: hermes mcp add --help") from error

    def _set(self, name: str, fields: Mapping[str, object]) -> EditResult:
        data = msgspec.json.encode(fields).decode()
        return set_setting(self._home, self._env, format_path(("mcp_servers", name)), data)
