"""How far a process reaches by itself, from what confines it: what its approval is about."""

from hermes.ports.counsel import Reaching
from hermes.ports.sandbox import Confinement


def usual_reaching(held: Confinement) -> Reaching:
    """How far a process goes that asks for nothing more than there is."""
    if held.failed:
        return Reaching.BEYOND
    return Reaching.INSIDE if held.wall and held.complete else Reaching.OPEN


def why_outside(held: Confinement, reason: str) -> str:
    """For the person who decides: that it is not the model that wants to leave the sandbox."""
    failed = f"The sandbox cannot be set up ({held.failed})." if held.failed else ""
    return " ".join(filter(None, [failed, reason]))
