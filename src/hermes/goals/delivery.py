"""The port through which goals reach a session and its chat; the app implements it."""

from collections.abc import Sequence
from typing import Protocol

from hermes.ports.store import Write
from hermes.schema.scope import Scope


class GoalDelivery(Protocol):
    def turn_rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        """Return the inbox row of the session's next turn, once per key."""
        ...

    def drop_rows(self, prefix: str, begun: Sequence[str]) -> Sequence[Write]:
        """Return writes that remove the inbox rows of turns by key prefix, except those `begun`."""
        ...

    def wake(self, scope: Scope) -> None:
        """Wake the session after the commit."""
        ...

    async def is_busy(self, scope: Scope) -> bool:
        """Whether a turn of the session is running or waits in its inbox."""
        ...

    async def current_scope(self, scope: Scope) -> Scope:
        """The scope in which the session continues now, such as in another chat."""
        ...

    def continues_alone(self, scope: Scope) -> bool:
        """Whether the gateway runs the session's turns without a client requesting them."""
        ...

    def can_continue(self, scope: Scope) -> bool:
        """Whether turns can run: false for a chat whose address is unknown."""
        ...

    def notice_rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        """The outbox row of a notice to the session's chat; none at a terminal."""
        ...

    def report_check(self, scope: Scope, text: str) -> None:
        """Show at a terminal that a verdict is being made."""
        ...

    def notify(self, scope: Scope, text: str) -> None:
        """After the commit: wake the delivery to a chat, or show the notice at a terminal."""
        ...
