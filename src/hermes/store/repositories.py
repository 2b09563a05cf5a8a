"""The repositories of a SQLite store; each is stateless and loaded when it is used."""

from typing import TYPE_CHECKING

from hermes.store.engine import Engine
from hermes.store.workers import SqliteWorkers

if TYPE_CHECKING:
    from hermes.store.api_records import SqliteApiRecords
    from hermes.store.approval_records import SqliteApprovalRecords
    from hermes.store.background_work import SqliteDelegations, SqliteProcesses
    from hermes.store.board_watches import SqliteBoardWatches
    from hermes.store.chat_records import SqliteChatRecords
    from hermes.store.jobs import SqliteJobs
    from hermes.store.ledger import SqliteLedgerRecords
    from hermes.store.session_records import (
        SqliteCompactionRecords,
        SqliteRunRecords,
        SqliteRuntimeSessions,
    )

# ruff: noqa: PLC0415 - loaded on first use


class SqliteRepositories:
    def __init__(self, engine: Engine, workers: SqliteWorkers) -> None:
        self._engine = engine
        self.workers = workers

    @property
    def approvals(self) -> "SqliteApprovalRecords":
        from hermes.store.approval_records import SqliteApprovalRecords

        return SqliteApprovalRecords(self._engine)

    @property
    def processes(self) -> "SqliteProcesses":
        from hermes.store.background_work import SqliteProcesses

        return SqliteProcesses(self._engine, self.workers)

    @property
    def delegations(self) -> "SqliteDelegations":
        from hermes.store.background_work import SqliteDelegations

        return SqliteDelegations(self._engine, self.workers)

    @property
    def chats(self) -> "SqliteChatRecords":
        from hermes.store.chat_records import SqliteChatRecords

        return SqliteChatRecords(self._engine)

    @property
    def compaction(self) -> "SqliteCompactionRecords":
        from hermes.store.session_records import SqliteCompactionRecords

        return SqliteCompactionRecords(self._engine)

    @property
    def runs(self) -> "SqliteRunRecords":
        from hermes.store.session_records import SqliteRunRecords

        return SqliteRunRecords(self._engine, self.workers)

    @property
    def runtime_sessions(self) -> "SqliteRuntimeSessions":
        from hermes.store.session_records import SqliteRuntimeSessions

        return SqliteRuntimeSessions(self._engine)

    @property
    def ledger(self) -> "SqliteLedgerRecords":
        from hermes.store.ledger import SqliteLedgerRecords

        return SqliteLedgerRecords(self._engine, self.workers)

    @property
    def api(self) -> "SqliteApiRecords":
        from hermes.store.api_records import SqliteApiRecords

        return SqliteApiRecords(self._engine, self.workers)

    @property
    def jobs(self) -> "SqliteJobs":
        from hermes.store.jobs import SqliteJobs

        return SqliteJobs(self._engine)

    @property
    def board_watches(self) -> "SqliteBoardWatches":
        from hermes.store.board_watches import SqliteBoardWatches

        return SqliteBoardWatches(self._engine)
