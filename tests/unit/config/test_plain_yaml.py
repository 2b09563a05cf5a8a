from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.config.plain_yaml import read_plain_yaml
from support.cases import cases
from support.examples import at_most

FULL = (Path(__file__).parent / "data" / "full.yaml").read_text()

PIECES = [
    *("a", "b_c", "key", "model", "yes", "on", "No", "null", "true", "~", "Off", "0", "12", "-3"),
    *(
        "1.5",
        "007",
        "1e5",
        "127.0.0.1",
        "1.2.",
        "01.2.3",
        "0x1f",
        "12:30",
        "2026-01-31",
        ".5",
        "..",
        ".",
        "./x",
        "~/x",
        "5m",
        "1_0",
    ),
    *(
        "-y",
        "--flag",
        "'q'",
        '"d"',
        "'it''s'",
        '"\\n"',
        "''",
        '""',
        "$X",
        "${X}",
        "/p",
        "http://h:1/x",
    ),
    *(": ", ":", " ", "  ", "    ", "\n", "\n  ", "\n- ", "\n  - ", "- ", "-", "#", " # c", "#c"),
    *(
        "[",
        "]",
        "{",
        "}",
        ", ",
        ",",
        "[]",
        "{}",
        "[a, b]",
        "{a: 1}",
        "{a: [x, 'y']}",
        "|",
        ">",
        "&a",
    ),
    *(
        "*a",
        "!t",
        "!!str x",
        "<<: ",
        "? ",
        "%",
        "@",
        "`",
        "\t",
        "\r\n",
        "é",
        "\u2028",
        "\x85",
        "---",
    ),
    *(
        "...",
        "=",
        "key:\n",
        "\nkey: ",
        "\n  key: ",
        "\n    key: x",
        "\n  b: 2",
        "word word",
        "\xa0",
    ),
]


def real(text: str) -> object:
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return Exception


def agrees(text: str) -> bool:
    plain = read_plain_yaml(text)
    return plain is None or (repr(plain) == repr(real(text) if real(text) is not None else {}))


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@at_most(400)
@example("a:\n- b: 1\n  c: 2\n- d\ne: x")
@example("a:\n- b:\n- c: 1")
@example("a: b\n# c\n  d")
@example("- a\n- b")
@example("a: [x, y]#z")
def test_plain_parser_agrees_with_pyyaml(text):
    assert agrees(text)


@pytest.mark.slow
@given(st.data())
@at_most(150)
def test_damaged_file_is_parsed_equally_or_rejected(data):
    lines = FULL.splitlines(keepends=True)
    start = data.draw(st.integers(0, len(lines) - 1))
    text = "".join(lines[start : start + data.draw(st.integers(1, 25))])
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[at + cut :]
    assert agrees(text)


@cases(
    ("text", "value"),
    [
        ("", {}),
        ("# only\n\n  # comments", {}),
        ("model: gpt-5 # mine\n", {"model": "gpt-5"}),
        (
            "a:\n  b:\n    c: 1\n  d: [x, 'y z', {e: 2.5}]\n",
            {"a": {"b": {"c": 1}, "d": ["x", "y z", {"e": 2.5}]}},
        ),
        ("a:\n- b: off\n  c: ~\n- d\ne:\n", {"a": [{"b": False, "c": None}, "d"], "e": None}),
        (
            "url: http://host:80/v1\ncwd: .\nargs: [-y, --x]\n",
            {"url": "http://host:80/v1", "cwd": ".", "args": ["-y", "--x"]},
        ),
        ("a: {}\nb: []\nc: ''\nd: \"é # :\"  # e", {"a": {}, "b": [], "c": "", "d": "é # :"}),
    ],
)
def test_common_files_are_read_without_the_library(text, value):
    assert read_plain_yaml(text) == value
    assert agrees(text)


@cases(
    "text",
    [
        *("a: |\n  x", "a: &x 1", "a: *x", "a: !t x", "? a", "a: 1\na: 2", "- a", "a: 1\n b: 2"),
        *("a: 'x", 'a: "\\t"', "yes: 1", "a: x: y", "a:\tb", "\ufeffa: 1", "a: 1\r\n", "---\na: 1"),
        *(
            "a: b\n  c",
            "a: [b",
            "a: [b,]",
            "a: 0x1",
            "a: 1:30",
            "just text",
            "a: 2026-01-01",
        ),
    ],
)
def test_other_yaml_is_left_to_pyyaml(text):
    assert read_plain_yaml(text) is None
