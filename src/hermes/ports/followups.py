"""How what ends after its turn comes back to the conversation that began it."""

from collections.abc import Sequence
from typing import Protocol

from hermes.ports.store import Write
from hermes.schema.scope import Scope


class Followups(Protocol):
    def brought(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        """What puts `text` into the inbox of the scope's conversation, once for each key.

        To be committed together with whatever says that it was brought.
        """
        ...

    def ring(self, scope: Scope) -> None:
        """It is committed: wake whoever answers there."""
        ...
