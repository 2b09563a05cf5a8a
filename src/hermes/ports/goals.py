"""Goals of sessions, and the repository that stores them."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.scope import Scope


class GoalState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"


class Goal(Struct, frozen=True, kw_only=True):
    """A session's goal, pursued over several turns.

    - `scope`: where it was set; its turns continue there.
    - `revision`: counts the changes; 0 for a goal that is not stored yet.
    - `max_cost`: dollars; None: unlimited. `cost_before`: of the session when the goal was set.
    - `doubts`: results of the judge in a row that could not be used.
    - `reason`: what the judge said last, or why the goal is paused.
    - `evidence`: quotations from the transcript that show that the goal is met.
    - `wait_pid`: a process that has to end before the next turn.
    """

    session: str
    text: str
    scope: Scope
    created_at: datetime
    state: GoalState = GoalState.ACTIVE
    revision: int = 0
    subgoals: tuple[str, ...] = ()
    turns: int = 0
    max_turns: int = 20
    max_cost: float | None = None
    cost_before: float = 0.0
    doubts: int = 0
    reason: str = ""
    evidence: tuple[str, ...] = ()
    wait_pid: int | None = None


class SaveGoal(Struct, frozen=True):
    """Insert or update a goal; its stored revision becomes `revision` + 1.

    The commit fails with `StateConflict` unless `goal.revision` is the stored one, or if the stored
    goal is newer: revisions begin again after `DeleteGoal`.
    """

    goal: Goal


class DeleteGoal(Struct, frozen=True):
    session: str


GoalWrite: TypeAlias = SaveGoal | DeleteGoal


class Goals(Protocol):
    async def get(self, session: str) -> Goal | None: ...

    async def active(self) -> Sequence[Goal]:
        """Goals that are worked on, oldest first."""
        ...

    async def cost(self, session: str) -> float:
        """Dollars of a session and its subagents, as far as prices are known."""
        ...
