"""What holds back the commands of the agent, after a trial, and what they need."""

from collections.abc import Iterator

from hermes.app.sandboxes import (
    NO_WALL,
    WEAKER,
    Sandboxes,
    SandboxParts,
    backend_on,
    refusal,
)
from hermes.cli.checkup.finding import Finding, Patient, odd, well, wrong
from hermes.sandbox.door import Door
from hermes.schema.errors import SandboxError
from hermes.tools.search.ripgrep import find_rg

_NO_RUN = "Commands do not run"
_INSTALL = "Install bubblewrap (sudo apt install bubblewrap); docs/sandbox.md tells more."

_AGAIN = "hermes doctor   (tries it once more; docs/sandbox.md tells what bubblewrap needs)"


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
    return [*map(_finding, lines), *_search(patient)]


def _finding(line: str) -> Finding:
    said = line.removeprefix("sandbox ")
    if _NO_RUN in said:
        return wrong("sandbox", said, f"hermes config set terminal.backend auto   ({_INSTALL})")
    if NO_WALL in said:
        return odd("sandbox", said, _INSTALL)
    if WEAKER in said:
        return odd("sandbox", said, _INSTALL if "not installed" in said else _AGAIN)
    if "none: commands run as you" in said:
        return odd("sandbox", said, "hermes config set terminal.backend auto")
    return well("sandbox", said)


def _search(patient: Patient) -> Iterator[Finding]:
    if find_rg(patient.env.get("PATH", "")) is None:
        yield odd(
            "tools", "ripgrep is not here, so searching files is slow.", "sudo apt install ripgrep"
        )
