"""The callback that receives a run's events."""

from typing import Protocol

from hermes.schema.events import Event


class Emit(Protocol):
    async def __call__(self, event: Event, /) -> None: ...
