"""Apply the writes of the repositories: each is handed to the module of its table."""

from hermes.ports.approval_records import ApprovalWrite, PutQuestion
from hermes.ports.board_watches import PutBoardWatch, RemoveBoardWatch
from hermes.ports.delegation import AddDelegation, ChangeDelegation
from hermes.ports.processes import AddProcess, ProcessWrite
from hermes.ports.store import RepositoryWrite
from hermes.store.approval_records import apply_approval_write
from hermes.store.background_work import apply_delegation_write, apply_process_write
from hermes.store.board_watches import apply_board_watch_write
from hermes.store.connection import Connection


def apply_repository_write(connection: Connection, write: RepositoryWrite) -> None:
    if isinstance(write, ApprovalWrite):
        apply_approval_write(connection, write)
    elif isinstance(write, ProcessWrite):
        apply_process_write(connection, write)
    elif isinstance(write, PutBoardWatch | RemoveBoardWatch):
        apply_board_watch_write(connection, write)
    else:
        apply_delegation_write(connection, write)


def holder_in(write: RepositoryWrite) -> str:
    """The holder that the write stores, if any."""
    match write:
        case PutQuestion(record):
            return record.holder
        case AddProcess(_, holder):
            return holder
        case AddDelegation(work) | ChangeDelegation(work):
            return work.holder
        case _:
            return ""
