"""Tell a failure that the wall caused from others, and say how to ask for more."""

import re

from hermes.ports.approvals import Isolation
from hermes.ports.sandbox import Confinement

_FILE_DENIED = re.compile(
    r"read-only file system|permission denied|operation not permitted", re.IGNORECASE
)
_NETWORK_DENIED = re.compile(
    r"network is unreachable|could not resolve|temporary failure in name resolution"
    r"|name or service not known|no route to host|failed to connect|connection timed out"
    r"|getaddrinfo|EAI_AGAIN|ENETUNREACH|unable to resolve",
    re.IGNORECASE,
)
MAX_SEARCHED = 20_000
"""Characters at the end of the output in which a reason is looked for."""


def denial_hint(output: str, wall: str, reaching: Isolation) -> str:
    """Empty when nothing looks as if the wall had held the command back."""
    if not wall or reaching is Isolation.BEYOND:
        return ""
    end = output[-MAX_SEARCHED:]
    if reaching is not Isolation.NETWORK and _NETWORK_DENIED.search(end):
        return (
            f"The sandbox ({wall}) has no network. If the command needs it, call again with "
            'escalate="network" and a reason; the user may be asked.'
        )
    if _FILE_DENIED.search(end):
        return (
            f"The sandbox ({wall}) lets commands change only the workspace and /tmp, hides "
            "secrets, and by default has no Unix sockets. If more is needed, call again with "
            'escalate="outside" and a reason; the user may be asked.'
        )
    return ""


def default_isolation(held: Confinement) -> Isolation:
    """How far a process goes that asks for nothing more than there is."""
    if held.failed:
        return Isolation.BEYOND
    return Isolation.INSIDE if held.wall and held.complete else Isolation.OPEN


def outside_reason(held: Confinement, reason: str) -> str:
    """For the person who decides: that it is not the model that wants to leave the sandbox."""
    failed = f"The sandbox cannot be set up ({held.failed})." if held.failed else ""
    return " ".join(filter(None, [failed, reason]))
