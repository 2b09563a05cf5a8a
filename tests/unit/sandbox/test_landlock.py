"""The wall without namespaces keeps the promises of every sandbox."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.sandbox import landlock_launcher
from hermes.sandbox.door import Door
from hermes.sandbox.landlock import Landlock, grants
from hermes.sandbox.view import OPEN_OF_RUN, Rule, Sight, View, hidden_from
from hermes.sandbox.walled import WalledSandbox
from hermes.testing.contracts.sandbox import SandboxContract


class TestLandlock(SandboxContract):
    @pytest.fixture
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalledSandbox]:
        tmp = tmp_path_factory.mktemp("private")
        view = View(tmp=str(tmp), hidden=hidden_from(Path.home(), root=True), shown=OPEN_OF_RUN)
        with Door(grace=0.2) as door:
            yield WalledSandbox(door, Landlock(view))


def test_nothing_allowed_contains_anything_hidden(tmp_path: Path):
    for name in ("a/secret", "a/open", "b", "c/deep/secret", "c/deep/open", "c/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "secret")
    hidden = [str(tmp_path / name) for name in ("a/secret", "c/deep/secret")]
    rules = [Rule(path, Sight.HIDDEN) for path in hidden]
    found = {rule.path for rule in grants(rules) if rule.path.startswith(str(tmp_path))}
    wanted = ("a/open", "b", "c/deep/open", "c/other")
    assert found == {str(tmp_path / name) for name in wanted}


def test_what_is_shown_inside_something_hidden_is_allowed(tmp_path: Path):
    (tmp_path / "home" / "skills").mkdir(parents=True)
    home, skills = str(tmp_path / "home"), str(tmp_path / "home" / "skills")
    rules = [Rule(home, Sight.HIDDEN), Rule(skills, Sight.READ)]
    found = [rule for rule in grants(rules) if rule.path.startswith(home)]
    assert found == [Rule(skills, Sight.READ)]


_LOADED = """
import sys
before = set(sys.modules)
exec(open(sys.argv[1]).read(), {"__name__": "launcher"})
print(*set(sys.modules) - before)
"""


def test_every_command_waits_for_the_launcher_so_it_loads_little():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LOADED, landlock_launcher.__file__],
        capture_output=True, check=True, text=True, timeout=60,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert "ctypes" in loaded
    assert not loaded & {"typing", "collections", "re", "functools"}
    assert len(loaded) <= 16, loaded
