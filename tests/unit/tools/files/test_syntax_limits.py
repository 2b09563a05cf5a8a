"""Syntax checks of files made to break the parsers."""

import ast
import gc
from pathlib import Path

import pytest

from hermes.tools.files.lint import MAX_CHECKED, MAX_DEPTH, check_syntax
from support.cases import cases

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


@cases("name", BOMBS)
def test_deeply_nested_file_is_reported_quickly(name: str):
    lint = check_syntax(Path(name), BOMBS[name])
    assert (lint.status, lint.output) == ("error", "nested too deeply")


@pytest.mark.parametrize("name", BOMBS)
async def test_file_is_written_despite_the_fault(call, workspace: Path, name: str):
    answer = await call("write_file", path=name, content=BOMBS[name])
    assert answer["lint"]["status"] == "error"
    assert (workspace / name).read_text() == BOMBS[name]
    answer = await call("patch", path=name, old_string=BOMBS[name], new_string="x")
    assert (workspace / name).read_text() == "x"


@pytest.mark.parametrize(
    "text",
    ["-" * 149_000 + "1", "(" * 74_000, "a" + ".b" * 74_000, "1" + "+1" * 74_000],
)
def test_deeply_nested_python_is_a_syntax_error(text: str):
    assert check_syntax(Path("x.py"), text).status == "error"


def test_python_is_checked_while_another_thread_parses():
    """Python 3.11 raises SystemError if its parser is entered again while it builds a tree."""
    parsing: list[str] = []

    def parse_again(phase: str, info: dict[str, int], depth: int = 5) -> None:
        if depth:
            parse_again(phase, info, depth - 1)
        elif not parsing:
            parsing.append(phase)
            compile("x = [1]", "other", "exec", ast.PyCF_ONLY_AST)
            parsing.clear()

    gc.callbacks.append(parse_again)
    try:
        text = "".join(f"a{number} = [{number}, (1, 2)]\n" for number in range(2_000))
        assert check_syntax(Path("x.py"), text).status == "ok"
    finally:
        gc.callbacks.remove(parse_again)


def test_yaml_aliases_are_not_expanded():
    levels = "".join(f"l{n}: &l{n} [*l{n - 1}, *l{n - 1}]\n" for n in range(1, 2_000))
    assert check_syntax(Path("x.yaml"), f"l0: &l0 [x, x]\n{levels}").status == "ok"


def test_ordinary_nesting_is_accepted():
    deep = MAX_DEPTH - 10
    assert check_syntax(Path("x.yaml"), "[" * deep + "]" * deep).status == "ok"
    assert check_syntax(Path("x.toml"), ".".join("a" * deep) + " = 1").status == "ok"
    assert check_syntax(Path("x.toml"), f'"1.2" = "{". " * 500}"').status == "ok"


def test_overlong_file_is_skipped():
    assert check_syntax(Path("x.yaml"), "a" * (MAX_CHECKED + 1)).status == "skipped"
