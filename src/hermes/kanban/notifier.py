"""Tell subscribed chats what happened on a board, and wake the sessions that created tasks."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from hermes.kanban.answers import how_to_answer
from hermes.kanban.artifacts import artifacts_in
from hermes.kanban.boards import DEFAULT_BOARD
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import CLOSED, WHOLE_BOARD
from hermes.kit.text import one_line
from hermes.ports.board import BoardRows
from hermes.ports.board_watches import BoardWatch, PutBoardWatch, RemoveBoardWatch, watch_of
from hermes.ports.channel import Attachment
from hermes.ports.message_sender import Followups
from hermes.ports.store import Store, Write
from hermes.schema.board import BoardSubscription, Task, TaskEvent
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

WAKING = frozenset(
    {"completed", "blocked", "block_loop_detected", "gave_up", "crashed", "timed_out"}
)
NOTIFIED = WAKING | {"status"}
MAX_EVENTS = 1_000
"""Events read at once for each subscription."""
MAX_FILES = 10
"""Maximum number of files in one message."""
_MAX_TITLE = 120


class EventDelivery(Protocol):
    """Puts notifications into the outbox of the profile."""

    def problem(self, address: Address) -> str:
        """Why nothing can be sent there; empty if something can."""
        ...

    async def attachments(self, folder: Path, paths: Sequence[str]) -> Sequence[Attachment]:
        """The files to send, without those below `folder` that cannot be read."""
        ...

    def rows(
        self, key: str, address: Address, text: str, attachments: Sequence[Attachment] = ()
    ) -> Sequence[Write]:
        """The writes that send a text with files. The same key is sent only once."""
        ...

    def wake(self, address: Address) -> None: ...


class Notifier:
    """Serves one profile's subscriptions. An error in one does not affect the others."""

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
        total, has_more = 0, True
        while has_more:
            sent, has_more = await self._serve_all(board)
            total += sent
        return total

    async def _serve_all(self, board: str) -> tuple[int, bool]:
        """Handle one page of events of each subscription; say whether more are waiting."""
        subscriptions = [
            watched
            for watched in await self._service.read(board, lambda rows: rows.subscriptions())
            if (watched.notifier_profile or "default") == self._service.profile
        ]
        if not subscriptions:
            return 0, False
        known = {
            _key(board_watch): board_watch
            for board_watch in await self._store.board_watches.of_board(board)
        }
        watches = [
            _watch(board, watched, known.get(_subscription_key(watched)))
            for watched in subscriptions
        ]
        found = await self._service.read(
            board, lambda rows: [_find_update(rows, board_watch) for board_watch in watches]
        )
        problems: dict[Address, str] = {}
        sent, has_more = 0, False
        for subscription, watch, update in zip(subscriptions, watches, found, strict=True):
            try:
                if update.events and (problem := self._problem(watch, problems)):
                    await self._park(watch, problem)
                    continue
                await self._serve(subscription, watch, update)
            except HermesError as error:
                log.warning("board %s, %s: %s", board, subscription.task_id, error)
                continue
            sent += len(update.events)
            has_more |= update.has_more
        return sent, has_more

    def _problem(self, watch: BoardWatch, known: dict[Address, str]) -> str:
        address = _address(watch)
        if address not in known:
            known[address] = self._delivery.problem(address)
        return known[address]

    async def _serve(
        self, subscription: BoardSubscription, watch: BoardWatch, update: "_TaskUpdate"
    ) -> None:
        start = watch.cursor
        for event in update.events:
            watch = structs.replace(watch, cursor=event.id, problem="")
            if (task := update.tasks.get(event.task_id)) is not None:
                files = update.files.get(event.id, ())
                await self._store_notification(watch, event, task, files)
        if not update.has_more and update.is_closed:
            await self._forget(subscription, watch)
            return
        # Unreadable events are left out of a page, so a short page may not be the last one.
        end = watch.cursor if update.events else max(watch.cursor, update.last_id)
        if update.events or end - start >= MAX_EVENTS:
            watch = structs.replace(watch, cursor=end, problem="")
            await self._store.commit(PutBoardWatch(watch))
            # Also move the public system's own cursor; it may lag behind.
            await self._service.write_quietly(
                watch.board, lambda rows: rows.move_cursor(subscription, end)
            )

    async def _forget(self, subscription: BoardSubscription, watch: BoardWatch) -> None:
        """Remove the subscription of a closed task whose last event was handled."""

        def work(rows: BoardRows) -> bool:
            update = _find_update(rows, watch)
            can_end = update.is_closed and not update.events
            return can_end and rows.remove_subscription(*_subscription_key(subscription))

        if await self._service.write_quietly(watch.board, work):
            await self._store.commit(RemoveBoardWatch(watch))

    async def _park(self, watch: BoardWatch, problem: str) -> None:
        """Keep the events for later, and log once why nothing is sent."""
        if watch.problem != problem:
            log.warning("board %s: %s is not notified: %s", watch.board, watch.task, problem)
            await self._store.commit(PutBoardWatch(structs.replace(watch, problem=problem)))

    async def _store_notification(
        self, watch: BoardWatch, event: TaskEvent, task: Task, files: Sequence[str]
    ) -> None:
        """Commit message, wake-up and cursor together."""
        folder = self._service.boards.paths(watch.board).attachments
        attached = await self._delivery.attachments(folder, files) if files else ()
        address = _address(watch)
        key = f"kanban:{watch.board}:{event.id}:{watch.platform}:{watch.chat}:{watch.thread}"
        parts = (notification(watch.board, task, event), how_to_answer(task))
        text = "\n".join(filter(None, parts))
        writes = [*self._delivery.rows(key, address, text, attached), PutBoardWatch(watch)]
        scope = watch.scope if event.kind in WAKING else None
        if scope is not None:
            writes += self._followups.rows(scope, f"{key}:wake", wake_up(watch.board, task, event))
        await self._store.commit(*writes)
        self._delivery.wake(address)
        if scope is not None:
            self._followups.wake(scope)


class _TaskUpdate(Struct, frozen=True, kw_only=True):
    """Events that a subscription has not received yet, with the tasks that can be read."""

    events: Sequence[TaskEvent]
    tasks: Mapping[str, Task]
    files: Mapping[int, Sequence[str]]
    """The artifacts of completed tasks that the board keeps, by event."""
    last_id: int
    """The last event of the board, of any kind."""
    is_closed: bool
    """Whether the subscription is for one task that is done or archived."""

    @property
    def has_more(self) -> bool:
        return len(self.events) >= MAX_EVENTS


def _find_update(rows: BoardRows, watch: BoardWatch) -> _TaskUpdate:
    subject = None if watch.task == WHOLE_BOARD else watch.task
    events = rows.news(watch.cursor, NOTIFIED, subject, MAX_EVENTS)
    tasks = {one: task for one in {event.task_id for event in events} if (task := _task(rows, one))}
    own = _task(rows, subject) if subject else None
    return _TaskUpdate(
        events=events,
        tasks=tasks,
        files={event.id: found for event in events if (found := _kept_artifacts(rows, event))},
        last_id=rows.last_event_id(),
        is_closed=own is not None and own.status in CLOSED,
    )


def _kept_artifacts(rows: BoardRows, event: TaskEvent) -> list[str]:
    """Only copies that the board keeps: other paths of a worker could be any file here."""
    named = artifacts_in(event.payload) if event.kind == "completed" else []
    stored = (
        {attachment.stored_path for attachment in rows.attachments(event.task_id)}
        if named
        else set[str]()
    )
    return [path for path in named if path in stored][:MAX_FILES]


def _task(rows: BoardRows, task_id: str) -> Task | None:
    try:
        return rows.task(task_id)
    except StoreError as error:
        log.warning("%s", error)
        return None


def _watch(board: str, subscription: BoardSubscription, known: BoardWatch | None) -> BoardWatch:
    new = watch_of(board, subscription)
    return structs.replace(known, cursor=max(known.cursor, new.cursor)) if known else new


def _address(watch: BoardWatch) -> Address:
    return Address(watch.platform, watch.chat, watch.thread or None)


def _key(watch: BoardWatch) -> tuple[str, str, str, str]:
    return (watch.task, watch.platform, watch.chat, watch.thread)


def _subscription_key(subscription: BoardSubscription) -> tuple[str, str, str, str]:
    return (
        subscription.task_id,
        subscription.platform,
        subscription.chat_id,
        subscription.thread_id,
    )


def notification(board: str, task: Task, event: TaskEvent) -> str:
    """The text for one event, in the public system's format."""
    payload = event.payload or {}
    tag = "" if board == DEFAULT_BOARD else f"[{board}] "
    mention = f"@{task.assignee.lstrip('@')} " if task.assignee else ""
    head = f"{tag}{mention}Kanban {task.id}"
    match event.kind:
        case "completed":
            summary = str(payload.get("summary") or "")
            more = f"\n{one_line(summary, 200)}" if summary else ""
            return f"✔ {head} completed — {one_line(task.title, _MAX_TITLE)}{more}"
        case "blocked" | "block_loop_detected":
            outcome = "blocked" if event.kind == "blocked" else "blocked again and needs triage"
            return f"⏸ {head} {outcome}: {one_line(str(payload.get('reason') or ''), 160)}"
        case "gave_up":
            return f"✖ {head} gave up\n{one_line(str(payload.get('error') or ''), 200)}"
        case "crashed":
            return f"✖ {head} crashed"
        case "timed_out":
            return f"⏱ {head} timed out after {payload.get('limit_seconds')} s"
        case _:
            return f"🔄 {head} → {payload.get('status') or task.status}"


def wake_up(board: str, task: Task, event: TaskEvent) -> str:
    """The message to the session that created the task."""
    words = {
        "completed": "is done",
        "blocked": "is blocked",
        "block_loop_detected": "is blocked again for the same kind of reason and needs triage",
        "gave_up": "was given up after repeated failures",
        "crashed": "crashed",
        "timed_out": "ran out of time",
    }
    lines = [
        f"A task you created {words[event.kind]}: {task.id}, {one_line(task.title, _MAX_TITLE)}.",
        f"Board: {board}. Assignee: {task.assignee or '-'}. Status: {task.status}.",
    ]
    if event.kind == "completed":
        if result := task.result or (event.payload or {}).get("summary"):
            lines.append(f"Result: {one_line(str(result), 1_000)}")
    elif reason := (event.payload or {}).get("reason") or task.last_failure_error:
        lines.append(f"Reason: {one_line(str(reason), 1_000)}")
    lines.append("Details: kanban_show.")
    return "\n".join(lines)
