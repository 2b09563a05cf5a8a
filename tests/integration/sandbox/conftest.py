"""A spawner and a sample home for sandbox tests."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hermes.ports.sandbox import ProcessPermissions, ProcessResult, ProcessSpec
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import GUARDED, VISIBLE_IN_RUN, FilesystemPolicy, hidden_paths
from hermes.sandbox.isolated_sandbox import IsolatedSandbox
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.spawner import Spawner
from support.git_owner import Owner, bubblewrap


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as spawner:
        yield spawner


class SampleHome:
    """A home outside /tmp with a secret, a workspace and a folder outside it."""

    def __init__(self, base: Path, spawner: Spawner) -> None:
        self._spawner = spawner
        self.base = base
        self.home = base / "home"
        self.work = self.home / "work"
        self.outside = base / "outside"
        for folder in (self.work, self.outside, self.home / ".ssh"):
            folder.mkdir(parents=True)
        (self.home / ".ssh/id").write_text("SECRET")
        self.policy = FilesystemPolicy(
            tmp=str(base / "private"),
            hidden=hidden_paths(self.home, root=os.geteuid() == 0),
            shown=(*VISIBLE_IN_RUN, sys.prefix, sys.base_prefix),
            guarded=GUARDED,
            user_home=str(self.home),
        )

    def sandbox(self, backend: str, *, unix_sockets: bool = False) -> IsolatedSandbox:
        policy = structs.replace(self.policy, unix_sockets=unix_sockets)
        if backend == "landlock":
            return IsolatedSandbox(self._spawner, Landlock(policy))
        program = find_bubblewrap(os.environ["PATH"])
        assert program is not None
        return IsolatedSandbox(self._spawner, Bubblewrap(program, policy))

    def job(self, *argv: str, **reach: object) -> ProcessSpec:
        allowed = ProcessPermissions(**({"writable": (str(self.work),)} | reach))  # type: ignore[arg-type]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home)}
        return ProcessSpec(
            argv=argv, cwd=str(self.work), env=env, timeout=60.0, permissions=allowed
        )

    async def run(self, backend: str, *argv: str, **reach: object) -> ProcessResult:
        return await self.sandbox(backend).run(self.job(*argv, **reach))


@pytest.fixture
def sample(spawner: Spawner) -> Iterator[SampleHome]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-sample-", dir=Path.home()))
    yield SampleHome(base, spawner)
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(params=[bubblewrap, Landlock])
def owner(request: pytest.FixtureRequest, spawner: Spawner) -> Iterator[Owner]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-owner-", dir=Path.home()))
    yield Owner(base, spawner, request.param)
    shutil.rmtree(base, ignore_errors=True)
