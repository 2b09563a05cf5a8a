"""Tell a failure that the wall caused from others, and say how to ask for more."""

import re

from hermes.ports.counsel import Reaching

_FILES = re.compile(
    r"read-only file system|permission denied|operation not permitted", re.IGNORECASE
)
_NETWORK = re.compile(
    r"network is unreachable|could not resolve|temporary failure in name resolution"
    r"|name or service not known|no route to host|failed to connect|connection timed out"
    r"|getaddrinfo|EAI_AGAIN|ENETUNREACH|unable to resolve",
    re.IGNORECASE,
)
SEARCHED = 20_000
"""Characters at the end of the output in which a reason is looked for."""


def hint(output: str, wall: str, reaching: Reaching) -> str:
    """Empty when nothing looks as if the wall had held the command back."""
    if not wall or reaching is Reaching.BEYOND:
        return ""
    end = output[-SEARCHED:]
    if reaching is not Reaching.NETWORK and _NETWORK.search(end):
        return (
            f"The sandbox ({wall}) has no network. If the command needs it, call again with "
            'escalate="network" and a reason; the user may be asked.'
        )
    if _FILES.search(end):
        return (
            f"The sandbox ({wall}) lets commands change only the workspace and /tmp, hides "
            "secrets, and by default has no Unix sockets. If more is needed, call again with "
            'escalate="outside" and a reason; the user may be asked.'
        )
    return ""
