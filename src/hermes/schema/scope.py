"""Who asks, from where, with what reach. Passed by hand, never ambient."""

from msgspec import Struct

OWNER = "owner"
"""The principal of the person whose home this is."""


class Address(Struct, frozen=True):
    """A place where a person can be reached."""

    channel: str
    chat: str
    thread: str | None = None


class Scope(Struct, frozen=True):
    """One run's identity. `later` says whether something can still be delivered after the turn."""

    profile: str
    session: str
    run: str
    workspace: str
    principal: str = OWNER
    address: Address | None = None
    later: bool = True
