"""Store questions, saved approvals and /yolo in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from hermes.ports.approval_records import (
    AddSavedApproval,
    ApprovalWrite,
    PutQuestion,
    QuestionRecord,
    RevokeSavedApproval,
    SavedApproval,
    SetYolo,
)
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, put_row, select_rows
from hermes.store.rows import fetch_number, to_micros

_SQL = load_statements("approval_records")
_QUESTIONS = Columns(QuestionRecord)
_SAVED = Columns(SavedApproval)


class SqliteApprovalRecords:
    """Implements `hermes.ports.approval_records.ApprovalRecords`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def question(self, id: str) -> QuestionRecord | None:  # noqa: A002 the field's name
        return await self._engine.fetch_first(_SQL["question"], {"id": id}, tuple, _QUESTIONS.read)

    async def questions(self, session: str, limit: int = 100) -> Sequence[QuestionRecord]:
        values = {"session": session, "limit": limit}
        newest = await select_rows(
            self._engine, _SQL["questions of session"], values, _QUESTIONS.read
        )
        return newest[::-1]

    async def open_questions(self, session: str | None = None) -> Sequence[QuestionRecord]:
        values = {"session": session}
        return await select_rows(self._engine, _SQL["open questions"], values, _QUESTIONS.read)

    async def saved(self) -> Sequence[SavedApproval]:
        return await select_rows(self._engine, _SQL["saved"], {}, _SAVED.read)

    async def yolo(self, session: str) -> bool:
        values = {"session": session}
        return await self._engine.read(
            lambda connection: fetch_number(connection.execute(_SQL["yolo"], values)) > 0
        )

    async def forget_questions(self, before: datetime) -> int:
        return await self._engine.execute(_SQL["forget"], {"before": to_micros(before)})


def apply_approval_write(connection: Connection, write: ApprovalWrite) -> None:
    match write:
        case PutQuestion(record, expected):
            question = record.question
            values = _QUESTIONS.values(
                record, id=question.id, session=question.session, expected=expected
            )
            state = f"no longer {expected}" if expected else "already present"
            conflict = f"The question {question.id} is {state}."
            put_row(connection, _SQL["change" if expected else "add"], values, conflict)
        case AddSavedApproval(saved):
            connection.execute(_SQL["save"], _SAVED.values(saved))
        case RevokeSavedApproval(id):
            conflict = f"The saved approval {id} was revoked meanwhile."
            put_row(connection, _SQL["revoke"], {"id": id}, conflict)
        case SetYolo(session, on):
            connection.execute(_SQL["yolo on" if on else "yolo off"], {"session": session})
        case _:
            assert_never(write)
