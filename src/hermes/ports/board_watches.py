"""Stored subscriptions: the last board event each chat received, and the session to wake."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.schema.board import BoardSubscription
from hermes.schema.scope import Scope


class BoardWatch(Struct, frozen=True, kw_only=True):
    """A subscription as this profile serves it.

    `cursor` is the last event that was handled. `scope` is the turn that created the task, if
    known, whose session is woken. `problem` says why nothing can be sent.
    """

    board: str
    task: str
    platform: str
    chat: str
    thread: str
    cursor: int
    scope: Scope | None = None
    problem: str = ""


class PutBoardWatch(Struct, frozen=True):
    """Store a watch, or change it. The cursor never moves back."""

    watch: BoardWatch


class RemoveBoardWatch(Struct, frozen=True):
    """Remove a watch that no longer sends anything."""

    watch: BoardWatch


class BoardWatches(Protocol):
    async def of_board(self, board: str) -> Sequence[BoardWatch]: ...


def watch_of(board: str, subscription: BoardSubscription, scope: Scope | None = None) -> BoardWatch:
    """Return a new watch for a subscription."""
    return BoardWatch(
        board=board,
        task=subscription.task_id,
        platform=subscription.platform,
        chat=subscription.chat_id,
        thread=subscription.thread_id,
        cursor=subscription.last_event_id,
        scope=scope,
    )
