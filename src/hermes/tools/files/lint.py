"""Check the syntax of an edited file, so that mistakes are noticed immediately."""

import ast
import re
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from hermes.kit.text import one_line
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.schema.errors import SandboxError

MAX_CHECKED = 150_000
"""Characters; longer files take too long."""
MAX_DEPTH = 200
"""Nesting levels; parsers take quadratic time, and real files are not that deep."""
_TOO_DEEP = "nested too deeply"
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"""
)
"""A dotted TOML key, each dot of which is a level."""
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class LintResult(Struct, frozen=True):
    """`status` is ok, error or skipped."""

    status: str
    output: str = ""


def check_syntax(path: Path, text: str, before: str | None = None) -> LintResult:
    """Check only the syntax; `before` distinguishes an old fault from a new one."""
    checker = _CHECKERS.get(path.suffix.lower())
    if checker is None:
        return LintResult("skipped")
    if len(text) > MAX_CHECKED:
        return LintResult("skipped", "too long to check")
    fault = _fault(checker, text)
    if fault is None:
        return LintResult("ok")
    if before is not None and len(before) <= MAX_CHECKED and _fault(checker, before) is not None:
        fault += " (the file had a syntax error before this edit too)"
    return LintResult("error", fault)


def _fault(checker: Callable[[str], str | None], text: str) -> str | None:
    try:
        return checker(text)
    except RecursionError:
        return _TOO_DEEP


def _python(text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "file", "exec", ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    except SystemError:
        # Python 3.11 counts levels of all threads together while it builds the tree, after parsing.
        return None
    return None


def _json(text: str) -> str | None:
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"))
    except msgspec.DecodeError as error:
        return str(error)
    return None


def _yaml(text: str) -> str | None:
    """Parse events only: expanding aliases could take exponential memory."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - yaml has no types
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return _TOO_DEEP
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return f"{line}{error.problem or error}"
    except yaml.YAMLError as error:
        return str(error)
    return None


def _toml(text: str) -> str | None:
    if _LONG_KEY.search(text):
        return _TOO_DEEP
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    return None


_CHECKERS: Mapping[str, Callable[[str], str | None]] = {
    ".py": _python,
    ".pyi": _python,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": _toml,
}


CHECK_TIMEOUT = 5.0
_SHELL_SUFFIXES = frozenset({".sh", ".bash"})
_SCRIPT, _MODULE = frozenset({".js", ".cjs"}), frozenset({".mjs"})
_IS_MODULE = re.compile(rb"outside a module|Unexpected token 'export'|await is only valid")
_BASH_LINE = re.compile(r"line (\d+): (.*)")
_NODE_LINE = re.compile(r"\[stdin\]:(\d+)")
_NODE_ERROR = re.compile(r"^SyntaxError: (.*)$", re.MULTILINE)


class SyntaxChecker:
    """Checks shell and JavaScript files; `bash` and `node` are program paths or None."""

    def __init__(self, sandbox: Sandbox, bash: str | None, node: str | None) -> None:
        self._sandbox = sandbox
        self._bash = bash
        self._node = node

    async def check(self, path: Path, text: str, before: str | None = None) -> LintResult:
        """Like `check_syntax`, for other languages. What cannot be checked is skipped."""
        suffix = path.suffix.lower()
        if not self._knows(suffix):
            return LintResult("skipped")
        if len(text) > MAX_CHECKED:
            return LintResult("skipped", "too long to check")
        try:
            fault = await self._fault(suffix, text)
            if fault is None:
                return LintResult("ok")
            if before is not None and len(before) <= MAX_CHECKED:
                old = await self._fault(suffix, before)
                fault += " (the file had a syntax error before this edit too)" if old else ""
        except SandboxError as error:
            return LintResult("skipped", str(error))
        return LintResult("error", fault)

    def _knows(self, suffix: str) -> bool:
        if suffix in _SHELL_SUFFIXES:
            return self._bash is not None
        return suffix in _SCRIPT | _MODULE and self._node is not None

    async def _fault(self, suffix: str, text: str) -> str | None:
        if suffix in _SHELL_SUFFIXES:
            output = await self._run((str(self._bash), "-n"), text)
            return None if output is None else _bash_message(output)
        node = (str(self._node), "--check")
        output = None if suffix in _MODULE else await self._run((*node, "-"), text)
        if suffix in _MODULE or (output and suffix == ".js" and _IS_MODULE.search(output)):
            output = await self._run((*node, "--input-type=module", "-"), text)
        return None if output is None else _node_message(output)

    async def _run(self, argv: tuple[str, ...], text: str) -> bytes | None:
        """Return the checker's output if it found a fault, or None."""
        job = ProcessSpec(
            argv=argv,
            cwd="/",
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            timeout=CHECK_TIMEOUT,
            stdin=text.encode("utf-8", "replace"),
            keep=8_192,
        )
        done = await self._sandbox.run(job)
        if done.timed_out:
            raise SandboxError(f"the check took longer than {CHECK_TIMEOUT:g} s")
        return done.output if done.exit_code else None


def _bash_message(output: bytes) -> str:
    text = output.decode("utf-8", "replace")
    found = _BASH_LINE.search(text)
    return f"line {found[1]}: {found[2]}" if found else one_line(text, 200)


def _node_message(output: bytes) -> str:
    text = output.decode("utf-8", "replace")
    line, error = _NODE_LINE.search(text), _NODE_ERROR.search(text)
    message = error[1] if error else one_line(text, 200)
    return f"line {line[1]}: {message}" if line else message
