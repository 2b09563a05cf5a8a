"""Landlock fulfils the sandbox contract."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.sandbox import landlock_launcher
from hermes.sandbox.filesystem_policy import (
    VISIBLE_IN_RUN,
    FilesystemPolicy,
    PathAccess,
    PathRule,
    hidden_paths,
)
from hermes.sandbox.isolated_sandbox import IsolatedSandbox
from hermes.sandbox.landlock import Landlock, allowed_rules
from hermes.sandbox.spawner import Spawner
from hermes.testing.contracts.sandbox import ENV, TEST_TIMEOUT, SandboxContract

pytestmark = pytest.mark.slow


class TestLandlock(SandboxContract):
    @pytest.fixture
    def sandbox(
        self, spawner: Spawner, tmp_path_factory: pytest.TempPathFactory
    ) -> IsolatedSandbox:
        tmp = tmp_path_factory.mktemp("private")
        policy = FilesystemPolicy(
            tmp=str(tmp), hidden=hidden_paths(Path.home(), root=True), shown=VISIBLE_IN_RUN
        )
        return IsolatedSandbox(spawner, Landlock(policy))

    async def test_other_terminals_are_not_accessible(
        self, sandbox: IsolatedSandbox, tmp_path: Path
    ) -> None:
        ours, theirs = os.openpty()
        name = os.ttyname(theirs)
        command = (
            f"exec 2> /dev/null; (: < {name}) || echo unread; (: > {name}) || echo unwritten; "
            "echo mine > $(tty); cat < $(tty) > /dev/null & echo ended > /dev/stdout"
        )
        argv, folder = ("sh", "-c", command), str(tmp_path)
        reach = ProcessPermissions(writable=(folder,))
        job = ProcessSpec(argv=argv, cwd=folder, env=ENV, timeout=TEST_TIMEOUT, permissions=reach)
        output = b""
        try:
            with anyio.fail_after(TEST_TIMEOUT):
                async with sandbox.open(job, pty=True) as process:
                    while not output.endswith(b"ended\r\n"):
                        data = await process.read()
                        assert data, output
                        output += data
        finally:
            os.close(ours)
            os.close(theirs)
        assert output.split() == [b"unread", b"unwritten", b"mine", b"ended"]


def test_nothing_allowed_contains_anything_hidden(tmp_path: Path):
    for name in ("a/secret", "a/open", "b", "c/deep/secret", "c/deep/open", "c/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "secret")
    hidden = [str(tmp_path / name) for name in ("a/secret", "c/deep/secret")]
    rules = [PathRule(path, PathAccess.HIDDEN) for path in hidden]
    found = {rule.path for rule in allowed_rules(rules) if rule.path.startswith(str(tmp_path))}
    wanted = ("a/open", "b", "c/deep/open", "c/other")
    assert found == {str(tmp_path / name) for name in wanted}


def test_shown_path_inside_a_hidden_one_is_allowed(tmp_path: Path):
    (tmp_path / "home" / "skills").mkdir(parents=True)
    home, skills = str(tmp_path / "home"), str(tmp_path / "home" / "skills")
    rules = [PathRule(home, PathAccess.HIDDEN), PathRule(skills, PathAccess.READ)]
    found = [rule for rule in allowed_rules(rules) if rule.path.startswith(home)]
    assert found == [PathRule(skills, PathAccess.READ)]


_PRINT_LOADED_MODULES = """
import sys
before = set(sys.modules)
exec(open(sys.argv[1]).read(), {"__name__": "launcher"})
print(*set(sys.modules) - before)
"""


def test_launcher_imports_few_modules():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PRINT_LOADED_MODULES, landlock_launcher.__file__],
        capture_output=True, check=True, text=True, timeout=60,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert "ctypes" in loaded
    assert not loaded & {"typing", "collections", "re", "functools"}
    assert len(loaded) <= 16, loaded
