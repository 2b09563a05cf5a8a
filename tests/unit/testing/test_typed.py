"""`make check` type-checks every file that a change can affect."""

import ast
import runpy
from pathlib import Path

import pytest

from support.cases import cases

TYPED = runpy.run_path(str(Path(__file__).parents[3] / "scripts" / "typed.py"))

BEFORE = '''
import os

LIMIT: int = 3

class Box:
    """A box."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lid = None

    def open(self, far: bool = False) -> str:
        word = "open"
        return word

    def all(self) -> list[int]:
        found = [1]
        return found
'''


def outside(text: str) -> str:
    return ast.dump(TYPED["Outside"]().visit(ast.parse(text)))


@cases(
    ("old", "new"),
    [
        ('word = "open"', "word = os.fspath('open')"),
        ("found = [1]\n        return found", "return [2, 3] if self.lid else []; pass"),
        (
            '        word = "open"\n',
            '        """Opens."""\n        word = "open"\n        del far\n',
        ),
        ("A box.", "A box with a lid."),
        ("LIMIT: int = 3", 'LIMIT: int = 3\n"""Of boxes."""'),
    ],
)
def test_change_inside_a_function_or_docstring_is_not_public(old: str, new: str) -> None:
    assert outside(BEFORE.replace(old, new)) == outside(BEFORE) != outside("")
    assert BEFORE.replace(old, new) != BEFORE


@cases(
    ("old", "new"),
    [
        ("LIMIT: int = 3", "LIMIT: float = 3"),
        ("size: int", "size: float"),
        ("far: bool = False", "far: bool"),
        ("-> str:", "-> str | None:"),
        ("self.lid = None", "self.lid = 'shut'"),
        ('word = "open"', "self.word = 'open'"),
        ('word = "open"', "global LIMIT; word = 'open'"),
        ("found = [1]", "yield 1"),
        ("def all", "async def all"),
        ("def all", "@property\n    def all"),
        ("-> list[int]:", ":"),
        ("found = [1]\n        return found", "..."),
    ],
)
def test_change_of_a_signature_or_attribute_is_public(old: str, new: str) -> None:
    assert outside(BEFORE.replace(old, new)) != outside(BEFORE)


@pytest.mark.parametrize(
    ("changed", "old", "new", "reached"),
    [
        ("box", "-> str:", "-> bytes:", {"box", "room", "house"}),
        ("box", 'word = "open"', 'word = "shut"', {"box"}),
        ("room", "ROOM = 1", "ROOM = 2", {"room", "house"}),
        ("garden", "GARDEN = 1", "GARDEN = 2", {"garden"}),
    ],
)
def test_public_change_reaches_transitive_importers(
    changed: str, old: str, new: str, reached: set[str]
) -> None:
    texts = {"box": BEFORE, "room": "ROOM = 1", "house": "", "garden": "GARDEN = 1"}
    imported = {"box": set(), "room": {"box"}, "house": {"room", "box"}, "garden": set()}
    declarations: dict[str, str] = {}
    before = TYPED["digests"](texts, imported.__getitem__, declarations)
    texts[changed] = texts[changed].replace(old, new)
    after = TYPED["digests"](texts, imported.__getitem__, declarations)
    assert after == TYPED["digests"](texts, imported.__getitem__), "known declarations differ"
    assert {one for one in texts if before[one] != after[one]} == reached
