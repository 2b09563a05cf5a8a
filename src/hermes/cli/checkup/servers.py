"""Whether the MCP servers and hooks of the settings could be run; none is started for it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from hermes.app.hook_consent import Consents
from hermes.app.mcp import missing_sdk
from hermes.app.server_settings import Ground, server_of
from hermes.cli.checkup.finding import Finding, Patient, odd, told, well, wrong
from hermes.cli.hooking import hook_troubles
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


async def check_hooks(patient: Patient) -> list[Finding]:
    if not patient.config.hooks:
        return []
    consents = Consents(patient.home.shell_hooks)
    found = hook_troubles(patient.config, patient.env, consents)
    troubles = [odd("hooks", one, "hermes hooks doctor") for one in found]
    return troubles or [well("hooks", "they can be run")]


def _finding(patient: Patient, name: str, servers: Mapping[str, McpServer]) -> Finding | None:
    try:
        ground = Ground(patient.env, patient.home.path, str(Path.cwd()))
        way = server_of(name, servers[name], ground, servers).way
    except ConfigError as error:
        return told("mcp", error)
    if not isinstance(way, Program):
        return None
    command = way.argv[0]
    # A path is taken from the folder that it is started in.
    started = str(Path(way.cwd, command)) if "/" in command else command
    if shutil.which(started, path=way.env.get("PATH")) is None:
        return odd("mcp", f"{name}: {started} is not installed.", "hermes config edit")
    return None
