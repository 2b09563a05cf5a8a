"""The wall of namespaces keeps the promises of every sandbox."""

from pathlib import Path

import pytest

from hermes.ports.sandbox import Job, Reach
from hermes.sandbox.bubblewrap import MOST_COVERED, Bubblewrap, find_bubblewrap
from hermes.sandbox.door import Door, Start
from hermes.sandbox.view import OPEN_OF_RUN, View, hidden_from
from hermes.sandbox.walled import WalledSandbox
from hermes.schema.errors import SandboxError
from hermes.testing.contracts.sandbox import SandboxContract


def command_with(tmp_path: Path, hidden: int) -> Start:
    """What would be started where so many files are to be hidden."""
    work = tmp_path / "work"
    work.mkdir()
    for number in range(hidden):
        (work / f"{number}.secret").touch()
    view = View(tmp=str(tmp_path / "private"), hidden=(f"{work}/*.secret",))
    job = Job(argv=("/bin/true",), cwd="/", env={}, timeout=1, reach=Reach(writable=(str(work),)))
    start = Start(argv=job.argv, cwd=job.cwd, env=job.env, called="it")
    return Bubblewrap("/usr/bin/bwrap", view).around(start, job)


def test_more_than_a_few_files_are_hidden_one_by_one(tmp_path: Path):
    hidden = [path for path in command_with(tmp_path, 300).there if path.endswith(".secret")]
    assert len(hidden) == 300


def test_what_cannot_be_hidden_keeps_a_command_from_running(tmp_path: Path):
    with pytest.raises(SandboxError, match="are to be hidden"):
        command_with(tmp_path, MOST_COVERED + 1)


class TestBubblewrap(SandboxContract):
    @pytest.fixture
    def sandbox(self, door: Door, tmp_path_factory: pytest.TempPathFactory) -> WalledSandbox:
        found = find_bubblewrap("/usr/bin:/bin")
        assert found is not None
        tmp = tmp_path_factory.mktemp("private")
        view = View(tmp=str(tmp), hidden=hidden_from(Path.home(), root=True), shown=OPEN_OF_RUN)
        return WalledSandbox(door, Bubblewrap(found, view))
