"""Whether the MCP servers of the settings could be connected; none is started for it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from hermes.app.mcp import missing_sdk
from hermes.app.server_settings import Ground, server_of
from hermes.cli.checkup.finding import Finding, Patient, odd, told, well, wrong
from hermes.config.sections.work import McpServer
from hermes.kit.text import plural
from hermes.mcp.server import Program
from hermes.schema.errors import ConfigError


async def check_servers(patient: Patient) -> list[Finding]:
    servers = {name: one for name, one in patient.config.mcp_servers.items() if one.enabled}
    if not servers:
        return []
    if why := missing_sdk():
        said, _, command = why.partition(" Install it: ")
        return [wrong("mcp", said, command)]
    found = [_finding(patient, name, servers) for name in servers]
    troubles = [one for one in found if one is not None]
    return troubles or [well("mcp", f"{plural(len(servers), 'server')}: hermes mcp test NAME")]


def _finding(patient: Patient, name: str, servers: Mapping[str, McpServer]) -> Finding | None:
    try:
        ground = Ground(patient.env, patient.home.path, str(Path.cwd()))
        way = server_of(name, servers[name], ground, servers).way
    except ConfigError as error:
        return told("mcp", error)
    if not isinstance(way, Program):
        return None
    if shutil.which(way.argv[0], path=way.env.get("PATH")) is None:
        return odd("mcp", f"{name}: {way.argv[0]} is not installed.", "hermes config edit")
    return None
