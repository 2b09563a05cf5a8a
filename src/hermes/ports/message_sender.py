"""Send messages besides the answer: to other chats, or to the session after its turn has ended."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.ports.channel import Attachment
from hermes.ports.store import Write
from hermes.schema.messages import Trust
from hermes.schema.scope import Scope


class TargetResult(Struct, frozen=True):
    """The result for one target."""

    target: str
    key: str = ""  # the outbox row; empty if the target cannot be reached
    reason: str = ""  # why it cannot be reached
    trusted: bool = False  # the requesting chat itself, or one of the owner's home channels


class MessageSender(Protocol):
    def resolve(self, scope: Scope, target: str) -> Sequence[TargetResult]:
        """Resolve a target without sending. Raises `UsageError` for an invalid target."""
        ...

    async def send(
        self, scope: Scope, target: str, text: str, *, attachments: tuple[Attachment, ...] = ()
    ) -> Sequence[TargetResult]:
        """Put the message into the outbox; delivery follows. Raises `UsageError`."""
        ...


class Followups(Protocol):
    def rows(
        self, scope: Scope, key: str, text: str, *, trust: Trust = Trust.DATA
    ) -> Sequence[Write]:
        """Return the writes that put `text` into the inbox of the scope's session, once per key.

        Results of work are data; only a text of our own may be an instruction. Commit them together
        with the record that the result was reported.
        """
        ...

    def wake(self, scope: Scope) -> None:
        """Wake the session after the commit."""
        ...
