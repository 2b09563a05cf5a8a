"""Let assignees other than the owner answer their own tasks from a chat."""

from msgspec import structs

from hermes.kanban.arguments import task_ids
from hermes.kanban.service import BoardService
from hermes.ports.feature import Action, ActionCall, ActionReply
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role, Scope


def for_assignees(action: Action[BoardService]) -> Action[BoardService]:
    """Return the action, made available to the person assigned to the task."""

    async def run(service: BoardService, call: ActionCall) -> ActionReply:
        if call.scope is not None and call.scope.role is not Role.OWNER:
            await _check_tasks(service, call, call.scope)
        return await action.run(service, call)

    return structs.replace(action, run=run, for_others=True)


def author_of(service: BoardService, call: ActionCall) -> str:
    """Return the author: the owner under any name, other people under the board's name for them."""
    scope = call.scope
    if scope is None or scope.role is Role.OWNER:
        asker = "" if scope is None else scope.asker.name or scope.asker.user
        return call.text("author") or asker or service.profile
    return f"@{_name(service, call, scope)}"


def _name(service: BoardService, call: ActionCall, scope: Scope) -> str:
    """The name of the person on the board; empty for an unknown person."""
    board = service.boards.choose(call.text("board") or None)
    known = {scope.principal}
    if scope.address is not None:
        known.add(f"{scope.address.channel}:{scope.address.chat}")
    people = service.boards.info(board).people
    return next((name for name, accounts in people.items() if known & {*accounts}), "")


async def _check_tasks(service: BoardService, call: ActionCall, scope: Scope) -> None:
    name, wanted = _name(service, call, scope), task_ids(call)
    tasks = await service.read(
        call.text("board") or None, lambda rows: [rows.task(one) for one in wanted]
    )
    if not name or any(task is None or task.assignee != f"@{name}" for task in tasks):
        raise UsageError(
            "This board has no such task of yours.",
            hint="The owner assigns tasks, and links your account to a name with "
            "`boards set-people`.",
        )
