"""Bringing words to a place that is not where the turn answers."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.schema.scope import Scope


class TargetResult(Struct, frozen=True):
    """One place of a target: `key` names the row that is on its way; without one, `why` not."""

    place: str
    key: str = ""
    why: str = ""
    near: bool = False
    """Whether it is where the asking comes from, or a home channel of the owner's own."""


class MessageSender(Protocol):
    def places(self, scope: Scope, target: str) -> Sequence[TargetResult]:
        """Where it would go, nothing is sent. Raises `UsageError` for what is no target."""
        ...

    async def post(self, scope: Scope, target: str, text: str) -> Sequence[TargetResult]:
        """On disk when it returns, delivered when the channel is there. Raises `UsageError`."""
        ...
