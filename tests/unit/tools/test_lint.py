"""Checks of syntax meet files that were made to break them."""

from pathlib import Path

import pytest

from hermes.tools.files.lint import MAX_CHECKED, MAX_DEPTH, check_syntax

BOMBS = {
    "flow.yaml": "[" * 149_000,
    "flow-map.yaml": "{a: " * 37_000,
    "mixed.yaml": "[a, " * 37_000,
    "dashes.yaml": "- " * 74_000,
    "questions.yml": "? " * 74_000,
    "dots.toml": "a" + ".a" * 74_000 + "=1",
    "quoted.toml": '"a"' + ".'b'" * 37_000 + "=1",
    "table.toml": "[" + "a." * 74_000 + "a]",
    "array.toml": "a=" + "[" * 149_000,
    "array.json": "[" * 149_000,
}
"""Each of these took a parser seconds, minutes, or its stack."""


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_nested_without_end_is_told_at_once(name: str):
    lint = check_syntax(Path(name), BOMBS[name])
    assert (lint.status, lint.output) == ("error", "nested too deeply")


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.anyio
async def test_such_a_file_is_written_all_the_same(call, workspace: Path, name: str):
    answer = await call("write_file", path=name, content=BOMBS[name])
    assert answer["lint"]["status"] == "error"
    assert (workspace / name).read_text() == BOMBS[name]
    answer = await call("patch", path=name, old_string=BOMBS[name], new_string="x")
    assert (workspace / name).read_text() == "x"


@pytest.mark.parametrize(
    "text",
    ["-" * 149_000 + "1", "(" * 74_000, "a" + ".b" * 74_000, "1" + "+1" * 74_000],
)
def test_python_without_end_is_an_error_like_any_other(text: str):
    assert check_syntax(Path("x.py"), text).status == "error"


def test_aliases_that_double_each_other_are_not_followed():
    levels = "".join(f"l{n}: &l{n} [*l{n - 1}, *l{n - 1}]\n" for n in range(1, 2_000))
    assert check_syntax(Path("x.yaml"), f"l0: &l0 [x, x]\n{levels}").status == "ok"


def test_what_is_nested_as_people_do_is_fine():
    deep = MAX_DEPTH - 10
    assert check_syntax(Path("x.yaml"), "[" * deep + "]" * deep).status == "ok"
    assert check_syntax(Path("x.toml"), ".".join("a" * deep) + " = 1").status == "ok"
    assert check_syntax(Path("x.toml"), f'"1.2" = "{". " * 500}"').status == "ok"


def test_what_is_too_long_is_skipped():
    assert check_syntax(Path("x.yaml"), "a" * (MAX_CHECKED + 1)).status == "skipped"
