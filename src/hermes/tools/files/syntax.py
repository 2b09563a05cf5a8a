"""Check the syntax of languages that have a checker of their own, which runs in the sandbox."""

import re
from pathlib import Path

from hermes.kit.text import one_line
from hermes.ports.sandbox import Job, Sandbox
from hermes.schema.errors import SandboxError
from hermes.tools.files.lint import MAX_CHECKED, Lint

TIMEOUT = 5.0
_SHELL = frozenset({".sh", ".bash"})
_SCRIPT, _MODULE = frozenset({".js", ".cjs"}), frozenset({".mjs"})
_IS_MODULE = re.compile(rb"outside a module|Unexpected token 'export'|await is only valid")
_BASH_LINE = re.compile(r"line (\d+): (.*)")
_NODE_LINE = re.compile(r"\[stdin\]:(\d+)")
_NODE_ERROR = re.compile(r"^SyntaxError: (.*)$", re.MULTILINE)


class Syntax:
    """`bash` and `node` are the paths of the programs, None where there are none."""

    def __init__(self, sandbox: Sandbox, bash: str | None, node: str | None) -> None:
        self._sandbox = sandbox
        self._bash = bash
        self._node = node

    async def check(self, path: Path, text: str, before: str | None = None) -> Lint:
        """As `lint.check`, which knows other languages. What cannot be checked is skipped."""
        suffix = path.suffix.lower()
        if not self._knows(suffix):
            return Lint("skipped")
        if len(text) > MAX_CHECKED:
            return Lint("skipped", "too long to check")
        try:
            fault = await self._fault(suffix, text)
            if fault is None:
                return Lint("ok")
            if before is not None and len(before) <= MAX_CHECKED:
                old = await self._fault(suffix, before)
                fault += " (the file had a syntax error before this edit too)" if old else ""
        except SandboxError as error:
            return Lint("skipped", str(error))
        return Lint("error", fault)

    def _knows(self, suffix: str) -> bool:
        if suffix in _SHELL:
            return self._bash is not None
        return suffix in _SCRIPT | _MODULE and self._node is not None

    async def _fault(self, suffix: str, text: str) -> str | None:
        if suffix in _SHELL:
            output = await self._run((str(self._bash), "-n"), text)
            return None if output is None else _bash_words(output)
        node = (str(self._node), "--check")
        output = None if suffix in _MODULE else await self._run((*node, "-"), text)
        if suffix in _MODULE or (output and suffix == ".js" and _IS_MODULE.search(output)):
            output = await self._run((*node, "--input-type=module", "-"), text)
        return None if output is None else _node_words(output)

    async def _run(self, argv: tuple[str, ...], text: str) -> bytes | None:
        """What it complains about; None when it is content."""
        job = Job(
            argv=argv,
            cwd="/",
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            timeout=TIMEOUT,
            stdin=text.encode("utf-8", "replace"),
            keep=8_192,
        )
        done = await self._sandbox.run(job)
        if done.timed_out:
            raise SandboxError(f"the check took longer than {TIMEOUT:g} s")
        return done.output if done.exit_code else None


def _bash_words(output: bytes) -> str:
    said = output.decode("utf-8", "replace")
    found = _BASH_LINE.search(said)
    return f"line {found[1]}: {found[2]}" if found else one_line(said, 200)


def _node_words(output: bytes) -> str:
    said = output.decode("utf-8", "replace")
    line, error = _NODE_LINE.search(said), _NODE_ERROR.search(said)
    words = error[1] if error else one_line(said, 200)
    return f"line {line[1]}: {words}" if line else words
