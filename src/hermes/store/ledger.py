"""Store changes to memory and skills, and proposals of such changes, in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from hermes.ports.ledger import (
    AddProposal,
    Author,
    Change,
    ChangeState,
    DecideProposal,
    LedgerEntry,
    LedgerWrite,
    Proposal,
    ProposalState,
    PutChange,
)
from hermes.store.connection import Connection, Row, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, put_row, select_abandoned, select_rows
from hermes.store.rows import row_as, to_micros
from hermes.store.workers import SqliteWorkers

_SQL = load_statements("ledger")
_CHANGES = Columns(Change)
_PROPOSALS = Columns(Proposal)


class SqliteLedgerRecords:
    """Implements `hermes.ports.ledger.LedgerRecords`."""

    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self._workers = workers

    async def changes(
        self, *, kind: str | None = None, state: ChangeState | None = None, limit: int
    ) -> Sequence[LedgerEntry]:
        values = {"kind": kind, "state": state and state.value, "limit": limit}
        return (await select_rows(self._engine, _SQL["changes"], values, _ledger_entry))[::-1]

    async def abandoned_changes(self) -> Sequence[Change]:
        return await select_abandoned(self._engine, self._workers, _SQL["applying"], _CHANGES.read)

    async def proposals(
        self,
        *,
        kind: str | None = None,
        by: Author | None = None,
        state: ProposalState | None = None,
        limit: int,
    ) -> Sequence[Proposal]:
        chosen = {"kind": kind, "by": by and by.value, "state": state and state.value}
        values = {**chosen, "limit": limit}
        return (await select_rows(self._engine, _SQL["proposals"], values, _PROPOSALS.read))[::-1]

    async def forget(self, before: datetime) -> int:
        values = {"before": to_micros(before)}
        changes = await self._engine.execute(_SQL["forget changes"], values)
        return changes + await self._engine.execute(_SQL["forget proposals"], values)


def _ledger_entry(row: Row) -> LedgerEntry:
    (state,) = row_as(row[-1:], tuple[ChangeState])
    return LedgerEntry(_CHANGES.read(row), state)


def apply_ledger_write(connection: Connection, write: LedgerWrite) -> None:
    match write:
        case PutChange(change, state, expected, holder):
            values = _CHANGES.values(change, state=state.value, holder=holder, expected=expected)
            now = f"no longer {expected}" if expected else "already present"
            statement = _SQL["change" if expected else "add change"]
            put_row(connection, statement, values, f"The change {change.id} is {now}.")
        case AddProposal(proposal):
            values = _PROPOSALS.values(proposal, session=proposal.origin.session)
            conflict = f"The proposal {proposal.id} is already present."
            put_row(connection, _SQL["add proposal"], values, conflict)
        case DecideProposal(id, state, at):
            values = {"id": id, "state": state.value, "at": to_micros(at)}
            conflict = f"The proposal {id} is no longer waiting."
            put_row(connection, _SQL["decide"], values, conflict)
        case _:
            assert_never(write)
