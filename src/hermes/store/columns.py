"""Map a Struct of a port to the columns of its table.

Texts, numbers and enums are columns of their own type, times are whole microseconds, and anything
else is JSON in a BLOB.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cached_property, partial
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Raw, Struct

from hermes.schema.errors import StateConflict, StoreError
from hermes.store.connection import Connection, Row, Value
from hermes.store.engine import Engine
from hermes.store.rows import from_micros, to_micros, unreadable_error
from hermes.store.workers import SqliteWorkers

R = TypeVar("R")
S = TypeVar("S", bound=Struct)
log = logging.getLogger(__name__)


class Columns(Generic[S]):
    """Statements read the columns in the order of the fields; further columns may follow."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind

    @cached_property
    def _codecs(self) -> list[tuple[str, Callable[[Any], Value], Callable[[Any], Any]]]:
        hints = get_type_hints(self._kind)
        return [(name, *_codec_of(hints[name])) for name in self._kind.__struct_fields__]

    def values(self, record: S, **more: Value) -> dict[str, Value]:
        """The bindings of a record by column, and `more` of them."""
        fields = {name: encode(getattr(record, name)) for name, encode, _ in self._codecs}
        return {**fields, **more}

    def read(self, row: Row) -> S:
        """Raises `StoreError` with the value of the row's first column."""
        try:
            fields = {
                name: decode(value)
                for (name, _, decode), value in zip(self._codecs, row, strict=False)
            }
            return self._kind(**fields)
        except (ValueError, TypeError, RecursionError) as error:
            name = row[0] if isinstance(row[0], str) else ""
            raise unreadable_error(f"The {self._kind.__name__} {name!r}", error) from error


async def select_row(
    engine: Engine, sql: str, values: Mapping[str, Value], read: Callable[[Row], R]
) -> R | None:
    """The first row of a statement. Raises `StoreError` if it cannot be read."""

    def select(connection: Connection) -> R | None:
        rows = connection.execute(sql, values).fetchall()
        return read(rows[0]) if rows else None

    return await engine.read(select)


async def select_rows(
    engine: Engine, sql: str, values: Mapping[str, Value], read: Callable[[Row], R]
) -> list[R]:
    """The rows of a statement; one that cannot be read does not hide the others."""

    def select(connection: Connection) -> list[R]:
        return _readable_rows(connection.execute(sql, values).fetchall(), read)

    return await engine.read(select)


async def select_abandoned(
    engine: Engine, workers: SqliteWorkers, sql: str, read: Callable[[Row], R]
) -> list[R]:
    """The rows whose holder, the last column, belongs to a dead worker."""

    def select(connection: Connection) -> list[R]:
        rows = connection.execute(sql).fetchall()
        dead = [row for row in rows if not workers.is_alive(connection, str(row[-1]))]
        return _readable_rows(dead, read)

    return await engine.read(select)


def _readable_rows(rows: Iterable[Row], read: Callable[[Row], R]) -> list[R]:
    found: list[R] = []
    for row in rows:
        try:
            found.append(read(row))
        except StoreError as error:
            log.warning("%s", error)
    return found


def put_row(
    connection: Connection, statement: str, values: Mapping[str, Value], conflict: str
) -> None:
    """Write one row. Raises `StateConflict` if the statement's condition does not hold."""
    connection.execute(statement, values)
    if connection.changes() == 0:
        raise StateConflict(conflict)


def _codec_of(hint: Any) -> tuple[Callable[[Any], Value], Callable[[Any], Any]]:
    optional = NoneType in get_args(hint)
    kinds = [one for one in get_args(hint) if one is not NoneType] if optional else [hint]
    kind = kinds[0] if len(kinds) == 1 else object
    if kind is datetime:
        encode, decode = to_micros, from_micros
    elif kind is Raw:
        encode, decode = bytes, Raw
    elif isinstance(kind, type) and issubclass(kind, Enum):
        encode, decode = _enum_value, kind
    elif kind in (str, int, float, bool):
        encode, decode = _unchanged, partial(msgspec.convert, type=kind, strict=kind is not bool)
    else:
        encode, decode = msgspec.json.encode, partial(msgspec.json.decode, type=hint)
    return (partial(_unless_none, encode), partial(_unless_none, decode))


def _unless_none(convert: Callable[[Any], Any], value: object) -> Any:
    return None if value is None else convert(value)


def _enum_value(value: Enum) -> Value:
    return value.value


def _unchanged(value: Value) -> Value:
    return value
