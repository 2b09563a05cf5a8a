"""Fail when a function in src/hermes has more than 40 lines, from `def` to its end.

usage: function_lengths.py
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_LINES = 40
EXCEPTIONS = {
    ("src/hermes/app/gateway.py", "build_gateway"): "a table of what a gateway is made of",
}
"""File and name of functions that may be longer, each with the reason."""


def long_functions(path: Path) -> Iterator[tuple[int, str, int]]:
    """Yield line, name and length."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_LINES:
                yield node.lineno, node.name, length


def findings() -> Iterator[str]:
    unused = set(EXCEPTIONS)
    for path in sorted((ROOT / "src" / "hermes").rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for line, name, length in long_functions(path):
            unused.discard((file, name))
            if (file, name) not in EXCEPTIONS:
                yield f"{file}:{line}: {name} has {length} lines; at most {MAX_LINES} are allowed"
    for file, name in sorted(unused):
        yield f"{file}: {name} is no longer too long; remove it from EXCEPTIONS"


def main() -> int:
    found = [*findings()]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
