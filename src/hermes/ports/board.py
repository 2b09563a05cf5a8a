"""The rows of one board. The board's rules are in `hermes.kanban`; this only reads and writes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from hermes.schema.board import (
    Attachment,
    BoardSubscription,
    Comment,
    JsonObject,
    RunChange,
    Task,
    TaskChange,
    TaskEvent,
    TaskFilter,
    TaskRun,
    TaskStatus,
)

R = TypeVar("R")


class BoardRows(Protocol):
    """One transaction. Methods that take an id do nothing for an unknown one."""

    def task(self, task_id: str) -> Task | None: ...

    def task_by_idempotency_key(self, key: str) -> Task | None:
        """The newest task with the key that is not archived."""
        ...

    def tasks(self, wanted: TaskFilter) -> Sequence[Task]: ...

    def status_counts(self) -> Mapping[TaskStatus, int]: ...

    def running_by_assignee(self) -> Mapping[str, int]:
        """How many tasks run, by assignee; without one, by the profile that runs the task."""
        ...

    def add_task(self, task: Task) -> None: ...

    def change_task(self, task_id: str, change: TaskChange) -> None: ...

    def parents(self, task_id: str) -> Sequence[str]: ...

    def children(self, task_id: str) -> Sequence[str]: ...

    def links(self) -> Sequence[tuple[str, str]]:
        """All links as (parent, child)."""
        ...

    def add_link(self, parent: str, child: str) -> None: ...

    def remove_link(self, parent: str, child: str) -> bool: ...

    def open_parents(self, task_id: str) -> Sequence[str]:
        """Parents that are neither done nor archived."""
        ...

    def promotable(self) -> Sequence[str]:
        """Tasks in `todo` all of whose parents are done or archived."""
        ...

    def comments(self, task_id: str) -> Sequence[Comment]: ...

    def comment_counts(self) -> Mapping[str, int]:
        """By task."""
        ...

    def latest_summaries(self) -> Mapping[str, str]:
        """The summaries of the last runs that have one, by task."""
        ...

    def add_comment(self, task_id: str, author: str, body: str, at: int) -> int: ...

    def events(self, task_id: str, limit: int) -> Sequence[TaskEvent]:
        """The last events, oldest first."""
        ...

    def events_after(self, event_id: int, limit: int) -> Sequence[TaskEvent]:
        """Events of all tasks after the given one."""
        ...

    def news(
        self, event_id: int, kinds: Collection[str], task_id: str | None, limit: int
    ) -> Sequence[TaskEvent]:
        """Events of these kinds after the given one, of one task or of all."""
        ...

    def last_event(self, task_id: str, kinds: Collection[str]) -> TaskEvent | None: ...

    def last_event_id(self) -> int: ...

    def add_event(
        self, task_id: str, kind: str, at: int, payload: JsonObject | None, run_id: int | None
    ) -> int: ...

    def run(self, run_id: int) -> TaskRun | None: ...

    def runs(self, task_id: str) -> Sequence[TaskRun]:
        """All runs of a task, oldest first."""
        ...

    def recent_runs_by(self, profile: str, limit: int) -> Sequence[TaskRun]:
        """The last completed runs of a profile, newest first."""
        ...

    def add_run(self, run: TaskRun) -> int:
        """Add a run under a new id, which is returned."""
        ...

    def change_run(self, run_id: int, change: RunChange) -> None: ...

    def attachments(self, task_id: str) -> Sequence[Attachment]: ...

    def attachment(self, attachment_id: int) -> Attachment | None: ...

    def add_attachment(self, attachment: Attachment) -> int: ...

    def remove_attachment(self, attachment_id: int) -> None: ...

    def subscriptions(self, task_id: str | None = None) -> Sequence[BoardSubscription]: ...

    def put_subscription(self, subscription: BoardSubscription) -> bool:
        """Return False if the chat was subscribed already."""
        ...

    def remove_subscription(
        self, task_id: str, platform: str, chat_id: str, thread_id: str
    ) -> bool: ...

    def move_cursor(self, subscription: BoardSubscription, event_id: int) -> None: ...

    def delete_events(self, before: int) -> int:
        """Delete events of finished tasks from before the given time; return how many."""
        ...


class Board(Protocol):
    """One board's database, shared with other processes and with the public system."""

    async def read(self, work: Callable[[BoardRows], R]) -> R: ...

    async def write(self, work: Callable[[BoardRows], R]) -> R:
        """Run the work in a write transaction; nothing is written if it raises."""
        ...

    async def close(self) -> None: ...
