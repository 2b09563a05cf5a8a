"""Pending calls of one server: deadlines, questions to the user, and unanswered calls."""

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
"""Unanswered calls in a row after which a server is restarted."""


class PendingCall(Generic[T]):
    """One call: its result or failure, and how to ask the user meanwhile."""

    def __init__(self, inquire: AskPerson | None) -> None:
        self.ask_person = inquire
        self.questions = 0
        self.limit = anyio.CancelScope()
        self.cancelled = anyio.Event()
        self.done = anyio.Event()
        self.result: list[T] = []
        self.failure: Exception | None = None
        self._scope = anyio.CancelScope()
        self._open_questions = 0
        self._left = math.inf

    async def run(self, work: Callable[[Client], Awaitable[T]], client: Client) -> None:
        """Run the call in the connection's task group; the caller may be gone before it ends."""
        try:
            with self._scope:
                self.result.append(await work(client))
        except Exception as error:  # noqa: BLE001 - reported to the caller
            self.failure = error
        finally:
            self.done.set()

    async def wait_answered(self, seconds: float) -> bool:
        """Wait for the answer; False if none came in time."""
        self.limit.deadline = anyio.current_time() + seconds
        with self.limit:
            await self.done.wait()
        return self.done.is_set()

    def cancel(self) -> None:
        self._scope.cancel()
        self.cancelled.set()

    @contextmanager
    def deadline_suspended(self) -> Generator[None]:
        """Suspend the time limit while the user answers one or more questions."""
        if not self._open_questions:
            self._left = self.limit.deadline - anyio.current_time()
            self.limit.deadline = math.inf
        self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1
            if not self._open_questions:
                self.limit.deadline = anyio.current_time() + self._left


class PendingCalls:
    """All pending calls of one server."""

    def __init__(self) -> None:
        self.last_used = 0.0
        """When a call last ended."""
        self._waiting: list[PendingCall[Any]] = []
        self._unanswered = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @contextmanager
    def track(self, caller: PendingCall[Any]) -> Generator[None]:
        self._waiting.append(caller)
        try:
            yield
        finally:
            caller.cancel()
            self._waiting.remove(caller)
            self.last_used = anyio.current_time()

    def record_outcome(self, *, answered: bool) -> bool:
        """Count an outcome; return whether too many calls in a row got no answer."""
        self._unanswered = 0 if answered else self._unanswered + 1
        if self._unanswered < MAX_UNANSWERED:
            return False
        self._unanswered = 0
        return True

    async def ask_user(self, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Ask the user only if it is certain which call the question belongs to."""
        caller = self._waiting[0] if len(self._waiting) == 1 else None
        if caller is None or caller.ask_person is None or caller.questions >= MAX_QUESTIONS:
            return DECLINED
        caller.questions += 1
        answer = CANCELLED
        with caller.deadline_suspended():
            async with anyio.create_task_group() as group:

                async def cancel_with_call() -> None:
                    await caller.cancelled.wait()
                    group.cancel_scope.cancel()

                group.start_soon(cancel_with_call)
                answer = await fill_form(caller.ask_person, server, params)
                group.cancel_scope.cancel()
        return answer
