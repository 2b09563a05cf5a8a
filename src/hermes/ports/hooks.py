"""Programs of the owner's own that look on while a turn runs, and may hold a call back."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Raw

from hermes.schema.events import Outcome
from hermes.schema.scope import Scope


class TurnHooks(Protocol):
    async def before(self, scope: Scope, tool: str, args: Raw) -> str:
        """Why the call must not be made, for the model to read; empty when it may.

        A program that is to be asked and cannot be holds it back as well.
        """
        ...

    async def after(self, scope: Scope, tool: str, args: Raw, result: str, *, failed: bool) -> None:
        """The call was made, and that came of it."""
        ...

    async def asked(self, scope: Scope, words: str, *, new: bool) -> str:
        """A turn begins, perhaps the first of its session; what is to be known in it."""
        ...

    async def ended(self, scope: Scope, outcome: Outcome) -> None: ...

    def warnings(self) -> Sequence[str]:
        """What is not done, or not allowed, as things stand."""
        ...
