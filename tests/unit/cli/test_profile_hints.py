"""Suggested commands include the profile flag."""

import io

from hermes.cli.context import CliContext
from hermes.config.env import Env
from support.cases import cases


@cases(
    ("text", "typed"),
    [
        ("hermes setup", "hermes -p work setup"),
        ("try: hermes gateway start", "try: hermes -p work gateway start"),
        ("(hermes -z hello)", "(hermes -p work -z hello)"),
        ("chmod 600 /srv/hermes status/.env", "chmod 600 /srv/hermes status/.env"),
        ("hermes is a name", "hermes is a name"),
        ("hermes profile create work", "hermes profile create work"),
        ("~/.hermes status", "~/.hermes status"),
    ],
)
def test_profile_flag_is_added_only_to_commands(text: str, typed: str) -> None:
    streams = (io.StringIO(), io.StringIO(), io.StringIO())
    assert CliContext(Env({}), "work", streams).with_profile(text) == typed
    assert CliContext(Env({}), None, streams).with_profile(text) == text
