"""A command to type next is about the profile that it was found in."""

import pytest

from hermes.cli.next_step import as_typed


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
    assert as_typed(text, "work") == typed
    assert as_typed(text, None) == text
