"""Check that the configured MCP servers and hooks can run, without starting them."""

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


async def check_servers(context: CheckContext) -> list[Finding]:
    servers = {name: one for name, one in context.config.mcp_servers.items() if one.enabled}
    if not servers:
        return []
    if why := missing_sdk():
        message, _, command = why.partition(" Install it: ")
        return [error_finding("mcp", message, command)]
    found = [_finding(context, name, servers) for name in servers]
    problems = [one for one in found if one is not None]
    return problems or [
        ok_finding("mcp", f"{plural(len(servers), 'server')}: hermes mcp test NAME")
    ]


async def check_hooks(context: CheckContext) -> list[Finding]:
    if not context.config.hooks:
        return []
    consents = HookConsents(context.home.shell_hooks)
    found = hook_problems(context.config, context.env, consents)
    problems = [warning_finding("hooks", one, "hermes hooks doctor") for one in found]
    return problems or [ok_finding("hooks", "all can run")]


def _finding(context: CheckContext, name: str, servers: Mapping[str, McpServer]) -> Finding | None:
    try:
        folders = ServerFolders(context.env, context.home.path, str(Path.cwd()))
        endpoint = server_config(name, servers[name], folders, servers).endpoint
    except ConfigError as error:
        return finding_of_error("mcp", error)
    if not isinstance(endpoint, StdioEndpoint):
        return None
    command = endpoint.argv[0]
    # A relative path starts from the server's working directory.
    program = str(Path(endpoint.cwd, command)) if "/" in command else command
    if shutil.which(program, path=endpoint.env.get("PATH")) is None:
        return warning_finding("mcp", f"{name}: {program} is not installed.", "hermes config edit")
    return None
