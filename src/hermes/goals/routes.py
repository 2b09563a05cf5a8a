"""The API routes of goals."""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.goals.service import MAX_SUBGOALS, MAX_TEXT, GoalService
from hermes.ports.feature import FeatureRoute, RouteRequest
from hermes.ports.goals import Goal


class GoalBody(Struct, frozen=True, kw_only=True):
    """A goal to set; limits default to the settings."""

    goal: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
    subgoals: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)], ...],
        Meta(max_length=MAX_SUBGOALS),
    ] = ()
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    max_cost: Annotated[float, Meta(gt=0)] | None = None


class GoalResponse(Struct, frozen=True, kw_only=True):
    """A session's goal. `cost` is in dollars, as far as prices are known."""

    session_id: str
    goal: str
    state: str
    subgoals: tuple[str, ...]
    turns: int
    max_turns: int
    cost: float
    max_cost: float | None
    reason: str
    evidence: tuple[str, ...]


class GoalCleared(Struct, frozen=True):
    ok: bool = True


async def _answer(goals: GoalService, goal: Goal) -> GoalResponse:
    return GoalResponse(
        session_id=goal.session,
        goal=goal.text,
        state=goal.state.value,
        subgoals=goal.subgoals,
        turns=goal.turns,
        max_turns=goal.max_turns,
        cost=await goals.cost(goal),
        max_cost=goal.max_cost,
        reason=goal.reason,
        evidence=goal.evidence,
    )


async def _get(goals: GoalService, request: RouteRequest) -> GoalResponse:
    return await _answer(goals, await goals.find(request.path["session_id"]))


async def _put(goals: GoalService, request: RouteRequest) -> GoalResponse:
    body: GoalBody = request.body
    goal = await goals.set_for_session(
        request.path["session_id"],
        body.goal,
        subgoals=body.subgoals,
        max_turns=body.max_turns,
        max_cost=body.max_cost,
    )
    return await _answer(goals, goal)


async def _pause(goals: GoalService, request: RouteRequest) -> GoalResponse:
    return await _answer(goals, await goals.pause(request.path["session_id"]))


async def _resume(goals: GoalService, request: RouteRequest) -> GoalResponse:
    return await _answer(goals, await goals.resume(request.path["session_id"]))


async def _delete(goals: GoalService, request: RouteRequest) -> GoalCleared:
    await goals.clear(request.path["session_id"])
    return GoalCleared()


_PATH = "/api/sessions/{session_id}/goal"
ROUTES: tuple[FeatureRoute[GoalService], ...] = (
    FeatureRoute(
        method="GET", path=_PATH, summary="Goal of a session", run=_get, answer=GoalResponse
    ),
    FeatureRoute(
        method="PUT",
        path=_PATH,
        summary="Set the goal of a session and start on it",
        run=_put,
        answer=GoalResponse,
        body=GoalBody,
    ),
    FeatureRoute(
        method="DELETE", path=_PATH, summary="Clear the goal", run=_delete, answer=GoalCleared
    ),
    FeatureRoute(
        method="POST",
        path=f"{_PATH}/pause",
        summary="Pause the goal",
        run=_pause,
        answer=GoalResponse,
    ),
    FeatureRoute(
        method="POST",
        path=f"{_PATH}/resume",
        summary="Resume the goal",
        run=_resume,
        answer=GoalResponse,
    ),
)
