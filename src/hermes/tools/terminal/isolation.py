"""Decide how a process is isolated, and recognize failures caused by the sandbox."""

import re

from hermes.ports.approvals import Isolation
from hermes.ports.sandbox import Confinement, ProcessPermissions
from hermes.schema.scope import Role, Scope

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
"""Characters at the end of the output that are searched for a reason."""


def denial_hint(output: str, sandbox: str, reaching: Isolation) -> str:
    """Return a hint if the sandbox seems to have blocked the command, or nothing."""
    if not sandbox or reaching is Isolation.BEYOND:
        return ""
    end = output[-MAX_SEARCHED:]
    if reaching is not Isolation.NETWORK and _NETWORK_DENIED.search(end):
        return (
            f"The sandbox ({sandbox}) has no network. If the command needs it, call again with "
            'escalate="network" and a reason; the user may be asked.'
        )
    if _FILE_DENIED.search(end):
        return (
            f"The sandbox ({sandbox}) lets commands change only the workspace and /tmp, hides "
            "secrets, and by default has no Unix sockets. If more is needed, call again with "
            'escalate="outside" and a reason; the user may be asked.'
        )
    return ""


def default_isolation(confinement: Confinement) -> Isolation:
    """Return the isolation of a process that requests no escalation."""
    if confinement.failed:
        return Isolation.BEYOND
    return Isolation.INSIDE if confinement.isolation and confinement.complete else Isolation.OPEN


def outside_reason(confinement: Confinement, reason: str) -> str:
    """Tell the approver that the sandbox is unavailable, rather than left by the model's choice."""
    failed = f"The sandbox cannot be set up ({confinement.failed})." if confinement.failed else ""
    return " ".join(filter(None, [failed, reason]))


def has_network(network: bool, scope: Scope) -> bool:
    """Whether processes have network access without an approval; never for guests."""
    return network and scope.role is not Role.GUEST


def process_permissions(
    scope: Scope, confinement: Confinement, reaching: Isolation, *, network: bool
) -> ProcessPermissions:
    return ProcessPermissions(
        writable=(scope.workspace,),
        network=has_network(network, scope) or reaching is Isolation.NETWORK,
        unsandboxed=reaching is Isolation.BEYOND,
        isolation=confinement.isolation,
    )
