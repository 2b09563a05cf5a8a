"""Send messages besides the answer: to other chats, or to the session after its turn has ended."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.ports.channel import Attachment
from hermes.ports.store import Write
from hermes.schema.messages import Trust
from hermes.schema.scope import Address, Scope


class SendTarget(Struct, frozen=True):
    """A chat to send to, or `reason`, why a target cannot be reached.

    `is_page` is the conversation itself, in which the dashboard offers the files for download.
    """

    name: str
    address: Address | None = None
    reason: str = ""
    trusted: bool = False  # the requesting chat itself, or one of the owner's home channels
    is_page: bool = False


class MessageSender(Protocol):
    def resolve(self, scope: Scope, target: str) -> Sequence[SendTarget]:
        """Resolve comma-separated targets. Raises `UsageError` for an invalid one."""
        ...

    async def send(
        self,
        scope: Scope,
        targets: Sequence[SendTarget],
        text: str,
        *,
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        """Put the message into the outbox for the targets with an address; delivery follows."""
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
