"""Syntax checks with the real bash and node."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.tools.files.lint import LintResult, SyntaxChecker

PATH = "/usr/local/bin:/usr/bin:/bin"
NODE = shutil.which("node", path=PATH)


@pytest.fixture
def syntax() -> Iterator[SyntaxChecker]:
    with Spawner() as spawner:
        yield SyntaxChecker(LocalSandbox(spawner), shutil.which("bash", path=PATH), NODE)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.sh", "if true; then\n  echo a\nfi\n", ""),
        ("a.sh", "echo a\nif true; then\n", "line 3: syntax error"),
        ("a.bash", "touch /tmp/must-not-run; )", "line 1: syntax error"),
        *([
            ("a.js", "const a = 1;\nmodule.exports = a;\n", ""),
            ("a.js", "import a from 'b';\nawait a();\n", ""),
            ("a.js", "const a = 1;\nconst b = ;\n", "line 2: Unexpected token ';'"),
            ("a.js", "import a from 'b';\nconst b = ;\n", "line 2: Unexpected token ';'"),
            ("a.mjs", "export const a = 1;\n", ""),
            ("a.cjs", "export const a = 1;\n", "Unexpected token 'export'"),
        ] if NODE else []),
    ],
)  # fmt: skip
async def test_faults_are_named(syntax: SyntaxChecker, name: str, text: str, fault: str):
    lint = await syntax.check(Path(name), text)
    assert lint.status == ("error" if fault else "ok")
    assert fault in lint.output


async def test_old_fault_is_distinguished_from_a_new_one(syntax: SyntaxChecker):
    assert "too)" in (await syntax.check(Path("a.sh"), "if", "fi")).output
    assert "too)" not in (await syntax.check(Path("a.sh"), "if", "true")).output


async def test_unknown_languages_are_skipped(syntax: SyntaxChecker):
    assert await syntax.check(Path("a.rs"), "fn") == LintResult("skipped")
    assert (await syntax.check(Path("a.sh"), "#" * 200_000)).status == "skipped"
    with Spawner() as spawner:
        without = SyntaxChecker(LocalSandbox(spawner), None, None)
        assert await without.check(Path("a.sh"), "if") == LintResult("skipped")
        broken = SyntaxChecker(LocalSandbox(spawner), "/no/such/bash", None)
        assert (await broken.check(Path("a.sh"), "if")).status == "skipped"
