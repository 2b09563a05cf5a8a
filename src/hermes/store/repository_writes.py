"""Apply the writes of the repositories: each is handed to the module of its table."""

from typing import assert_never

from hermes.ports.approval_records import ApprovalWrite, PutQuestion
from hermes.ports.store import RepositoryWrite
from hermes.store.approval_records import apply_approval_write
from hermes.store.connection import Connection


def apply_repository_write(connection: Connection, write: RepositoryWrite) -> None:
    if isinstance(write, ApprovalWrite):
        apply_approval_write(connection, write)
    else:
        assert_never(write)


def holder_in(write: RepositoryWrite) -> str:
    """The holder that the write stores, if any."""
    match write:
        case PutQuestion(record):
            return record.holder
        case _:
            return ""
