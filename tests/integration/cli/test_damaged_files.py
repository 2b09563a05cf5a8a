"""Emptied or damaged files of the home are reported and not overwritten."""

from pathlib import Path

import pytest

from support.cli_process import HermesCli


@pytest.fixture
def hermes(tmp_path: Path) -> HermesCli:
    return HermesCli(tmp_path, "http://127.0.0.1:9/v1")


@pytest.mark.parametrize("contents", [b"", b"SQLite for"])
def test_emptied_database_is_not_treated_as_new(hermes: HermesCli, contents: bytes) -> None:
    assert hermes("skills", "list").code == 0
    database = hermes.home / "hermes.db"
    assert hermes("gateway", "start").code == 0
    assert hermes("gateway", "stop").code == 0
    assert database.stat().st_size > 0
    database.write_bytes(contents)
    for words in (["sessions", "list"], ["gateway", "run"], ["-z", "hello"]):
        ran = hermes(*words)
        assert ran.code != 0
        assert "restore a backup" in ran.err
    assert "restore a backup" in hermes("doctor").out
    assert database.read_bytes() == contents
    database.unlink()
    assert hermes("sessions", "list").code == 0


def test_emptied_key_file_is_reported(hermes: HermesCli) -> None:
    assert hermes("auth", "add", "openrouter", stdin=b"sk-or-1234567890").code == 0
    file = hermes.home / "auth.json"
    kept = file.read_bytes()
    assert b"sk-or-1234567890" in kept
    for contents in (b"", kept[: len(kept) // 2]):
        file.write_bytes(contents)
        ran = hermes("auth", "add", "openai", stdin=b"sk-0987654321")
        assert (ran.code, "auth.json is damaged" in ran.err) == (78, True)
        assert file.read_bytes() == contents


def test_damaged_pairing_file_is_reported(hermes: HermesCli) -> None:
    folder = hermes.home / "platforms" / "pairing"
    folder.mkdir(parents=True)
    file = folder / "telegram-approved.json"
    for contents in (b"", b'{"12": {"user_na'):
        file.write_bytes(contents)
        ran = hermes("pairing", "list")
        assert "telegram-approved.json is damaged" in ran.out + ran.err
        assert "telegram-approved.json is damaged" in hermes("doctor").out
        assert file.read_bytes() == contents


def test_damaged_skill_usage_file_is_backed_up(hermes: HermesCli) -> None:
    assert hermes("skills", "list").code == 0
    made = hermes.home / "skills" / "own" / "SKILL.md"
    made.parent.mkdir(parents=True)
    made.write_text("---\nname: own\ndescription: what is done here\n---\nDo it.\n")
    notes = hermes.home / "skills" / ".usage.json"
    notes.write_bytes(b'{"other": {"pinned": tr')
    assert hermes("skills", "pin", "own").code == 0
    (kept,) = notes.parent.glob(".usage.json.broken-*")
    assert kept.read_bytes() == b'{"other": {"pinned": tr'
    assert b"own" in notes.read_bytes()
    assert kept.name in hermes("doctor").out
