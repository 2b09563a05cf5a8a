"""Webhook subscriptions can change while the channel runs, and none is lost."""

import json
import logging
import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from hermes.channels.webhook.routes import Route, WebhookSettings
from hermes.channels.webhook.subscriptions import RouteTable, Subscriptions
from hermes.schema.errors import ConfigError

SECRET = "a-secret-of-some-length"
ENTRY: dict[str, object] = {"secret": SECRET}
OWN = Route(name="own", secret=SECRET, prompt="settings")


def other(number: int) -> dict[str, object]:
    """An entry with its own secret."""
    return {"secret": f"{SECRET}-{number}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "webhook_subscriptions.json"


def route_table(file: Path) -> RouteTable:
    return RouteTable(WebhookSettings(routes={"own": OWN}, secret=SECRET), Subscriptions(file))


def test_new_subscription_is_available_immediately(file: Path) -> None:
    book = route_table(file)
    assert set(book.routes()) == {"own"}
    subscriptions = Subscriptions(file)
    assert subscriptions.add("new", ENTRY)
    assert set(book.routes()) == {"own", "new"}
    assert subscriptions.remove("new")
    assert set(book.routes()) == {"own"}
    assert subscriptions.add("again", ENTRY)
    file.unlink()
    assert set(book.routes()) == {"own"}


def test_unchanged_file_is_not_read_again(file: Path) -> None:
    Subscriptions(file).add("new", ENTRY)
    book = route_table(file)
    assert book.routes() is book.routes()


def test_settings_override_subscriptions(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    Subscriptions(file).add("own", ENTRY | {"prompt": "file"})
    assert route_table(file).routes()["own"].prompt == "settings"
    assert "own: also in the settings" in caplog.text


def test_damaged_file_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    Subscriptions(file).add("new", ENTRY)
    book = route_table(file)
    book.routes()
    file.write_text("{")
    assert set(book.routes()) == {"own", "new"}
    assert "is damaged" in caplog.text
    with pytest.raises(ConfigError, match="damaged"):
        Subscriptions(file).add("other", ENTRY)
    assert file.read_text() == "{"


def test_broken_entry_does_not_affect_others(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(
        json.dumps({"good": other(1), "bad": {"secret": 5}, "later": other(2) | {"script": "x"}})
    )
    routes = route_table(file).routes()
    assert not routes["good"].unserved
    assert "secret" in routes["bad"].unserved
    assert "script" in routes["later"].unserved
    reply = [record.getMessage() for record in caplog.records]
    assert len(reply) == 2
    assert "route bad is not served" in reply[0]
    assert "route later is not served" in reply[1]


def test_warning_is_logged_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    subscriptions = Subscriptions(file)
    subscriptions.add("later", other(1) | {"script": "x"})
    book = route_table(file)
    book.routes()
    subscriptions.add("other", other(2))
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        book.routes()
    assert caplog.text == ""


def test_file_is_private_and_unknown_fields_are_kept(file: Path) -> None:
    file.write_text(json.dumps({"old": {"secret": SECRET, "mystery": [1]}}))
    file.chmod(0o644)
    Subscriptions(file).add("new", ENTRY)
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == {
        "old": {"secret": SECRET, "mystery": [1]},
        "new": {"secret": SECRET},
    }


def test_existing_name_is_not_replaced(file: Path) -> None:
    subscriptions = Subscriptions(file)
    assert subscriptions.add("a", ENTRY)
    assert not subscriptions.add("a", ENTRY | {"prompt": "other"})
    assert subscriptions.read() == {"a": ENTRY}
    assert not subscriptions.remove("b")


@pytest.mark.parametrize("text", ["[]", "5", '{"a": ', "\udcff"])
def test_invalid_file_is_reported(file: Path, text: str) -> None:
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match="damaged"):
        Subscriptions(file).read()


def test_empty_file_has_no_routes(file: Path) -> None:
    file.touch()
    assert Subscriptions(file).read() == {}


def test_unusable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="cannot be used"):
        Subscriptions(tmp_path / "folder").read()
    (tmp_path / "plain").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        Subscriptions(tmp_path / "plain" / "x.json").add("a", ENTRY)


def _add(file: str, first: int) -> None:
    for number in range(first, first + 20):
        Subscriptions(Path(file)).add(f"r{number}", dict(ENTRY))


def test_concurrent_writers_lose_nothing(file: Path) -> None:
    context = get_context("fork" if hasattr(os, "fork") else "spawn")
    writers = [context.Process(target=_add, args=(str(file), 20 * n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert len(Subscriptions(file).read()) == 60
