"""What holds back the commands of the agent, after a trial, and what they need."""

from collections.abc import Iterator

import anyio

from hermes.app.confinement import ASKED, NO_WALL, PARTIAL, REFUSED, WEAKER
from hermes.app.sandboxes import (
    Sandboxes,
    SandboxParts,
    backend_on,
    refusal,
    ssh_sandbox,
)
from hermes.cli.checkup.finding import Finding, Patient, odd, well, wrong
from hermes.ports.sandbox import Job, Sandbox
from hermes.sandbox.child_env import DEFAULT_PATH
from hermes.sandbox.door import Door, Start
from hermes.schema.errors import SandboxError
from hermes.tools.search.ripgrep import find_rg

_INSTALL = "Install bubblewrap (sudo apt install bubblewrap); docs/sandbox.md tells more."

_TRIED = ("sandbox docker:", "sandbox ssh:")
"""Lines in place of which a trial is told."""
_OTHER = "hermes config set terminal.backend auto   (or mend it: docker info)"
PATIENCE = 5.0
_AGAIN = "hermes doctor   (tries it once more; docs/sandbox.md tells what bubblewrap needs)"

_ANYWAY = "to do without a sandbox: hermes config set terminal.backend local"


async def check_sandbox(patient: Patient) -> list[Finding]:
    terminal = patient.config.terminal
    if why := refusal(backend_on(terminal, "cli")):
        return [wrong("sandbox", f"{why}.", "hermes config set terminal.backend auto")]
    with Door() as door:
        parts = SandboxParts(patient.home, patient.env, terminal, door, patient.clock)
        try:
            lines = await Sandboxes(parts).check()
        except SandboxError as error:
            return [wrong("sandbox", str(error), error.hint or _INSTALL)]
        lines = [one for one in lines if not one.startswith(_TRIED)]
        findings = [finding_of(one) for one in lines]
        wanted = {terminal.backend, *terminal.backend_by_platform.values()}
        if "docker" in wanted:
            findings.append(await _docker(patient, door))
        if "ssh" in wanted:
            findings.append(await _ssh(ssh_sandbox(door, terminal, patient.env), terminal.ssh_host))
    return [*findings, *_search(patient)]


async def _ssh(sandbox: Sandbox, host: str) -> Finding:
    """Whether a command runs over there."""
    mend = f"hermes config set terminal.backend auto   (or mend it: ssh {host or 'HOST'} true)"
    job = Job(argv=("true",), cwd="/", env={}, timeout=PATIENCE)
    try:
        done = await sandbox.run(job)
    except SandboxError as error:
        return wrong("sandbox", f"ssh: {error}.", error.hint or mend)
    if done.timed_out or done.exit_code:
        return wrong("sandbox", f"ssh: {host} does not answer, so commands do not run.", mend)
    return well("sandbox", f"ssh: commands run on {host}")


async def _docker(patient: Patient, door: Door) -> Finding:
    """Whether its engine answers; that an image can be fetched shows with the first command."""
    words = ("docker", "version", "--format={{.Server.Version}}")
    path = patient.env.get("PATH", DEFAULT_PATH)
    start = Start(argv=words, cwd="/", env={"PATH": path}, called="docker")
    try:
        with anyio.fail_after(PATIENCE):
            async with door.open(start) as child:
                while await child.read():
                    pass
                answers = (await child.wait()).exit_code == 0
    except SandboxError:
        return wrong("sandbox", "docker: it is not installed, so commands do not run.", _OTHER)
    except TimeoutError:
        answers = False
    if not answers:
        return wrong(
            "sandbox", "docker: its engine does not answer, so commands do not run.", _OTHER
        )
    return well("sandbox", "docker: commands run in a container")


def finding_of(line: str) -> Finding:
    said = line.removeprefix("sandbox ")
    if REFUSED in said:
        return wrong("sandbox", said, f"hermes config set terminal.backend auto   ({_INSTALL})")
    again = _INSTALL if "not installed" in said else _AGAIN
    advice = {
        ASKED: f"{_AGAIN}; {_ANYWAY}",
        NO_WALL: _INSTALL,
        WEAKER: again,
        PARTIAL: "hermes config set terminal.backend auto   (tries bubblewrap first)",
        "none: commands run as you": "hermes config set terminal.backend auto",
    }
    fix = next((fix for sign, fix in advice.items() if sign in said), "")
    return odd("sandbox", said, fix) if fix else well("sandbox", said)


def _search(patient: Patient) -> Iterator[Finding]:
    if find_rg(patient.env.get("PATH", "")) is None:
        yield odd(
            "tools", "ripgrep is not here, so searching files is slow.", "sudo apt install ripgrep"
        )
