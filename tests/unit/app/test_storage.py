"""Opening a home that has a database of the public system, or ours under its former name."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes.app.build import AppOptions, open_app
from hermes.app.maintenance import ProfileMaintenance
from hermes.app.storage import LoggedProgress, open_archive
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.schema.errors import StoreCorrupt
from hermes.schema.scope import OWNER
from support.app_profile import ENV
from support.stored_sessions import simple_session

PUBLIC = """
CREATE TABLE schema_version (version INTEGER);
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
    timestamp REAL);
INSERT INTO sessions VALUES ('theirs', 'cli', 1);
INSERT INTO messages VALUES (1, 'theirs', 'user', 'hello', 1);
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    path = tmp_path / "home"
    path.mkdir()
    return Home(path, path)


def change_public(home: Home, script: str) -> None:
    with closing(sqlite3.connect(home.legacy_database)) as old:
        old.executescript(script)


async def test_opened_profile_has_the_sessions_of_the_public_system(home: Home):
    change_public(home, PUBLIC)
    env = Env({**ENV, "HOME": str(home.path.parent)})
    async with open_app(home, env, AppOptions(workspace=str(home.path.parent))) as app:
        archive = app.store.archive_for(OWNER)
        assert (await archive.get("theirs")).source == "cli"
        change_public(home, "INSERT INTO messages VALUES (2, 'theirs', 'user', 'more', 2)")
        await ProfileMaintenance(app).run_once()
        assert len(await archive.messages("theirs")) == 2


async def test_profile_opens_without_a_readable_public_database(
    home: Home, caplog: pytest.LogCaptureFixture
):
    async with open_archive(home, SystemClock()) as store:
        await store.commit(*simple_session("ours"))
    home.legacy_database.write_bytes(b"this is no database at all" * 100)
    env = Env({**ENV, "HOME": str(home.path.parent)})
    async with open_app(home, env, AppOptions(workspace=str(home.path.parent))) as app:
        assert (await app.store.archive_for(OWNER).get("ours")).id == "ours"
    assert "were not imported" in caplog.text


async def test_our_database_is_found_under_its_former_name(home: Home):
    async with open_archive(home, SystemClock()) as store:
        await store.commit(*simple_session("ours"))
    home.database.rename(home.legacy_database)
    assert home.has_sessions
    async with open_archive(home, SystemClock()) as store:
        assert (await store.archive_for(OWNER).get("ours")).id == "ours"
    assert home.database.exists()
    assert not home.legacy_database.exists()


async def test_lost_database_under_its_former_name_is_reported(home: Home):
    home.legacy_database.write_bytes(b"")
    with pytest.raises(StoreCorrupt):
        async with open_archive(home, SystemClock()):
            pass
    assert not home.database.exists()


def test_long_import_is_logged_in_tenths(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    progress = LoggedProgress()
    for done in range(0, 100_001, 500):
        progress(done, 100_000)
    assert len(caplog.messages) == 10
    assert caplog.messages[-1].endswith("100%")


def test_short_import_is_not_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    LoggedProgress()(500, 500)
    assert caplog.messages == []
