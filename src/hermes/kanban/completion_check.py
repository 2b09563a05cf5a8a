"""Check a reported completion: with the goal judge and against the completion contract."""

from pathlib import Path

from hermes.kanban.completion_contract import published_pull_request, read_contract
from hermes.kanban.context import MAX_BODY
from hermes.kanban.service import BoardService, GoalVerdict
from hermes.kanban.tasks import find_task, is_under_review
from hermes.kit.text import head_and_tail
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, JsonObject, Task
from hermes.schema.errors import ModelError, StateConflict, UsageError

REJECTED = "completion_rejected"
ACCEPTED = "pr_acceptance"
_GOAL_BLOCKS = frozenset({BlockKind.DEPENDENCY, BlockKind.NEEDS_INPUT})
_REMINDER = Path(__file__).with_name("goal_turn.md")


def pursues_goal(rows: BoardRows, task: Task) -> bool:
    """Whether the worker continues until a judge says that the task is done; reviewers do not."""
    return task.goal_mode and not is_under_review(rows, task.id)


async def check_completion(
    service: BoardService, board: str, task_id: str, session: str, run: int | None, done: JsonObject
) -> None:
    """Raise `StateConflict` unless the task is done; `done` is the metadata of the completion.

    The contract binds every agent; one that is not the task's worker (`run` is None) decides for
    itself whether the goal is met.
    """
    task, pursues = await service.read(
        board, lambda rows: ((task := find_task(rows, task_id)), pursues_goal(rows, task))
    )
    try:
        await _check_contract(service, board, task, run, done)
        if run is not None and pursues:
            await _check_goal(service, task, session)
    except StateConflict as error:
        reason = {"reason": str(error)}
        await service.write(
            board, lambda rows: rows.add_event(task_id, REJECTED, service.now(), reason, run)
        )
        raise


async def judge_task(service: BoardService, task: Task, session: str) -> GoalVerdict:
    """Whether the session shows that the task is done. Raises `ModelError`."""
    text = f"{task.title}\n\n{head_and_tail(task.body or '', MAX_BODY)}".strip()
    return await service.agents.judge(session, text)


async def goal_reminder(
    service: BoardService, task: Task, session: str, turn: int, max_turns: int
) -> str:
    """The message to the worker before its next turn."""
    try:
        verdict = await judge_task(service, task, session)
        reason = verdict.reason or ("The task is done." if verdict.met else "Something is missing.")
    except ModelError as error:
        reason = f"The check failed: {error}"
    text = _REMINDER.read_text("utf-8").strip()
    return text.format(turn=turn, max_turns=max_turns, reason=reason)


def check_block(rows: BoardRows, task: Task, kind: BlockKind) -> None:
    """Raise `UsageError` if a worker that pursues a goal gives up on its own."""
    if pursues_goal(rows, task) and kind not in _GOAL_BLOCKS:
        raise UsageError(
            "This task runs until it is done.",
            hint="Block it only with the kind dependency or needs_input.",
        )


async def _check_goal(service: BoardService, task: Task, session: str) -> None:
    try:
        verdict = await judge_task(service, task, session)
    except ModelError as error:
        raise StateConflict(
            f"Could not check whether the task is done: {error}", hint="Try again."
        ) from error
    if not verdict.met:
        raise StateConflict(
            f"The task is not done yet: {verdict.reason}",
            hint="Do what is missing, show it with a tool's result, and complete it again.",
        )


async def _check_contract(
    service: BoardService, board: str, task: Task, run: int | None, done: JsonObject
) -> None:
    contract = read_contract(task.completion_contract)
    address = "" if contract is None else published_pull_request(contract, done)
    if not address:
        return
    if problem := await service.agents.pull_request_problem(address):
        raise StateConflict(
            f"{address} is not accepted: {problem}",
            hint="Complete the task when its required checks have passed.",
        )
    payload: JsonObject = {"pull_request": address}
    await service.write_quietly(
        board, lambda rows: rows.add_event(task.id, ACCEPTED, service.now(), payload, run)
    )
