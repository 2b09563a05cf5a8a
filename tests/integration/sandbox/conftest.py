"""What every sandbox starts its programs through, and a place to try them in."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hermes.ports.sandbox import Finished, Job, Reach
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.door import Door
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.view import GUARDED, OPEN_OF_RUN, View, hidden_from
from hermes.sandbox.walled import WalledSandbox


@pytest.fixture
def door() -> Iterator[Door]:
    with Door(grace=0.2) as door:
        yield door


class Ground:
    """A home that is not below /tmp, with a secret, a folder to work in, and one outside of it."""

    def __init__(self, base: Path, door: Door) -> None:
        self._door = door
        self.base = base
        self.home = base / "home"
        self.work = self.home / "work"
        self.outside = base / "outside"
        for folder in (self.work, self.outside, self.home / ".ssh"):
            folder.mkdir(parents=True)
        (self.home / ".ssh/id").write_text("SECRET")
        self.view = View(
            tmp=str(base / "private"),
            hidden=hidden_from(self.home, root=os.geteuid() == 0),
            shown=OPEN_OF_RUN,
            guarded=GUARDED,
            person=str(self.home),
        )

    def sandbox(self, backend: str, *, unix_sockets: bool = False) -> WalledSandbox:
        view = structs.replace(self.view, unix_sockets=unix_sockets)
        if backend == "landlock":
            return WalledSandbox(self._door, Landlock(view))
        program = find_bubblewrap(os.environ["PATH"])
        assert program is not None
        return WalledSandbox(self._door, Bubblewrap(program, view))

    def job(self, *argv: str, **reach: object) -> Job:
        allowed = Reach(**({"writable": (str(self.work),)} | reach))  # type: ignore[arg-type]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home)}
        return Job(argv=argv, cwd=str(self.work), env=env, timeout=60.0, reach=allowed)

    async def run(self, backend: str, *argv: str, **reach: object) -> Finished:
        return await self.sandbox(backend).run(self.job(*argv, **reach))


@pytest.fixture
def ground(door: Door) -> Iterator[Ground]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-ground-", dir=Path.home()))
    yield Ground(base, door)
    shutil.rmtree(base, ignore_errors=True)
