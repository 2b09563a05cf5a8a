"""Check the sandbox by running a command in it, and the programs that tools need."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio

from hermes.app.mcp_servers import missing_sdk
from hermes.app.mcp_settings import ServerFolders, server_config
from hermes.app.sandbox_selection import (
    APPROVAL_REQUIRED,
    COMMANDS_REFUSED,
    NO_SANDBOX,
    PARTIAL_NOTE,
    WEAKER_NOTE,
)
from hermes.app.sandboxes import SandboxDeps, Sandboxes, backend_on, ssh_sandbox, unsupported_reason
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
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.sandbox.child_env import DEFAULT_PATH
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.errors import ConfigError, SandboxError
from hermes.tools.search.ripgrep import find_rg

_INSTALL = "Install bubblewrap (sudo apt install bubblewrap); see docs/sandbox.md."

_PROBED = ("sandbox docker:", "sandbox ssh:")
"""Lines that are replaced by the result of a probe."""
_DOCKER_FIX = "hermes config set terminal.backend auto   (or fix docker: docker info)"
PROBE_TIMEOUT = 5.0
_RETRY_HINT = "hermes doctor   (tries again; docs/sandbox.md lists what bubblewrap needs)"

_NO_SANDBOX_HINT = "to run without a sandbox: hermes config set terminal.backend local"


async def check_sandbox(context: CheckContext) -> list[Finding]:
    terminal = context.config.terminal
    if why := unsupported_reason(backend_on(terminal, "cli")):
        return [error_finding("sandbox", f"{why}.", "hermes config set terminal.backend auto")]
    with Spawner() as spawner:
        parts = SandboxDeps(context.home, context.env, terminal, spawner, context.clock)
        try:
            lines = await Sandboxes(parts).check()
        except SandboxError as error:
            return [error_finding("sandbox", str(error), error.hint or _INSTALL)]
        lines = [one for one in lines if not one.startswith(_PROBED)]
        findings = [finding_of_line(one) for one in lines]
        wanted = {terminal.backend, *terminal.backend_by_platform.values()}
        if "docker" in wanted:
            findings.append(await _docker(context, spawner))
        if "ssh" in wanted:
            findings.append(
                await _ssh(ssh_sandbox(spawner, terminal, context.env), terminal.ssh_host)
            )
    return [*findings, *_search(context)]


async def _ssh(sandbox: Sandbox, host: str) -> Finding:
    """Try to run a command on the remote host."""
    fix = f"hermes config set terminal.backend auto   (or fix ssh: ssh {host or 'HOST'} true)"
    job = ProcessSpec(argv=("true",), cwd="/", env={}, timeout=PROBE_TIMEOUT)
    try:
        done = await sandbox.run(job)
    except SandboxError as error:
        return error_finding("sandbox", f"ssh: {error}.", error.hint or fix)
    if done.timed_out or done.exit_code:
        return error_finding(
            "sandbox", f"ssh: {host} does not answer, so commands cannot run.", fix
        )
    return ok_finding("sandbox", f"ssh: commands run on {host}")


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
    except SandboxError:
        return error_finding(
            "sandbox", "docker: not installed, so commands cannot run.", _DOCKER_FIX
        )
    except TimeoutError:
        answers = False
    if not answers:
        return error_finding(
            "sandbox", "docker: the engine does not answer, so commands cannot run.", _DOCKER_FIX
        )
    return ok_finding("sandbox", "docker: commands run in a container")


def finding_of_line(line: str) -> Finding:
    text = line.removeprefix("sandbox ")
    if COMMANDS_REFUSED in text:
        return error_finding(
            "sandbox", text, f"hermes config set terminal.backend auto   ({_INSTALL})"
        )
    again = _INSTALL if "not installed" in text else _RETRY_HINT
    advice = {
        APPROVAL_REQUIRED: f"{_RETRY_HINT}; {_NO_SANDBOX_HINT}",
        NO_SANDBOX: _INSTALL,
        WEAKER_NOTE: again,
        PARTIAL_NOTE: "hermes config set terminal.backend auto   (tries bubblewrap first)",
        "none: commands run as you": "hermes config set terminal.backend auto",
    }
    fix = next((fix for sign, fix in advice.items() if sign in text), "")
    return warning_finding("sandbox", text, fix) if fix else ok_finding("sandbox", text)


def _search(context: CheckContext) -> Iterator[Finding]:
    if find_rg(context.env.get("PATH", "")) is None:
        yield warning_finding(
            "tools", "ripgrep is not installed, so file search is slow.", "sudo apt install ripgrep"
        )


async def check_servers(context: CheckContext) -> list[Finding]:
    servers = {name: one for name, one in context.config.mcp_servers.items() if one.enabled}
    if not servers:
        return []
    if why := missing_sdk():
        message, _, command = why.partition(" Install it: ")
        return [error_finding("mcp", message, command)]
    found = [_server_finding(context, name, servers) for name in servers]
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


def _server_finding(
    context: CheckContext, name: str, servers: Mapping[str, McpServer]
) -> Finding | None:
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
