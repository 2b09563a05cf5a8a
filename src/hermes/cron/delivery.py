"""The port for delivering job results; the app implements it with the outbox."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.ports.jobs import Fire, Job
from hermes.ports.store import Write
from hermes.schema.scope import Address


class PlannedDelivery(Struct, frozen=True):
    """The rows that deliver a text, whom to wake after the commit, and unreachable targets."""

    writes: Sequence[Write] = ()
    addresses: Sequence[Address] = ()
    problem: str = ""
    for_bot_chat: bool = False


class JobDelivery(Protocol):
    def plan(self, job: Job, fire: Fire, text: str, *, failed: bool = False) -> PlannedDelivery:
        """Return the rows to commit with the result; keys ensure that a fire's rows exist once."""
        ...

    def wake(self, planned: PlannedDelivery) -> None: ...

    def is_silent(self, text: str) -> bool:
        """Whether the answer says that nothing is to be delivered."""
        ...
