"""Tell subscribed chats what happened on a board, and wake the sessions that created tasks."""

import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import structs

from hermes.kanban.boards import DEFAULT_BOARD
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import WHOLE_BOARD
from hermes.kit.text import one_line
from hermes.ports.board import BoardRows
from hermes.ports.board_watches import BoardWatch, PutBoardWatch, watch_of
from hermes.ports.message_sender import Followups
from hermes.ports.store import Store, Write
from hermes.schema.board import BoardSubscription, Task, TaskEvent, TaskStatus
from hermes.schema.errors import HermesError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

WAKING = frozenset({"completed", "blocked", "gave_up", "crashed", "timed_out"})
NOTIFIED = WAKING | {"status"}
MAX_EVENTS = 1_000
"""Events read at once; the rest follows in the next pass."""
_MAX_TITLE = 120


class EventDelivery(Protocol):
    """Puts notifications into the outbox of the profile."""

    def problem(self, address: Address) -> str:
        """Why nothing can be sent there; empty if something can."""
        ...

    def rows(self, key: str, address: Address, text: str) -> Sequence[Write]:
        """The writes that send a text, once per key."""
        ...

    def wake(self, address: Address) -> None: ...


class Notifier:
    """Serves the subscriptions of one profile; each of them fails alone."""

    def __init__(
        self,
        *,
        service: BoardService,
        store: Store,
        delivery: EventDelivery,
        followups: Followups,
    ) -> None:
        self._service = service
        self._store = store
        self._delivery = delivery
        self._followups = followups

    async def notify(self, board: str) -> int:
        """Handle new events of a board; return how many notifications were stored."""
        subscriptions = [
            one
            for one in await self._service.read(board, lambda rows: rows.subscriptions())
            if (one.notifier_profile or "default") == self._service.profile
        ]
        if not subscriptions:
            return 0
        watches = {_key(one): one for one in await self._store.board_watches.of_board(board)}
        pairs = [(one, watches.get(_subscription_key(one))) for one in subscriptions]
        pending = [(one, watch or watch_of(board, one)) for one, watch in pairs]
        first = min(watch.cursor for _, watch in pending)
        events, tasks = await self._service.read(board, lambda rows: _events(rows, first))
        sent = 0
        for subscription, watch in pending:
            try:
                sent += await self._serve(subscription, watch, events, tasks)
            except HermesError as error:
                log.warning("board %s, %s: %s", board, subscription.task_id, error)
        return sent

    async def _serve(
        self,
        subscription: BoardSubscription,
        watch: BoardWatch,
        events: Sequence[TaskEvent],
        tasks: dict[str, Task],
    ) -> int:
        news = [event for event in events if event.id > watch.cursor]
        wanted = [
            event
            for event in news
            if subscription.task_id in {WHOLE_BOARD, event.task_id}
            and event.kind in NOTIFIED
            and event.task_id in tasks
        ]
        address = Address(
            subscription.platform, subscription.chat_id, subscription.thread_id or None
        )
        if problem := self._delivery.problem(address):
            await self._park(watch, problem)
            return 0
        for event in wanted:
            watch = structs.replace(watch, cursor=event.id, problem="")
            await self._store_notification(watch, event, tasks[event.task_id])
        if news and news[-1].id > watch.cursor:
            watch = structs.replace(watch, cursor=news[-1].id, problem="")
            await self._store.commit(PutBoardWatch(watch))
        if news:
            # The public system's own cursor follows; it may lag.
            await self._service.write_quietly(
                watch.board, lambda rows: rows.move_cursor(subscription, watch.cursor)
            )
        return len(wanted)

    async def _park(self, watch: BoardWatch, problem: str) -> None:
        """Keep the events for later, and say once why nothing is sent."""
        if watch.problem != problem:
            log.warning("board %s: %s is not notified: %s", watch.board, watch.task, problem)
            await self._store.commit(PutBoardWatch(structs.replace(watch, problem=problem)))

    async def _store_notification(self, watch: BoardWatch, event: TaskEvent, task: Task) -> None:
        """Commit message, wake-up and cursor together."""
        address = Address(watch.platform, watch.chat, watch.thread or None)
        key = f"kanban:{watch.board}:{event.id}:{watch.platform}:{watch.chat}:{watch.thread}"
        text = notification(watch.board, task, event)
        writes = [*self._delivery.rows(key, address, text), PutBoardWatch(watch)]
        scope = watch.scope if event.kind in WAKING else None
        if scope is not None:
            writes += self._followups.rows(scope, f"{key}:wake", wake_up(watch.board, task, event))
        await self._store.commit(*writes)
        self._delivery.wake(address)
        if scope is not None:
            self._followups.wake(scope)


def _events(rows: BoardRows, after: int) -> tuple[Sequence[TaskEvent], dict[str, Task]]:
    events = rows.events_after(after, MAX_EVENTS)
    ids = {event.task_id for event in events if event.kind in NOTIFIED}
    return events, {task.id: task for one in ids if (task := rows.task(one)) is not None}


def _key(watch: BoardWatch) -> tuple[str, str, str, str]:
    return (watch.task, watch.platform, watch.chat, watch.thread)


def _subscription_key(one: BoardSubscription) -> tuple[str, str, str, str]:
    return (one.task_id, one.platform, one.chat_id, one.thread_id)


def notification(board: str, task: Task, event: TaskEvent) -> str:
    """One message per event, in the public form."""
    payload = event.payload or {}
    tag = "" if board == DEFAULT_BOARD else f"[{board}] "
    who = f"@{task.assignee.lstrip('@')} " if task.assignee else ""
    head = f"{tag}{who}Kanban {task.id}"
    match event.kind:
        case "completed":
            summary = str(payload.get("summary") or "")
            more = f"\n{one_line(summary, 200)}" if summary else ""
            return f"✔ {head} completed — {one_line(task.title, _MAX_TITLE)}{more}"
        case "blocked":
            return f"⏸ {head} blocked: {one_line(str(payload.get('reason') or ''), 160)}"
        case "gave_up":
            return f"✖ {head} gave up\n{one_line(str(payload.get('error') or ''), 200)}"
        case "crashed":
            return f"✖ {head} crashed"
        case "timed_out":
            return f"⏱ {head} timed out after {payload.get('limit_seconds')} s"
        case _:
            return f"🔄 {head} → {payload.get('status') or task.status}"


def wake_up(board: str, task: Task, event: TaskEvent) -> str:
    """What the session that created the task is told."""
    words = {
        "completed": "is done",
        "blocked": "is blocked",
        "gave_up": "was given up after repeated failures",
        "crashed": "crashed",
        "timed_out": "ran out of time",
    }
    lines = [
        f"A task you created {words[event.kind]}: {task.id}, {one_line(task.title, _MAX_TITLE)}.",
        f"Board: {board}. Assignee: {task.assignee or '-'}. Status: {task.status}.",
    ]
    if task.status is TaskStatus.DONE and task.result:
        lines.append(f"Result: {one_line(task.result, 1_000)}")
    elif reason := (event.payload or {}).get("reason") or task.last_failure_error:
        lines.append(f"Reason: {one_line(str(reason), 1_000)}")
    lines.append("Details: kanban_show.")
    return "\n".join(lines)
