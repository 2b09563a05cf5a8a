"""Store facts about chats in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from hermes.ports.chat_records import (
    AddSessionKey,
    AddStartedTurn,
    ChatWrite,
    ForgetUnreachable,
    MarkUnreachable,
    PutQuestionPost,
    PutSessionLocation,
    SessionKeyRecord,
    SessionLocation,
    UnreachableChat,
)
from hermes.schema.scope import Address
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, put_row, select_rows
from hermes.store.rows import TimeRow, fields_of, to_micros

_SQL = load_statements("chat_records")
_LOCATIONS = Columns(SessionLocation)
_KEYS = Columns(SessionKeyRecord)
_UNREACHABLE = Columns(UnreachableChat)


class SqliteChatRecords:
    """Implements `hermes.ports.chat_records.ChatRecords`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def location(self, session: str) -> SessionLocation | None:
        values = {"session": session}
        return await self._engine.fetch_first(_SQL["location"], values, tuple, _LOCATIONS.read)

    async def session_key(self, key: str) -> SessionKeyRecord | None:
        return await self._engine.fetch_first(_SQL["key"], {"key": key}, tuple, _KEYS.read)

    async def keys_at(self, topic: str, limit: int) -> Sequence[str]:
        values = {"topic": topic, "limit": limit}
        return await select_rows(self._engine, _SQL["keys at"], values, lambda row: str(row[0]))

    async def question_in(self, address: Address, post: str) -> str:
        values = {"channel": address.channel, "chat": address.chat, "post": post}
        sql = _SQL["question in"]
        return await self._engine.fetch_first(sql, values, tuple, lambda row: str(row[0])) or ""

    async def forget_question_posts(self, before: datetime) -> int:
        values = {"before": to_micros(before)}
        return await self._engine.execute(_SQL["forget question posts"], values)

    async def started_turns(self, principal: str, limit: int) -> Sequence[datetime]:
        values = {"principal": principal, "limit": limit}
        newest = await self._engine.fetch(_SQL["turns"], values, TimeRow, TimeRow.time)
        return newest[::-1]

    async def forget_started_turns(self, before: datetime) -> int:
        return await self._engine.execute(_SQL["forget turns"], {"before": to_micros(before)})

    async def unreachable(self, limit: int) -> Sequence[UnreachableChat]:
        values = {"limit": limit}
        newest = await select_rows(self._engine, _SQL["unreachable"], values, _UNREACHABLE.read)
        return newest[::-1]


def apply_chat_write(connection: Connection, write: ChatWrite) -> None:
    match write:
        case PutSessionLocation(location):
            connection.execute(_SQL["put location"], _LOCATIONS.values(location))
        case AddSessionKey(record):
            conflict = f"The session key {record.key} already belongs to a chat."
            put_row(connection, _SQL["add key"], _KEYS.values(record), conflict)
        case PutQuestionPost(address, post, question, at):
            values = {"channel": address.channel, "chat": address.chat, "post": post}
            values |= {"question": question}
            connection.execute(_SQL["put question post"], {**values, "at": to_micros(at)})
        case AddStartedTurn():
            connection.execute(_SQL["add turn"], fields_of(write, at=to_micros(write.at)))
        case MarkUnreachable(chat):
            connection.execute(_SQL["mark unreachable"], _UNREACHABLE.values(chat))
        case ForgetUnreachable(topic):
            connection.execute(_SQL["forget unreachable"], {"topic": topic})
        case _:
            assert_never(write)
