"""Type-check the files that changed since the last successful check, and those they affect.

The result for a file depends on its text and on the declarations of the modules it imports,
directly or not. Digests of both are stored in `.venv`: a change within a function rechecks one
file, a changed declaration also the files that import it. `make types` checks everything.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from json import dumps, loads
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
KEPT = ROOT / ".venv" / ".typed"
DECLARATIONS = ROOT / ".venv" / ".declarations"
"""The digest of the declarations by the digest of the text: parsing all files takes seconds."""
AROUND = ("pyproject.toml", "requirements/dev.txt", "scripts/typed.py")
"""Files that affect every result: settings, package versions, this script."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Outside(ast.NodeTransformer):
    """Removes docstrings, and function bodies that other modules cannot depend on."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _is_text(node) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._without_body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._without_body(node)

    def _without_body(self, node: Function) -> ast.AST:
        node.body = node.body[_is_text(node.body[0]) :]
        if len(node.body) <= 1 or node.returns is None or _declares(node):
            return node
        yields = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))
        node.body = [ast.Expr(ast.Constant(yields))]
        return node


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def _declares(function: Function) -> bool:
    """Whether the body may determine the type of an attribute or a global name."""
    own = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][:1]
    for one in ast.walk(function):
        match one:
            case ast.Global():
                return True
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if name in own:
                return True
            case _:
                pass
    return False


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()


def _file(module: str) -> Path:
    path = SOURCES.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def digests(
    texts: Mapping[str, str],
    imported: Callable[[str], set[str]],
    declarations: dict[str, str] | None = None,
) -> dict[str, str]:
    """Return for each module a digest of everything its result depends on.

    `declarations` is read and replaced: the digests of declarations by those of their texts.
    """
    around = _digest(sys.version, *((ROOT / name).read_text("utf-8") for name in AROUND))
    known = {} if declarations is None else declarations
    keys = {module: _digest(around, text) for module, text in texts.items()}
    fresh = {key: known.get(key) or _outside(texts[module]) for module, key in keys.items()}
    known.clear()
    known.update(fresh)
    found: dict[str, str] = {}
    for module, key in keys.items():
        seen = [f"{one} {fresh[keys[one]]}" for one in sorted(imported(module))]
        found[module] = _digest(key, *seen)
    return found


def _outside(text: str) -> str:
    return _digest(ast.dump(Outside().visit(ast.parse(text))))


def _now() -> dict[str, str]:
    graph = grimp.build_graph("hermes", cache_dir=None)
    texts = {module: _file(module).read_text("utf-8") for module in graph.modules}
    declarations = _load(DECLARATIONS)
    before = dict(declarations)
    found = digests(texts, graph.find_upstream_modules, declarations)
    if declarations != before:
        DECLARATIONS.write_text(dumps(declarations))
    return {str(_file(module)): digest for module, digest in found.items()}


def _load(path: Path) -> dict[str, str]:
    try:
        return loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def main() -> int:
    now, before = _now(), _load(KEPT)
    changed = sorted(path for path, digest in now.items() if before.get(path) != digest)
    if not changed:
        sys.stdout.write(f"types: {len(now)} files, none changed since the last check\n")
        return 0
    checker = Path(sys.executable).with_name("basedpyright")
    these = changed if len(changed) < len(now) else []
    done = subprocess.run(  # noqa: S603
        [checker, *these], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    sys.stdout.write(f"types: {len(changed)} of {len(now)} files\n{done.stdout}")
    if done.returncode in (0, 1):
        wrong = {path for path in changed if path in done.stdout}
        KEPT.write_text(dumps({path: now[path] for path in now if path not in wrong}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
