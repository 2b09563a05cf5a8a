"""Formatting of problems in settings."""

from pathlib import Path

import pytest

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.config.loader import check_config
from hermes.config.problems import Problem, Severity

FILE = Path("/home/config.yaml")


@pytest.mark.parametrize(
    ("message", "line", "expected"),
    [
        ("no such thing", 3, "/home/config.yaml, line 3, column 1: no such thing"),
        ("no such thing", 0, "/home/config.yaml: no such thing"),
        ("/home/config.yaml cannot be read: why", 0, "/home/config.yaml cannot be read: why"),
    ],
)
def test_the_file_is_named_once(message: str, line: int, expected: str) -> None:
    column = 1 if line else 0
    problem = Problem(severity=Severity.ERROR, file=FILE, message=message, line=line, column=column)
    assert str(problem) == expected


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    (problem,) = check_config(resolve_home(Env({"HERMES_HOME": str(tmp_path)})), {})
    assert str(problem).count("config.yaml") == 1
