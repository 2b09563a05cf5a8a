"""Bubblewrap fulfils the sandbox contract and hides secrets."""

from pathlib import Path

import pytest

from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.sandbox.bubblewrap import MAX_HIDDEN_FILES, Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import VISIBLE_IN_RUN, FilesystemPolicy, hidden_paths
from hermes.sandbox.isolated_sandbox import IsolatedSandbox
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.errors import SandboxError
from hermes.testing.contracts.sandbox import SandboxContract


def command_with(tmp_path: Path, hidden: int) -> SpawnRequest:
    """Build the command line for a job with that many hidden files."""
    work = tmp_path / "work"
    work.mkdir()
    for number in range(hidden):
        (work / f"{number}.secret").touch()
    policy = FilesystemPolicy(tmp=str(tmp_path / "private"), hidden=(f"{work}/*.secret",))
    job = ProcessSpec(
        argv=("/bin/true",),
        cwd="/",
        env={},
        timeout=1,
        permissions=ProcessPermissions(writable=(str(work),)),
    )
    request = SpawnRequest(argv=job.argv, cwd=job.cwd, env=job.env, label="it")
    return Bubblewrap("/usr/bin/bwrap", policy).wrap(request, job)


def test_many_files_are_hidden_one_by_one(tmp_path: Path):
    hidden = [
        path for path in command_with(tmp_path, 300).required_paths if path.endswith(".secret")
    ]
    assert len(hidden) == 300


def test_too_many_hidden_files_prevent_the_start(tmp_path: Path):
    with pytest.raises(SandboxError, match="would have to be hidden"):
        command_with(tmp_path, MAX_HIDDEN_FILES + 1)


class TestBubblewrap(SandboxContract):
    @pytest.fixture
    def sandbox(
        self, spawner: Spawner, tmp_path_factory: pytest.TempPathFactory
    ) -> IsolatedSandbox:
        found = find_bubblewrap("/usr/bin:/bin")
        assert found is not None
        tmp = tmp_path_factory.mktemp("private")
        policy = FilesystemPolicy(
            tmp=str(tmp), hidden=hidden_paths(Path.home(), root=True), shown=VISIBLE_IN_RUN
        )
        return IsolatedSandbox(spawner, Bubblewrap(found, policy))
