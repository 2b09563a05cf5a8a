"""`/goal` and `/subgoal`, as plain data."""

from hermes.goals.judge import goal_text
from hermes.goals.service import GoalService
from hermes.kit.text import plural
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument, ArgumentKind, Verb
from hermes.ports.goals import Goal, GoalState
from hermes.schema.errors import UsageError
from hermes.schema.scope import Scope

_TEXT = Argument(name="text", help="what is to be achieved", kind=ArgumentKind.WORDS, required=True)


def _scope(call: ActionCall) -> Scope:
    if call.scope is None:
        raise UsageError("A goal belongs to a session; set it in a chat.")
    return call.scope


async def _set(goals: GoalService, call: ActionCall) -> ActionReply:
    if not call.text("text"):
        return await _status(goals, call)
    goal = await goals.set(_scope(call), call.text("text"))
    limit = "" if goal.max_cost is None else f" and ${goal.max_cost:g}"
    text = (
        f"Goal set, at most {plural(goal.max_turns, 'turn')}{limit}. /goal status shows progress."
    )
    return ActionReply(text, submit=goal.text)


async def _draft(goals: GoalService, call: ActionCall) -> ActionReply:
    goal = await goals.draft(_scope(call), call.text("text"))
    next_step = "This is a draft. Change it with /subgoal, start it with /goal resume."
    return ActionReply(f"{goal_text(goal)}\n\n{next_step}")


async def _show(goals: GoalService, call: ActionCall) -> ActionReply:
    return ActionReply(goal_text(await goals.find(_scope(call).session)))


async def _status(goals: GoalService, call: ActionCall) -> ActionReply:
    goal = await goals.find(_scope(call).session)
    return ActionReply(status_text(goal, await goals.cost(goal)))


async def _pause(goals: GoalService, call: ActionCall) -> ActionReply:
    await goals.pause(_scope(call).session)
    return ActionReply("Goal paused. /goal resume continues, /goal clear drops it.")


async def _resume(goals: GoalService, call: ActionCall) -> ActionReply:
    goal = await goals.resume(_scope(call).session)
    return ActionReply(f"Goal resumed, at most {plural(goal.max_turns, 'turn')}.")


async def _clear(goals: GoalService, call: ActionCall) -> ActionReply:
    await goals.clear(_scope(call).session)
    return ActionReply("Goal cleared.")


async def _wait(goals: GoalService, call: ActionCall) -> ActionReply:
    pid = call.number("pid", 0)
    await goals.wait(_scope(call).session, pid)
    return ActionReply(f"The goal is waiting for the process {pid}.")


async def _unwait(goals: GoalService, call: ActionCall) -> ActionReply:
    await goals.unwait(_scope(call).session)
    return ActionReply("The goal continues.")


async def _list_subgoals(goals: GoalService, call: ActionCall) -> ActionReply:
    return _subgoals(await goals.find(_scope(call).session))


async def _add_subgoal(goals: GoalService, call: ActionCall) -> ActionReply:
    return _subgoals(await goals.add_subgoal(_scope(call).session, call.text("text")))


async def _remove_subgoal(goals: GoalService, call: ActionCall) -> ActionReply:
    number = call.number("number", 0)
    return _subgoals(await goals.remove_subgoal(_scope(call).session, number))


async def _clear_subgoals(goals: GoalService, call: ActionCall) -> ActionReply:
    return _subgoals(await goals.clear_subgoals(_scope(call).session))


def _subgoals(goal: Goal) -> ActionReply:
    parts = [f"{number}. {subgoal}" for number, subgoal in enumerate(goal.subgoals, 1)]
    return ActionReply("\n".join(parts) or "The goal has no parts. Add one: /subgoal TEXT")


def status_text(goal: Goal, cost: float) -> str:
    limit = "" if goal.max_cost is None else f" of ${goal.max_cost:g}"
    lines = [
        f"Goal: {goal_text(goal)}",
        f"State: {goal.state.value}, turn {goal.turns} of {goal.max_turns}, ${cost:.2f}{limit}",
    ]
    if goal.wait_pid is not None:
        lines.append(f"It is waiting for the process {goal.wait_pid}.")
    if goal.reason:
        lines.append(
            f"{'Judge' if goal.state is not GoalState.PAUSED else 'Reason'}: {goal.reason}"
        )
    lines += [f"> {quote}" for quote in goal.evidence if goal.state is GoalState.DONE]
    return "\n".join(lines)


GOAL: Verb[GoalService] = Verb(
    name="goal",
    summary="Work on a goal over several turns until it is met.",
    usage="[text|draft|show|status|pause|resume|clear|wait|unwait]",
    default="status",
    fallback="set",
    in_session=True,
    actions=(
        Action(name="set", summary="set the goal and start", run=_set, arguments=(_TEXT,)),
        Action(
            name="draft",
            summary="draft its conditions with the model",
            run=_draft,
            arguments=(_TEXT,),
        ),
        Action(name="show", summary="show the goal and its parts", run=_show),
        Action(name="status", summary="show the progress", run=_status),
        Action(name="pause", summary="start no more turns", run=_pause),
        Action(name="resume", summary="continue", run=_resume),
        Action(name="clear", summary="drop the goal", run=_clear),
        Action(
            name="wait",
            summary="wait until a process has ended",
            run=_wait,
            arguments=(
                Argument(
                    name="pid", help="its process id", kind=ArgumentKind.NUMBER, required=True
                ),
            ),
        ),
        Action(name="unwait", summary="stop waiting for the process", run=_unwait),
    ),
)

SUBGOAL: Verb[GoalService] = Verb(
    name="subgoal",
    summary="List, add or remove parts of the goal.",
    usage="[text|remove N|clear]",
    default="list",
    fallback="add",
    in_session=True,
    actions=(
        Action(name="list", summary="list the parts", run=_list_subgoals),
        Action(name="add", summary="add a part", run=_add_subgoal, arguments=(_TEXT,)),
        Action(
            name="remove",
            summary="remove a part",
            run=_remove_subgoal,
            arguments=(
                Argument(name="number", help="its number", kind=ArgumentKind.NUMBER, required=True),
            ),
        ),
        Action(name="clear", summary="remove all parts", run=_clear_subgoals),
    ),
)
