"""Store goals of sessions in SQLite."""

from collections.abc import Sequence
from typing import assert_never

from hermes.ports.goals import DeleteGoal, Goal, GoalWrite, SaveGoal
from hermes.store.connection import Connection, Row, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, put_row, select_rows

_SQL = load_statements("goals")
_GOALS = Columns(Goal)


class SqliteGoals:
    """Implements `hermes.ports.goals.Goals`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, session: str) -> Goal | None:
        return await self._engine.fetch_first(_SQL["get"], {"session": session}, tuple, _GOALS.read)

    async def active(self) -> Sequence[Goal]:
        return await select_rows(self._engine, _SQL["active"], {}, _GOALS.read)

    async def cost(self, session: str) -> float:
        values = {"session": session}
        return await self._engine.fetch_first(_SQL["cost"], values, tuple, _first_number) or 0.0


def _first_number(row: Row) -> float:
    (cost,) = row
    return float(cost or 0.0)


def apply_goal_write(connection: Connection, write: GoalWrite) -> None:
    match write:
        case SaveGoal(goal):
            statement = _SQL["change" if goal.revision else "add"]
            conflict = f"The goal of session {goal.session} has changed."
            put_row(connection, statement, _GOALS.values(goal), conflict)
        case DeleteGoal(session):
            connection.execute(_SQL["delete"], {"session": session})
        case _:
            assert_never(write)
