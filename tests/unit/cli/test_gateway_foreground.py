"""What `gateway run` shows: how things are at first, then only what changes."""

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


def test_only_changes_are_told_again(home: Home) -> None:
    out = StringIO()
    tell = StatusPrinter(out, home)
    tell(snapshot(slack="connecting", webhook="connecting"))
    assert "serves the profiles default, work" in out.getvalue()
    greeted = len(out.getvalue())
    tell(snapshot(slack="connecting", webhook="connected"))
    tell(snapshot(slack="connecting", webhook="connected"))
    assert out.getvalue()[greeted:] == "  webhook: connected\n"


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (0, "Stopping;"),
        (1, "Stopping once 1 running turn has ended"),
        (2, "once 2 running turns have"),
    ],
)
def test_the_end_is_told_once(home: Home, turns: int, said: str) -> None:
    out = StringIO()
    tell = StatusPrinter(out, home)
    for _ in range(3):
        tell(snapshot(Phase.DRAINING, turns))
    assert out.getvalue().count("Stopping") == 1
    assert said in out.getvalue()


def test_a_platform_cannot_draw_on_the_screen(home: Home) -> None:
    out = StringIO()
    trouble = PlatformState(state="retrying", error_message="\x1b[2Jgone\nand more")
    StatusPrinter(out, home)(Snapshot(platforms={"irc": trouble}))
    assert "\x1b" not in out.getvalue()
    assert "gone and more)" in out.getvalue()


def test_an_unsteady_channel_does_not_fill_a_file(home: Home) -> None:
    out = StringIO()
    tell = StatusPrinter(out, home)
    tell(snapshot(irc="connecting"))
    greeting = out.getvalue().count("\n")
    for number in range(MAX_CHANGE_LINES + 50):
        tell(snapshot(irc=f"state {number}"))
    assert out.getvalue().count("\n") == greeting + MAX_CHANGE_LINES


def test_a_screen_that_is_gone_is_no_trouble(home: Home) -> None:
    out = StringIO()
    out.close()
    StatusPrinter(out, home)(snapshot(webhook="connected"))


def test_the_log_is_shown_without_secrets() -> None:
    screen = StringIO()
    log = logging.getLogger("hermes.some.part")
    with log_to_stream(screen, Redactor(["hunter2-hunter2"])):
        log.warning("the key is %s", "hunter2-hunter2")
    log.warning("not shown any more")
    assert screen.getvalue().endswith(f"hermes.some.part: the key is {MASK}\n")
