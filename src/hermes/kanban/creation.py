"""Create a task for somebody who wants to hear of it: the chat is subscribed, its session woken."""

from hermes.kanban.service import BoardService
from hermes.kanban.tasks import (
    NewTask,
    chat_subscription,
    create_task,
    is_same_chat,
    subscribe,
)
from hermes.ports.board import BoardRows
from hermes.schema.board import BoardSubscription, Task
from hermes.schema.scope import Scope


async def add_for_creator(
    service: BoardService, board: str | None, new: NewTask, scope: Scope | None
) -> tuple[Task, bool]:
    """Return the task, and whether the creator's chat is notified of it."""
    now = service.now()
    address = scope.address if scope is not None and service.subscribes_creators else None

    def work(rows: BoardRows) -> tuple[Task, BoardSubscription | None]:
        task = create_task(rows, new, now)
        if scope is None or address is None:
            return task, None
        user = scope.asker.user or None
        wanted = chat_subscription(task.id, address, scope.profile or service.profile, user)
        subscribe(rows, wanted, now)
        # The task may also have subscriptions of other chats, inherited from its parents.
        own = (one for one in rows.subscriptions(task.id) if is_same_chat(one, wanted))
        return task, next(own, None)

    task, made = await service.write(board, work)
    if made is not None and scope is not None:
        await service.remember_creator(board, made, scope)
    return task, made is not None
