"""Suggested commands include the profile flag."""

import pytest

from hermes.cli.context import with_profile_flag


@pytest.mark.parametrize(
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
    assert with_profile_flag(text, "work") == typed
    assert with_profile_flag(text, None) == text
