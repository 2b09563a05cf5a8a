"""Check the syntax of a file that was just edited, so that a slip is seen at once."""

import ast
import re
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

MAX_CHECKED = 150_000
"""Characters; more would take too long."""
MAX_DEPTH = 200
"""Levels; the parsers take the square of it, and no file that people write comes near."""
_TOO_DEEP = "nested too deeply"
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"""
)
"""A dotted key of TOML, each dot of which is a level."""
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
        return _TOO_DEEP
    return None


def _yaml(text: str) -> str | None:
    """Events only: no alias is followed, however often it doubles what it stands for."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - it has no types
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return _TOO_DEEP
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return f"{line}{error.problem or error}"
    except yaml.YAMLError as error:
        return str(error)
    except RecursionError:
        return _TOO_DEEP
    return None


def _toml(text: str) -> str | None:
    if _LONG_KEY.search(text):
        return _TOO_DEEP
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    except RecursionError:
        return _TOO_DEEP
    return None


_CHECKERS: Mapping[str, Callable[[str], str | None]] = {
    ".py": _python,
    ".pyi": _python,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": _toml,
}
