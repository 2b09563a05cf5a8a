"""Whether the MCP servers and hooks of the settings could be run; none is started for it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from hermes.app.mcp_servers import missing_sdk
from hermes.app.mcp_settings import ServerFolders, server_config
from hermes.app.shell_hooks import HookConsents
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    error_finding,
    finding_of_error,
    ok_finding,
    warning_finding,
)
from hermes.cli.verbs.hooks.actions import hook_problems
from hermes.config.sections.execution import McpServer
from hermes.kit.text import plural
from hermes.mcp.server_config import StdioEndpoint
from hermes.schema.errors import ConfigError


async def check_servers(patient: CheckContext) -> list[Finding]:
    servers = {name: one for name, one in patient.config.mcp_servers.items() if one.enabled}
    if not servers:
        return []
    if why := missing_sdk():
        said, _, command = why.partition(" Install it: ")
        return [error_finding("mcp", said, command)]
    found = [_finding(patient, name, servers) for name in servers]
    troubles = [one for one in found if one is not None]
    return troubles or [
        ok_finding("mcp", f"{plural(len(servers), 'server')}: hermes mcp test NAME")
    ]


async def check_hooks(patient: CheckContext) -> list[Finding]:
    if not patient.config.hooks:
        return []
    consents = HookConsents(patient.home.shell_hooks)
    found = hook_problems(patient.config, patient.env, consents)
    troubles = [warning_finding("hooks", one, "hermes hooks doctor") for one in found]
    return troubles or [ok_finding("hooks", "they can be run")]


def _finding(patient: CheckContext, name: str, servers: Mapping[str, McpServer]) -> Finding | None:
    try:
        ground = ServerFolders(patient.env, patient.home.path, str(Path.cwd()))
        way = server_config(name, servers[name], ground, servers).way
    except ConfigError as error:
        return finding_of_error("mcp", error)
    if not isinstance(way, StdioEndpoint):
        return None
    command = way.argv[0]
    # A path is taken from the folder that it is started in.
    started = str(Path(way.cwd, command)) if "/" in command else command
    if shutil.which(started, path=way.env.get("PATH")) is None:
        return warning_finding("mcp", f"{name}: {started} is not installed.", "hermes config edit")
    return None
