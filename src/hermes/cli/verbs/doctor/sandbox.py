"""What holds back the commands of the agent, after a trial, and what they need."""

from collections.abc import Iterator

import anyio

from hermes.app.sandbox_selection import (
    APPROVAL_REQUIRED,
    COMMANDS_REFUSED,
    NO_SANDBOX,
    PARTIAL_NOTE,
    WEAKER_NOTE,
)
from hermes.app.sandboxes import SandboxDeps, Sandboxes, backend_on, ssh_sandbox, unsupported_reason
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    error_finding,
    ok_finding,
    warning_finding,
)
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.sandbox.child_env import DEFAULT_PATH
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.errors import SandboxError
from hermes.tools.search.ripgrep import find_rg

_INSTALL = "Install bubblewrap (sudo apt install bubblewrap); docs/sandbox.md tells more."

_PROBED = ("sandbox docker:", "sandbox ssh:")
"""Lines in place of which a trial is told."""
_DOCKER_FIX = "hermes config set terminal.backend auto   (or mend it: docker info)"
PROBE_TIMEOUT = 5.0
_RETRY_HINT = "hermes doctor   (tries it once more; docs/sandbox.md tells what bubblewrap needs)"

_NO_SANDBOX_HINT = "to do without a sandbox: hermes config set terminal.backend local"


async def check_sandbox(patient: CheckContext) -> list[Finding]:
    terminal = patient.config.terminal
    if why := unsupported_reason(backend_on(terminal, "cli")):
        return [error_finding("sandbox", f"{why}.", "hermes config set terminal.backend auto")]
    with Spawner() as door:
        parts = SandboxDeps(patient.home, patient.env, terminal, door, patient.clock)
        try:
            lines = await Sandboxes(parts).check()
        except SandboxError as error:
            return [error_finding("sandbox", str(error), error.hint or _INSTALL)]
        lines = [one for one in lines if not one.startswith(_PROBED)]
        findings = [finding_of_line(one) for one in lines]
        wanted = {terminal.backend, *terminal.backend_by_platform.values()}
        if "docker" in wanted:
            findings.append(await _docker(patient, door))
        if "ssh" in wanted:
            findings.append(await _ssh(ssh_sandbox(door, terminal, patient.env), terminal.ssh_host))
    return [*findings, *_search(patient)]


async def _ssh(sandbox: Sandbox, host: str) -> Finding:
    """Whether a command runs over there."""
    mend = f"hermes config set terminal.backend auto   (or mend it: ssh {host or 'HOST'} true)"
    job = ProcessSpec(argv=("true",), cwd="/", env={}, timeout=PROBE_TIMEOUT)
    try:
        done = await sandbox.run(job)
    except SandboxError as error:
        return error_finding("sandbox", f"ssh: {error}.", error.hint or mend)
    if done.timed_out or done.exit_code:
        return error_finding(
            "sandbox", f"ssh: {host} does not answer, so commands do not run.", mend
        )
    return ok_finding("sandbox", f"ssh: commands run on {host}")


async def _docker(patient: CheckContext, door: Spawner) -> Finding:
    """Whether its engine answers; that an image can be fetched shows with the first command."""
    words = ("docker", "version", "--format={{.Server.Version}}")
    path = patient.env.get("PATH", DEFAULT_PATH)
    start = SpawnRequest(argv=words, cwd="/", env={"PATH": path}, called="docker")
    try:
        with anyio.fail_after(PROBE_TIMEOUT):
            async with door.open(start) as child:
                while await child.read():
                    pass
                answers = (await child.wait()).exit_code == 0
    except SandboxError:
        return error_finding(
            "sandbox", "docker: it is not installed, so commands do not run.", _DOCKER_FIX
        )
    except TimeoutError:
        answers = False
    if not answers:
        return error_finding(
            "sandbox", "docker: its engine does not answer, so commands do not run.", _DOCKER_FIX
        )
    return ok_finding("sandbox", "docker: commands run in a container")


def finding_of_line(line: str) -> Finding:
    said = line.removeprefix("sandbox ")
    if COMMANDS_REFUSED in said:
        return error_finding(
            "sandbox", said, f"hermes config set terminal.backend auto   ({_INSTALL})"
        )
    again = _INSTALL if "not installed" in said else _RETRY_HINT
    advice = {
        APPROVAL_REQUIRED: f"{_RETRY_HINT}; {_NO_SANDBOX_HINT}",
        NO_SANDBOX: _INSTALL,
        WEAKER_NOTE: again,
        PARTIAL_NOTE: "hermes config set terminal.backend auto   (tries bubblewrap first)",
        "none: commands run as you": "hermes config set terminal.backend auto",
    }
    fix = next((fix for sign, fix in advice.items() if sign in said), "")
    return warning_finding("sandbox", said, fix) if fix else ok_finding("sandbox", said)


def _search(patient: CheckContext) -> Iterator[Finding]:
    if find_rg(patient.env.get("PATH", "")) is None:
        yield warning_finding(
            "tools", "ripgrep is not here, so searching files is slow.", "sudo apt install ripgrep"
        )
