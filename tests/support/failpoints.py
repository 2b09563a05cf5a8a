"""Find all failpoints of the program and of the test platform; see `hermes.kit.failpoints`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import hermes

ROOTS = (Path(hermes.__path__[0]), Path(__file__).parent)


class BadFailpoint(AssertionError):
    """A failpoint name is not a literal or is used twice."""


def failpoints() -> dict[str, str]:
    """Return the name of each failpoint and the file that contains it."""
    found: dict[str, str] = {}
    for root in ROOTS:
        for path in sorted(root.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "failpoint(" not in text:
                continue
            where = str(path.relative_to(root))
            for name in _names(ast.parse(text), where):
                if name in found:
                    raise BadFailpoint(f"{name} is used in {found[name]} and in {where}")
                found[name] = where
    return found


def _names(tree: ast.AST, where: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="failpoint"), args=[ast.Constant(value=str(name))]):
                yield name
            case ast.Call(func=ast.Name(id="failpoint")):
                raise BadFailpoint(
                    f"{where}:{node.lineno}: the failpoint name must be a string literal"
                )
            case _:
                pass
