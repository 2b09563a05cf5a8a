"""Check the sandbox by running a command in it, and the programs that tools need."""

from collections.abc import Mapping
from pathlib import Path

import anyio

from hermes.app.toolbox import reserved_toolsets
from hermes.cli.verbs.doctor.finding import CheckContext, Finding
from hermes.cli.verbs.hooks import hook_problems
from hermes.config.env import DEFAULT_PATH
from hermes.config.sections.execution import McpServer
from hermes.hooks.shell import HookConsents
from hermes.kit.text import plural
from hermes.mcp.server_config import StdioEndpoint
from hermes.mcp.servers import missing_sdk
from hermes.mcp.settings import ServerContext, missing_program, server_config
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.sandbox.backends import backend_on, unsupported_reason
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes, ssh_sandbox
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.sandbox.strongest_sandbox import (
    APPROVAL_REQUIRED,
    COMMANDS_REFUSED,
    NO_SANDBOX,
    PARTIAL_NOTE,
    WEAKER_NOTE,
)
from hermes.schema.errors import ConfigError, SandboxError
from hermes.tools.search.ripgrep import find_rg

_INSTALL = "Reinstall Hermes with `make install`, which includes bubblewrap; see docs/sandbox.md."

_PROBED = ("sandbox docker:", "sandbox ssh:")
"""Placeholders, replaced by the results of the probes."""
_USE_AUTO = "hermes config set terminal.backend auto"
_DOCKER_FIX = f"{_USE_AUTO}   (or fix docker: docker info)"
PROBE_TIMEOUT = 5.0
_RETRY_HINT = "hermes doctor   (tries again; docs/sandbox.md lists what bubblewrap needs)"

_NO_SANDBOX_HINT = "to run without a sandbox: hermes config set terminal.backend local"


async def check_sandbox(context: CheckContext) -> list[Finding]:
    terminal = context.config.terminal
    if why := unsupported_reason(backend_on(terminal, "cli")):
        return [Finding.error("sandbox", f"{why}.", _USE_AUTO)]
    with Spawner() as spawner:
        parts = SandboxDeps(context.home, context.env, terminal, spawner, context.clock)
        try:
            lines = await Sandboxes(parts).check()
        except SandboxError as error:
            return [Finding.error("sandbox", str(error), error.hint or _INSTALL)]
        lines = [line for line in lines if not line.startswith(_PROBED)]
        findings = [finding_of_line(line) for line in lines]
        wanted = {terminal.backend, *terminal.backend_by_platform.values()}
        if "docker" in wanted:
            findings.append(await _docker(context, spawner))
        if "ssh" in wanted:
            sandbox = ssh_sandbox(spawner, terminal, context.env)
            findings.append(await _ssh(sandbox, terminal.ssh_host))
    if find_rg(context.env.get("PATH", "")) is None:
        says = "ripgrep is not installed, so file search is slow."
        findings.append(Finding.warning("tools", says, "sudo apt install ripgrep"))
    return findings


async def _ssh(sandbox: Sandbox, host: str) -> Finding:
    """Try to run a command on the remote host."""
    fix = f"{_USE_AUTO}   (or fix ssh: ssh {host or 'HOST'} true)"
    job = ProcessSpec(argv=("true",), cwd="/", env={}, timeout=PROBE_TIMEOUT)
    try:
        done = await sandbox.run(job)
    except SandboxError as error:
        return Finding.error("sandbox", f"ssh: {error}.", error.hint or fix)
    if done.timed_out or done.exit_code:
        says = f"ssh: {host} does not answer, so commands cannot run."
        return Finding.error("sandbox", says, fix)
    return Finding.ok("sandbox", f"ssh: commands run on {host}")


async def _docker(context: CheckContext, spawner: Spawner) -> Finding:
    """Check that the Docker engine answers; the image is not pulled."""
    argv = ("docker", "version", "--format={{.Server.Version}}")
    path = context.env.get("PATH", DEFAULT_PATH)
    start = SpawnRequest(argv=argv, cwd="/", env={"PATH": path}, label="docker")
    try:
        with anyio.fail_after(PROBE_TIMEOUT):
            async with spawner.open(start) as child:
                while await child.read():
                    pass
                answers = (await child.wait()).exit_code == 0
                problem = "" if answers else "the daemon does not answer"
    except SandboxError:
        problem = "not installed"
    except TimeoutError:
        problem = "the daemon does not answer"
    if problem:
        says = f"docker: {problem}, so commands cannot run."
        return Finding.error("sandbox", says, _DOCKER_FIX)
    return Finding.ok("sandbox", "docker: commands run in a container")


def finding_of_line(line: str) -> Finding:
    text = line.removeprefix("sandbox ")
    if COMMANDS_REFUSED in text:
        return Finding.error("sandbox", text, f"{_USE_AUTO}   ({_INSTALL})")
    again = _INSTALL if "not installed" in text else _RETRY_HINT
    advice = {
        APPROVAL_REQUIRED: f"{_RETRY_HINT}; {_NO_SANDBOX_HINT}",
        NO_SANDBOX: _INSTALL,
        WEAKER_NOTE: again,
        PARTIAL_NOTE: f"{_USE_AUTO}   (tries bubblewrap first)",
        "none: commands run as you": _USE_AUTO,
    }
    fix = next((fix for sign, fix in advice.items() if sign in text), "")
    return Finding.warning("sandbox", text, fix) if fix else Finding.ok("sandbox", text)


async def check_servers(context: CheckContext) -> list[Finding]:
    servers = {
        name: server for name, server in context.config.mcp_servers.items() if server.enabled
    }
    if not servers:
        return []
    if why := missing_sdk():
        message, _, command = why.partition(" Install it: ")
        return [Finding.error("mcp", message, command)]
    found = [_server_finding(context, name, servers) for name in servers]
    ok = Finding.ok("mcp", f"{plural(len(servers), 'server')}: hermes mcp test NAME")
    return [one for one in found if one is not None] or [ok]


async def check_hooks(context: CheckContext) -> list[Finding]:
    if not context.config.hooks:
        return []
    consents = HookConsents(context.home.shell_hooks)
    found = hook_problems(context.config, context.env, consents)
    problems = [Finding.warning("hooks", one, "hermes hooks doctor") for one in found]
    return problems or [Finding.ok("hooks", "all can run")]


def _server_finding(
    context: CheckContext, name: str, servers: Mapping[str, McpServer]
) -> Finding | None:
    try:
        checks = ServerContext(context.env, context.home.path, str(Path.cwd()), reserved_toolsets())
        endpoint = server_config(name, servers[name], checks, servers).endpoint
    except ConfigError as error:
        return Finding.from_error("mcp", error)
    if not isinstance(endpoint, StdioEndpoint):
        return None
    if program := missing_program(endpoint):
        return Finding.warning("mcp", f"{name}: {program} is not installed.", "hermes config edit")
    return None
