"""Updates that cannot be read are kept and logged once."""

import asyncio
import logging
import sqlite3
from email.errors import HeaderParseError
from pathlib import Path
from xml.etree.ElementTree import ParseError

import anyio
import msgspec
import pytest
from msgspec import Raw, Struct

from hermes.channels.unreadable_updates import MAX_FILE, UnreadableUpdates
from hermes.ports.channel import Offline
from hermes.testing.clock import FakeClock


class Item(Struct):
    id: int


class Page(Struct):
    found: tuple[Item, ...]
    names: tuple[str, ...] = ()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "unreadable" / "telegram.jsonl"


@pytest.fixture
def updates(path: Path) -> UnreadableUpdates:
    return UnreadableUpdates("telegram", path, FakeClock())


def kept_updates(path: Path) -> list[str]:
    return [msgspec.json.decode(line)["update"] for line in path.read_bytes().splitlines()]


def test_same_update_is_kept_and_logged_once(
    updates: UnreadableUpdates, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert updates.decode(b'{"id": "x"}', Item) is None
    assert kept_updates(path) == ['{"id": "x"}']
    assert len(caplog.records) == 1


def test_file_can_be_read_by_its_owner_only(updates: UnreadableUpdates, path: Path) -> None:
    updates.add("secret", ValueError("no"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_others_in_the_list_are_read(updates: UnreadableUpdates, path: Path) -> None:
    items = [Raw(b'{"id": 1}'), Raw(b'{"id": []}'), Raw(b'{"id": 3}')]
    assert updates.decode_each(items, Item) == [Item(1), Item(3)]
    assert kept_updates(path) == ['{"id": []}']


def test_rest_of_an_answer_is_read(updates: UnreadableUpdates, path: Path) -> None:
    data = b'{"found": [{"id": 1}, {"id": null}], "names": ["a"]}'
    assert updates.decode_rest(data, Page, Item) == Page((Item(1),), ("a",))
    assert kept_updates(path) == ['{"id":null}']


def test_answer_of_another_kind_is_an_error(updates: UnreadableUpdates) -> None:
    with pytest.raises(msgspec.MsgspecError):
        updates.decode_rest(b'{"found": 5}', Page, Item)


def test_unexpected_error_is_logged_with_its_place(
    updates: UnreadableUpdates, caplog: pytest.LogCaptureFixture
) -> None:
    with updates.skipping("update"):
        raise KeyError("chat")
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    "error",
    [
        Offline("cut"),
        OSError("disk"),
        sqlite3.OperationalError("database is locked"),
        MemoryError(),
        RuntimeError("can't start new thread"),
        asyncio.IncompleteReadError(b"", 1),
        anyio.EndOfStream(),
        anyio.BrokenResourceError(),
        ExceptionGroup("", [OSError("disk")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_the_content_cannot_cause_is_raised(
    updates: UnreadableUpdates, path: Path, error: Exception
) -> None:
    with pytest.raises(type(error)), updates.skipping("update"):
        raise error
    assert not path.exists()


@pytest.mark.parametrize(
    "error", [OverflowError(), RecursionError(), ParseError(), HeaderParseError(), AssertionError()]
)
def test_error_that_the_content_can_cause_is_skipped(
    updates: UnreadableUpdates, path: Path, error: Exception
) -> None:
    with updates.skipping("update"):
        raise error
    assert kept_updates(path) == ["update"]


def test_update_with_half_of_a_character_is_kept(updates: UnreadableUpdates, path: Path) -> None:
    with updates.skipping({"text": "a \ud800"}):
        raise ValueError
    (text,) = kept_updates(path)
    assert "a " in text


def test_large_file_begins_anew(updates: UnreadableUpdates, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * (MAX_FILE + 1))
    updates.add("new", ValueError("no"))
    assert kept_updates(path) == ["new"]
    assert path.with_suffix(".old").exists()


def test_update_is_skipped_even_if_it_cannot_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    updates = UnreadableUpdates("telegram", tmp_path / "file" / "telegram.jsonl", FakeClock())
    assert updates.decode(b"{", Item) is None
    assert "cannot be written" in caplog.messages[1]
