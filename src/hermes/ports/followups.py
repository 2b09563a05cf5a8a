"""Send a message to the session that started something, after its turn has ended."""

from collections.abc import Sequence
from typing import Protocol

from hermes.ports.store import Write
from hermes.schema.scope import Scope


class Followups(Protocol):
    def rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        """Return the writes that put `text` into the inbox of the scope's session, once per key.

        Commit them together with the record that the result was reported.
        """
        ...

    def wake(self, scope: Scope) -> None:
        """Wake the session after the commit."""
        ...
