"""Who waits for a server's answers: until when, whom it may ask, and how often nobody got one."""

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import anyio
import mcp_types as types
from mcp.client import Client

from hermes.mcp.elicitation import CANCELLED, DECLINED, fill_form
from hermes.ports.approvals import AskPerson

T = TypeVar("T")

MAX_QUESTIONS = 5
MAX_UNANSWERED = 3
"""Calls in a row without an answer after which a server is begun anew."""


class PendingCall(Generic[T]):
    """One call: its answer, or why there is none, and a person who can be asked meanwhile."""

    def __init__(self, inquire: AskPerson | None) -> None:
        self.inquire = inquire
        self.questions = 0
        self.limit = anyio.CancelScope()
        self.gone = anyio.Event()
        self.done = anyio.Event()
        self.result: list[T] = []
        self.failure: Exception | None = None
        self._scope = anyio.CancelScope()
        self._thinking = 0
        self._left = math.inf

    async def work(self, work: Callable[[Client], Awaitable[T]], client: Client) -> None:
        """Where the connection lives; whoever waits for it may be gone before its end."""
        try:
            with self._scope:
                self.result.append(await work(client))
        except Exception as error:  # noqa: BLE001 - whoever waits tells of it
            self.failure = error
        finally:
            self.done.set()

    async def answered(self, seconds: float) -> bool:
        """False when no answer came in that time."""
        self.limit.deadline = anyio.current_time() + seconds
        with self.limit:
            await self.done.wait()
        return self.done.is_set()

    def go(self) -> None:
        self._scope.cancel()
        self.gone.set()

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Its time does not run while a person thinks; a server may ask several things at once."""
        if not self._thinking:
            self._left = self.limit.deadline - anyio.current_time()
            self.limit.deadline = math.inf
        self._thinking += 1
        try:
            yield
        finally:
            self._thinking -= 1
            if not self._thinking:
                self.limit.deadline = anyio.current_time() + self._left


class PendingCalls:
    """All of one server."""

    def __init__(self) -> None:
        self.used = 0.0
        """When somebody last waited."""
        self._waiting: list[PendingCall[Any]] = []
        self._hangs = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @contextmanager
    def waiting(self, caller: PendingCall[Any]) -> Generator[None]:
        self._waiting.append(caller)
        try:
            yield
        finally:
            caller.go()
            self._waiting.remove(caller)
            self.used = anyio.current_time()

    def count(self, *, answered: bool) -> bool:
        """Whether too many in a row got no answer. Who goes of their own accord does not count."""
        self._hangs = 0 if answered else self._hangs + 1
        if self._hangs < MAX_UNANSWERED:
            return False
        self._hangs = 0
        return True

    async def asked(self, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Only where it is certain whose call it is about."""
        caller = self._waiting[0] if len(self._waiting) == 1 else None
        if caller is None or caller.inquire is None or caller.questions >= MAX_QUESTIONS:
            return DECLINED
        caller.questions += 1
        answer = CANCELLED
        with caller.stopped():
            async with anyio.create_task_group() as group:

                async def end_with_the_call() -> None:
                    await caller.gone.wait()
                    group.cancel_scope.cancel()

                group.start_soon(end_with_the_call)
                answer = await fill_form(caller.inquire, server, params)
                group.cancel_scope.cancel()
        return answer
