"""Apply the writes of the repositories, each with the module of its tables."""

from hermes.ports.api_records import ApiWrite, PutKeyedRequest
from hermes.ports.approval_records import ApprovalWrite, PutQuestion
from hermes.ports.board_watches import PutBoardWatch, RemoveBoardWatch
from hermes.ports.chat_records import ChatWrite
from hermes.ports.compaction_records import CompactionWrite
from hermes.ports.delegation import AddDelegation, ChangeDelegation, DelegationWrite
from hermes.ports.goals import GoalWrite
from hermes.ports.jobs import JobWrite
from hermes.ports.ledger import LedgerWrite, PutChange
from hermes.ports.processes import AddProcess, ProcessWrite
from hermes.ports.run_records import PutPartialText, RunWrite
from hermes.ports.store import RepositoryWrite
from hermes.store.api_records import apply_api_write
from hermes.store.approval_records import apply_approval_write
from hermes.store.board_watches import apply_board_watch_write
from hermes.store.chat_records import apply_chat_write
from hermes.store.connection import Connection
from hermes.store.goals import apply_goal_write
from hermes.store.jobs import apply_job_write
from hermes.store.ledger import apply_ledger_write
from hermes.store.repositories import apply_delegation_write, apply_process_write
from hermes.store.session_records import (
    apply_compaction_write,
    apply_run_write,
    apply_runtime_session_write,
)


def apply_repository_write(  # noqa: C901, PLR0912 - one branch per repository
    connection: Connection, write: RepositoryWrite
) -> None:
    if isinstance(write, ApprovalWrite):
        apply_approval_write(connection, write)
    elif isinstance(write, ChatWrite):
        apply_chat_write(connection, write)
    elif isinstance(write, CompactionWrite):
        apply_compaction_write(connection, write)
    elif isinstance(write, RunWrite):
        apply_run_write(connection, write)
    elif isinstance(write, ApiWrite):
        apply_api_write(connection, write)
    elif isinstance(write, ProcessWrite):
        apply_process_write(connection, write)
    elif isinstance(write, PutBoardWatch | RemoveBoardWatch):
        apply_board_watch_write(connection, write)
    elif isinstance(write, JobWrite):
        apply_job_write(connection, write)
    elif isinstance(write, GoalWrite):
        apply_goal_write(connection, write)
    elif isinstance(write, DelegationWrite):
        apply_delegation_write(connection, write)
    elif isinstance(write, LedgerWrite):
        apply_ledger_write(connection, write)
    else:
        apply_runtime_session_write(connection, write)


def holder_in(write: RepositoryWrite) -> str:
    """The holder that the write stores, if any."""
    match write:
        case PutQuestion(record) | PutKeyedRequest(record):
            return record.holder
        case AddProcess(_, holder) | PutChange(holder=holder):
            return holder
        case PutPartialText(partial):
            return partial.holder
        case AddDelegation(work) | ChangeDelegation(work):
            return work.holder
        case _:
            return ""
