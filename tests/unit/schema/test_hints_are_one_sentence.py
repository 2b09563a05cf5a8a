"""Every error hint in the source is one sentence."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes
from support.faults.scenarios import sentences

ROOT = Path(hermes.__file__).parent


def _texts(node: ast.expr) -> Iterator[str]:
    """The text as far as it stands there; what is put into it is one word."""
    match node:
        case ast.Constant(value=str(said)):
            yield said
        case ast.JoinedStr(values=parts):
            yield "".join(next(_texts(part), "X") for part in parts)
        case ast.BoolOp(values=either):
            for one in either:
                yield from _texts(one)
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.BinOp(left=left, right=right):
            yield next(_texts(left), "X") + next(_texts(right), "X")
        case _:
            yield "X"


def _hints() -> Iterator[tuple[str, str]]:
    for file in ROOT.rglob("*.py"):
        text = file.read_bytes()
        for node in ast.walk(ast.parse(text)) if b"hint" in text else ():
            if isinstance(node, ast.Call):
                for word in node.keywords:
                    if word.arg == "hint":
                        where = f"{file.relative_to(ROOT)}:{word.value.lineno}"
                        yield from ((where, text) for text in _texts(word.value))


@pytest.mark.slow
def test_a_hint_is_one_sentence() -> None:
    found = list(_hints())
    assert len(found) > 100
    assert {where: hint for where, hint in found if len(sentences(hint)) > 1} == {}
