"""The value of a setting, parsed from a command line argument."""

import pytest

from hermes.config.editor import (
    parse_value,
)
from hermes.kit.errors import UsageError
from support.cases import cases


@cases(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("[a, 2]", ["a", 2]),
        ("{a: b}", {"a": "b"}),
        ('"12"', "12"),
        ("'it'", "it"),
        ("007", "007"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("yes", "yes"),
        ("a: b", "a: b"),
        ("it's", "it's"),
        ('"half', '"half'),
        ("", ""),
        ("  padded ", "  padded "),
    ],
)
def test_values_are_parsed_by_form(text, value):
    read = parse_value(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", ["[a", "{a: ", "[a]]"])
def test_unclosed_list_is_refused(text):
    with pytest.raises(UsageError, match="not a valid list"):
        parse_value(text)


def test_text_setting_keeps_text():
    assert parse_value("12", ("timezone",)) == "12"
    assert parse_value("off", ("approvals", "mode")) == "off"
    assert parse_value("true", ("agent", "verbose")) is True
    assert parse_value("5", ("providers", "x", "model")) == "5"


def test_overlong_number_is_text(home):
    assert parse_value("9" * 5_000) == "9" * 5_000
