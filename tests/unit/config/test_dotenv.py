import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.env import (
    parse_dotenv,
    quote_value,
    read_dotenv,
    with_variable,
    without_variable,
)
from hermes.kit.errors import ConfigError
from support.cases import cases

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
lines = st.lists(
    st.one_of(
        st.just(""),
        st.just("   "),
        st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])).map(
            lambda text: "#" + text
        ),
        st.builds(
            lambda n, v, e: f"{e}{n}={quote_value(v)}",
            names,
            values,
            st.sampled_from(["", "export "]),
        ),
    ),
    max_size=8,
)
newlines = st.sampled_from(["\n", "\r\n"])


@st.composite
def files(draw) -> str:
    newline = draw(newlines)
    text = "".join(line + newline for line in draw(lines))
    return text.removesuffix(newline) if draw(st.booleans()) else text


def parsed(text: str) -> dict[str, str]:
    return {entry.name: entry.value for entry in parse_dotenv(text)}


@cases(
    ("text", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("export A=1\n", {"A": "1"}),
        ("  A = spaced out  \n", {"A": "spaced out"}),
        ("A=1 # one\nB=#no\nC= # nothing\n", {"A": "1", "B": "#no", "C": ""}),
        ("A='single # $x \\n'", {"A": "single # $x \\n"}),
        (r'A="tab\tquote\" dollar\$ back\\ other\x"', {"A": 'tab\tquote" dollar$ back\\ other\\x'}),
        ('A="first\nsecond"\nB=2', {"A": "first\nsecond", "B": "2"}),
        ("A=1\r\nB='2'  # two\r\n", {"A": "1", "B": "2"}),
        ("\ufeffA=1", {"A": "1"}),
        ("A=1\nA=2", {"A": "2"}),
        ("# only a comment", {}),
        ("A=a=b", {"A": "a=b"}),
        ("", {}),
    ],
)
def test_supported_forms_of_a_line(text: str, expected: dict[str, str]):
    assert parsed(text) == expected


@cases(
    ("text", "message"),
    [
        ("A=1\nsk-secret\n", "f.env, line 2: expected NAME=value, but there is no ="),
        ("1A=2", "f.env, line 1: expected NAME=value, but the text before = is not a name"),
        ('A="x\ny\nB=1', "f.env, line 1: the value of A has no closing quote"),
        ("\nA='x", "f.env, line 2: the value of A has no closing quote"),
        ('A="x" y', "f.env, line 1: there is text after the closing quote of A"),
        ('A="1\n2\n3"\nB', "f.env, line 4: expected NAME=value, but there is no ="),
    ],
)
def test_errors_name_file_and_line_but_no_secret(text: str, message: str):
    with pytest.raises(ConfigError) as caught:
        parse_dotenv(text, "f.env")
    assert str(caught.value) == message
    assert caught.value.hint


@given(values)
def test_every_value_survives_writing_and_reading(value: str):
    assert parsed(f"A={quote_value(value)}\nB=2") == {"A": value, "B": "2"}


@given(files(), names, values)
def test_setting_changes_nothing_else(text: str, name: str, value: str):
    new = with_variable(text, name, value)
    assert parsed(new) == {**parsed(text), name: value}
    entries = [entry for entry in parse_dotenv(text) if entry.name == name]
    if entries:
        last = entries[-1]
        assert new.startswith(text[: last.value_start])
        assert new.endswith(text[last.value_end :])
    else:
        assert new.startswith(text)


@given(files(), names)
def test_unsetting_keeps_every_other_byte(text: str, name: str):
    new = without_variable(text, name)
    assert parsed(new) == {key: value for key, value in parsed(text).items() if key != name}
    rest = text
    for entry in reversed(parse_dotenv(text)):
        if entry.name == name:
            after = rest[entry.end :]
            rest = rest[: entry.start] + after.removeprefix("\r\n" if after[:1] == "\r" else "\n")
    assert new == rest


@given(files(), names, values)
def test_set_then_unset_restores_the_text(text: str, name: str, value: str):
    if name not in parsed(text):
        added = with_variable(text, name, value)
        kept = without_variable(added, name)
        assert kept in (text, text + "\n", text + "\r\n")


@cases("name", ["", "1A", "A-B", "A B", "A=B", "É"])
def test_invalid_variable_name_is_refused(name: str):
    with pytest.raises(ConfigError, match="not a valid variable name"):
        with_variable("", name, "x")


def test_null_byte_is_refused():
    with pytest.raises(ConfigError, match="null byte"):
        with_variable("", "A", "x\0y")


def test_missing_env_file_sets_nothing(tmp_path):
    assert read_dotenv(tmp_path / ".env") == {}


def test_unreadable_env_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_dotenv(tmp_path)
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match="byte 2 is not UTF-8"):
        read_dotenv(tmp_path / ".env")


def test_line_of_spaces_is_fast():
    spaces = " \t" * 400_000
    assert parse_dotenv(f"A=1{spaces}2{spaces}# note")[0].value == f"1{spaces}2"


@pytest.mark.slow
def test_removing_one_of_many_lines_is_fast():
    many = "A=1\nB=2\n" * 50_000
    assert without_variable(many, "A") == "B=2\n" * 50_000


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
def test_special_file_is_refused_immediately(kind: str, tmp_path: Path):
    path = tmp_path / ".env"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        read_dotenv(path)
    assert caught.value.hint
