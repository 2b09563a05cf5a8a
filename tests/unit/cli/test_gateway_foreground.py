"""`gateway run` prints the full status once and then only changes."""

import logging
from io import StringIO
from pathlib import Path

import pytest

from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.cli.verbs.gateway.foreground import MAX_CHANGE_LINES, StatusPrinter, log_to_stream
from hermes.config.home import Home
from hermes.kit.redact import MASK, Redactor


def snapshot(phase: Phase = Phase.RUNNING, turns: int = 0, **platforms: str) -> Snapshot:
    states = {name: PlatformState(state=state) for name, state in platforms.items()}
    return Snapshot(
        gateway_state=phase,
        served_profiles=("default", "work"),
        platforms=states,
        active_agents=turns,
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def test_only_changes_are_printed_after_the_first_status(home: Home) -> None:
    out = StringIO()
    tell = StatusPrinter(out, home)
    tell(snapshot(slack="connecting", webhook="connecting"))
    assert "running for profiles default, work" in out.getvalue()
    greeted = len(out.getvalue())
    tell(snapshot(slack="connecting", webhook="connected"))
    tell(snapshot(slack="connecting", webhook="connected"))
    assert out.getvalue()[greeted:] == "  webhook: connected\n"


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (0, "Stopping;"),
        (1, "Stopping after 1 running turn;"),
        (2, "after 2 running turns;"),
    ],
)
def test_stopping_is_printed_once(home: Home, turns: int, expected: str) -> None:
    out = StringIO()
    tell = StatusPrinter(out, home)
    for _ in range(3):
        tell(snapshot(Phase.DRAINING, turns))
    assert out.getvalue().count("Stopping") == 1
    assert expected in out.getvalue()


def test_platform_text_is_escaped(home: Home) -> None:
    out = StringIO()
    trouble = PlatformState(state="retrying", error_message="\x1b[2Jgone\nand more")
    StatusPrinter(out, home)(Snapshot(platforms={"irc": trouble}))
    assert "\x1b" not in out.getvalue()
    assert "gone and more)" in out.getvalue()


def test_number_of_status_lines_is_limited(home: Home) -> None:
    out = StringIO()
    tell = StatusPrinter(out, home)
    tell(snapshot(irc="connecting"))
    greeting = out.getvalue().count("\n")
    for number in range(MAX_CHANGE_LINES + 50):
        tell(snapshot(irc=f"state {number}"))
    assert out.getvalue().count("\n") == greeting + MAX_CHANGE_LINES


def test_closed_output_is_ignored(home: Home) -> None:
    out = StringIO()
    out.close()
    StatusPrinter(out, home)(snapshot(webhook="connected"))


def test_log_on_stream_is_redacted() -> None:
    screen = StringIO()
    log = logging.getLogger("hermes.some.part")
    with log_to_stream(screen, Redactor(["hunter2-hunter2"])):
        log.warning("the key is %s", "hunter2-hunter2")
    log.warning("not shown any more")
    assert screen.getvalue().endswith(f"hermes.some.part: the key is {MASK}\n")
