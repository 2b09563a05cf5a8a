"""`hermes logs` filters, follows and escapes records."""

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.logs import RotatingFile
from support.cli_process import HermesCli
from support.stored_sessions import simple_session, write_store


@pytest.fixture
def hermes(tmp_path: Path) -> HermesCli:
    return HermesCli(tmp_path, "http://127.0.0.1:9/v1")


@pytest.fixture
def log(hermes: HermesCli) -> RotatingFile:
    return RotatingFile(hermes.home / "logs" / "agent.log", 1000, 3)


def record(
    number: int, level: str = "INFO", *, at: datetime | None = None, more: str = ""
) -> bytes:
    when = (at or datetime.now(UTC)).astimezone()
    text = f"{when:%Y-%m-%d %H:%M:%S},000 {level} [7] hermes.x: n{number}{more}\n"
    return text.encode()


def numbers(text: str) -> list[int]:
    return [int(line.rpartition(": n")[2].split()[0]) for line in text.splitlines()]


def test_missing_log_is_reported(hermes: HermesCli) -> None:
    ran = hermes("logs")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith(" does not exist yet\n")


def test_last_records_include_rotated_files(hermes: HermesCli, log: RotatingFile) -> None:
    for number in range(40):
        log.append(record(number))
    assert numbers(hermes("logs", "-n", "25").out) == list(range(15, 40))
    assert hermes("logs", "-n", "0").out == ""
    assert hermes("logs", "-n", "-1").code == 2


def test_records_are_filtered_by_level_and_age(hermes: HermesCli, log: RotatingFile) -> None:
    log.append(record(1, "ERROR", at=datetime.now(UTC) - timedelta(days=3)))
    log.append(record(2))
    log.append(record(3, "WARNING"))
    assert numbers(hermes("logs", "--level", "warning").out) == [1, 3]
    assert numbers(hermes("logs", "--level", "warning", "--since", "2d").out) == [3]
    assert numbers(hermes("logs", "--since", "4d").out) == [1, 2, 3]
    assert numbers(hermes("logs", "--since", "yesterday").out) == [2, 3]
    assert numbers(hermes("logs", "--since", "2020-01-31").out) == [1, 2, 3]
    odd = hermes("logs", "--since", "lately")
    assert odd.code == 2
    assert "'lately' is not a time; use 2026-01-31" in odd.err


def test_records_are_filtered_by_session_title(hermes: HermesCli, log: RotatingFile) -> None:
    write_store(hermes.home / "hermes.db", *simple_session("ses_one", title="garden"))
    log.append(record(1, more=" of session ses_one"))
    log.append(record(2, more=" of session ses_two"))
    assert numbers(hermes("logs", "--session", "ses_one").out) == [1]
    assert numbers(hermes("logs", "--session", "ses_two").out) == [2]
    assert numbers(hermes("logs", "--session", "garden").out) == [1]


def test_records_are_filtered_by_session_preview(hermes: HermesCli, log: RotatingFile) -> None:
    write_store(hermes.home / "hermes.db", *simple_session("ses_one"))
    log.append(record(1, more=" of session ses_one"))
    log.append(record(2, more=" of session ses_two"))
    listed = hermes("sessions", "list").out.splitlines()[-1]
    name = listed[listed.index("“") :]
    for called in (name, name[:4] + "…", name.strip("“”")):
        assert numbers(hermes("logs", "--session", called).out) == [1], called


@pytest.mark.parametrize("more", [(), ("-f",)])
def test_unknown_session_is_reported(
    hermes: HermesCli, log: RotatingFile, more: tuple[str, ...]
) -> None:
    log.append(record(1, more=" of session ses_one"))
    for session in ("ses_one", "ses_two"):
        ran = hermes("logs", "--session", "nope", *more)
        assert (ran.code, ran.out) == (1, "")
        assert "Unknown session: 'nope'. No log record mentions it." in ran.err
        assert ran.err.endswith("hermes sessions list\n")
        write_store(hermes.home / "hermes.db", *simple_session(session))


def test_log_text_is_escaped(hermes: HermesCli, log: RotatingFile) -> None:
    log.append(record(1, more=" \x1b[2J\x1b]0;owned\x07"))
    assert "\x1b" not in hermes("logs").out


def test_follow_prints_new_records_until_interrupted(hermes: HermesCli, log: RotatingFile) -> None:
    log.append(record(0))
    with hermes.running("logs", "-f") as running:
        running.wait_for(": n0\n")
        for number in range(1, 31):
            log.append(record(number))
        running.wait_for(": n30\n")
        ran = running.send_signal(signal.SIGINT)
    assert numbers(ran.out) == list(range(31))
    assert (ran.code, ran.err) == (130, "")


def test_other_logs_can_be_shown(hermes: HermesCli, log: RotatingFile) -> None:
    log.append(record(1))
    (hermes.home / "logs" / "errors.log").write_bytes(record(2, "ERROR"))
    (hermes.home / "logs" / "gateway.log").write_text("it began\nit ended\n")
    assert numbers(hermes("logs", "errors").out) == [2]
    assert hermes("logs", "gateway", "-n", "1").out == "it ended\n"
    refused = hermes("logs", "xyzzy")
    assert refused.code == 2
    assert "hermes logs --help" in refused.err


def test_disabled_toolset_is_not_offered_to_the_model(hermes: HermesCli) -> None:
    """The change reaches the next request to the model."""
    assert hermes("tools", "disable", "terminal").out == "terminal: disabled on all platforms\n"
    rows = {one["name"]: one["on"] for one in json.loads(hermes("tools", "list", "--json").out)}
    assert rows["terminal"] == {"cli": False}
    assert rows["file"] == {"cli": True}
    again = hermes("tools", "disable", "terminal")
    assert again.err == "No change.\n"
