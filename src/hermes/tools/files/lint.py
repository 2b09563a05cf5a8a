"""Check the syntax of a file that was just edited, so that a slip is seen at once."""

import ast
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

MAX_CHECKED = 150_000
"""Characters; more would hold up the loop for too long."""
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Lint(Struct, frozen=True):
    """`status` is ok, error or skipped."""

    status: str
    output: str = ""


def check(path: Path, text: str, before: str | None = None) -> Lint:
    """Only the syntax; `before` tells an old fault from a new one."""
    checker = _CHECKERS.get(path.suffix.lower())
    if checker is None:
        return Lint("skipped")
    if len(text) > MAX_CHECKED:
        return Lint("skipped", "too long to check")
    fault = checker(text)
    if fault is None:
        return Lint("ok")
    if before is not None and len(before) <= MAX_CHECKED and checker(before) is not None:
        fault += " (the file had a syntax error before this edit too)"
    return Lint("error", fault)


def _python(text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "file", "exec", ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _json(text: str) -> str | None:
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"))
    except msgspec.DecodeError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return None


def _yaml(text: str) -> str | None:
    try:
        for _ in yaml.parse(text, Loader=_LOADER):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            pass
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return f"{line}{error.problem or error}"
    except yaml.YAMLError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return None


def _toml(text: str) -> str | None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return None


_CHECKERS: Mapping[str, Callable[[str], str | None]] = {
    ".py": _python,
    ".pyi": _python,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": _toml,
}
