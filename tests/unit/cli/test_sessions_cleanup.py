"""`hermes sessions rename`, `delete`, `prune`, `stats`, `backup` and `optimize`."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from hermes.kit.errors import UsageError
from hermes.ports.store import RecordUsage
from hermes.schema.errors import NotFound, SessionBusy, StoreError
from hermes.schema.messages import Usage
from hermes.store.sqlite import open_store
from support.sessions_cli import CLOCK, SessionsCli
from support.stored_sessions import NOON, full_session, simple_session


@pytest.fixture
def cli(tmp_path: Path) -> SessionsCli:
    return SessionsCli(tmp_path / "home")


def test_rename_sets_and_removes_a_title(cli: SessionsCli) -> None:
    cli.store(*simple_session("s"), *simple_session("t", title="Taken"))
    assert cli("rename", "s", "A", "new  title").out == "s renamed to “A new title”.\n"
    assert cli("show", "A new title", "--json").documents[0]["id"] == "s"
    assert cli("rename", "s", "").out == "s has no title now.\n"
    with pytest.raises(StoreError, match="already has the title"):
        cli("rename", "s", "Taken")
    with pytest.raises(UsageError, match="201 characters"):
        cli("rename", "s", "x" * 201)


def test_delete_asks_for_confirmation(cli: SessionsCli) -> None:
    cli.store(*simple_session("s", title="Mine"), *simple_session("t"), *simple_session("u"))
    ran = cli("delete", "Mine", "t", typed="n\n")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "  s  Mine\n  t\nDelete 2 sessions permanently? [y/N] Nothing was changed.\n"
    assert cli("delete", "s", "t", "s", typed="yes\n").out == "Deleted 2 sessions.\n"
    assert [line["id"] for line in cli("list", "--json").documents] == ["u"]


def test_delete_without_terminal_needs_yes(cli: SessionsCli) -> None:
    cli.store(*simple_session("s"))
    with pytest.raises(UsageError, match="needs confirmation") as caught:
        cli("delete", "s")
    assert caught.value.exit_code == 2
    with pytest.raises(NotFound):
        cli("delete", "s", "unknown", "--yes")
    assert len(cli("list", "--json").lines) == 1


def test_session_with_running_turn_is_not_deleted(cli: SessionsCli) -> None:
    cli.store(*simple_session("s"), *simple_session("t"))

    async def hold() -> None:
        async with open_store(cli.database, CLOCK) as store:
            await store.leases.hold("s", "elsewhere/boot/1/1", timedelta(hours=1))

    anyio.run(hold)
    with pytest.raises(SessionBusy):
        cli("delete", "s", "t", "--yes")
    ran = cli("prune", "--source", "cli", "--yes")
    assert ran.out.endswith("Deleted 1 session.\n")
    assert "Kept, because a turn is running: s." in ran.err
    assert [line["id"] for line in cli("list", "--json").documents] == ["s"]


def test_prune_previews_the_sessions_to_delete(cli: SessionsCli) -> None:
    old = [
        write
        for n in range(30)
        for write in simple_session(f"old{n:02}", at=NOON - timedelta(days=99))
    ]
    cli.store(*old, *simple_session("new"))
    dry = cli("prune", "--older-than", "90d", "--dry-run")
    assert len(dry.lines) == 31
    assert dry.err == "30 sessions with 60 messages would be deleted.\n"
    with pytest.raises(UsageError, match="needs confirmation"):
        cli("prune", "--older-than", "90d")
    preview = cli("prune", "--older-than", "90d", typed="\n")
    assert (preview.code, len(preview.lines)) == (1, 21)
    assert "10 not shown" in preview.err
    assert cli("prune", "--older-than", "90d", "--yes").lines[-1] == "Deleted 30 sessions."
    assert [line["id"] for line in cli("list", "--json").documents] == ["new"]
    with pytest.raises(UsageError, match="Choose which"):
        cli("prune", "--yes")


def test_stats_mention_unknown_prices(cli: SessionsCli) -> None:
    cli.store(*full_session("s"), *simple_session("t", source="telegram"))
    text = cli("stats").out
    assert "2 sessions, 10 messages" in text
    assert "price unknown" in text
    assert "Cost: $0.7500, not counting 1 model with price unknown." in text
    (document,) = cli("stats", "--json").documents
    assert document["sources"] == [
        {"source": "cli", "sessions": 1, "messages": 8},
        {"source": "telegram", "sessions": 1, "messages": 2},
    ]
    assert [(use["model"], use["calls"], use["cost"]) for use in document["models"]] == [
        ("big-model", 2, 0.75),
        ("cheap", 1, None),
    ]
    assert document["bytes"] > 0


def test_stats_without_prices_show_no_cost(cli: SessionsCli) -> None:
    cli.store(*simple_session("t"))
    assert "cost" not in cli("stats").out.lower()
    cli.store(RecordUsage("t", "r", "m", "p", Usage(5, 1), None, NOON))
    assert "Cost unknown: no price for 1 model." in cli("stats").out
    assert "$" not in cli("stats").out


def test_backup_is_a_complete_database(cli: SessionsCli, tmp_path: Path) -> None:
    cli.store(*simple_session("s"))
    copy = SessionsCli(tmp_path / "copy")
    copy.home.mkdir()
    assert cli("backup", str(copy.database)).out.startswith("Copied ")
    assert copy("list", "--json").out == cli("list", "--json").out
    with pytest.raises(UsageError, match="already exists"):
        cli("backup", str(copy.database))
    with pytest.raises(UsageError, match="does not exist"):
        cli("backup", str(tmp_path / "no" / "x.db"))


def test_optimize_shrinks_the_database(cli: SessionsCli) -> None:
    cli.store(*simple_session("s", words=["word " * 20_000] * 20), *simple_session("t"))
    before = cli("stats", "--json").documents[0]["bytes"]
    cli("delete", "s", "--yes")
    assert "The database now takes" in cli("optimize").out
    assert cli("stats", "--json").documents[0]["bytes"] < before / 2
