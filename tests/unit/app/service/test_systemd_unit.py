"""The unit file: systemd reads back the intended values, whatever the paths are."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.app.service.systemd import Systemctl, make_unit, unit_path
from hermes.config.home import Home
from hermes.gateway.shutdown_budget import shutdown_seconds
from hermes.kit.errors import UsageError

WORDS = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"]), min_size=1)


def unit_of(home: Home, *command: str, **env: str):
    return make_unit(home, {"HOME": "/home/ann", **env}, command or ("/usr/bin/python",), 30)


def setting(text: str, name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return value


def read_back(value: str, *, command: bool) -> list[str]:
    """Undo quotes, escapes and specifiers in systemd's order."""
    args = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r'"((?:[^"\\]|\\.)*)"', value)]
    args = [word.replace("%%", "%") for word in args]
    return [word.replace("$$", "$") for word in args] if command else args


@given(st.lists(WORDS, min_size=1), WORDS)
def test_values_round_trip(words: list[str], path: str) -> None:
    text = unit_of(Home(Path("/h"), Path("/h")), "/usr/bin/python", *words, PATH=path).text
    assert read_back(setting(text, "ExecStart"), command=True) == ["/usr/bin/python", *words]
    assert read_back(setting(text, "Environment"), command=False) == [
        f"PATH={path}",
        "HERMES_HOME=/h",
    ]


def test_program_with_special_characters_is_started_by_env() -> None:
    text = unit_of(Home(Path("/h"), Path("/h")), '/a "b"/python').text
    assert read_back(setting(text, "ExecStart"), command=True) == ["/usr/bin/env", '/a "b"/python']


def test_control_characters_are_rejected() -> None:
    with pytest.raises(UsageError, match="control character"):
        unit_of(Home(Path("/h\nExecStart=evil"), Path("/h")))


def test_restart_and_watchdog_settings() -> None:
    text = unit_of(Home(Path("/h"), Path("/h/profiles/work"), "work")).text
    expected = {
        "Type": "notify", "Restart": "always", "RestartForceExitStatus": "75",
        "RestartPreventExitStatus": "78", "KillMode": "mixed", "TimeoutStopSec": "130",
        "SuccessExitStatus": "130 143", "WatchdogSec": "120", "WorkingDirectory": "/home/ann",
    }  # fmt: skip
    assert {name: setting(text, name) for name in expected} == expected
    assert int(setting(text, "TimeoutStopSec")) > shutdown_seconds(30)
    assert setting(text, "Environment") == '"HERMES_HOME=/h"'


def test_unit_path() -> None:
    home = Home(Path("/h"), Path("/h/profiles/work"), "work")
    name = "systemd/user/hermes-gateway-work.service"
    assert unit_path(home, {"HOME": "/home/ann"}) == Path("/home/ann/.config", name)
    assert unit_path(home, {"XDG_CONFIG_HOME": "/conf"}) == Path("/conf", name)


def test_missing_systemctl(tmp_path: Path) -> None:
    systemctl = Systemctl({"PATH": str(tmp_path)}, str(tmp_path / "systemctl"))
    assert not systemctl.works()
    assert systemctl.main_pid("x.service") == 0
    assert not systemctl.is_active("x.service")
