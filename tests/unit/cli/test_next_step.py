"""A command to type next is about the profile that it was found in."""

import pytest

from hermes.cli.profile_hints import with_profile_flag


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
def test_only_commands_are_meant(text: str, typed: str) -> None:
    assert with_profile_flag(text, "work") == typed
    assert with_profile_flag(text, None) == text
