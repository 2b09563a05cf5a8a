"""The receivers of a turn's reports: events, and user-defined hooks."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Raw

from hermes.schema.events import Event, Outcome
from hermes.schema.scope import Scope


class Emit(Protocol):
    async def __call__(self, event: Event, /) -> None:
        """Take an event.

        Facts, except the start of a tool, are recorded completely even if the turn is cancelled.
        """
        ...


class TurnHooks(Protocol):
    async def before_tool(self, scope: Scope, tool: str, args: Raw) -> str:
        """Return why the call is blocked, for the model to read; empty if it is allowed.

        A hook that fails to run blocks the call, too.
        """
        ...

    async def after_tool(
        self, scope: Scope, tool: str, args: Raw, result: str, *, failed: bool
    ) -> None:
        """Report a finished call and its result."""
        ...

    async def turn_started(self, scope: Scope, text: str, *, new: bool) -> str:
        """Report the start of a turn (`new`: the first of its session); return extra context."""
        ...

    async def turn_ended(self, scope: Scope, outcome: Outcome) -> None: ...

    def warnings(self) -> Sequence[str]:
        """Hooks that are configured but do not run, each with the reason."""
        ...
