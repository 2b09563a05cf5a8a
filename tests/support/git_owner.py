"""An owner with git settings and a repository in the agent's workspace."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from hermes.ports.sandbox import ProcessPermissions, ProcessResult, ProcessSpec
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import (
    GUARDED,
    VISIBLE_IN_RUN,
    FilesystemPolicy,
    hidden_paths,
    startup_files,
)
from hermes.sandbox.git_config_paths import owner_git_config
from hermes.sandbox.git_guard import MAX_SCANNED_FOLDERS
from hermes.sandbox.isolated_sandbox import IsolatedSandbox, IsolationBackend
from hermes.sandbox.spawner import Spawner

TIMEOUT = 60.0
PATH = "/usr/local/bin:/usr/bin:/bin"
USER = "[user]\n\tname = a\n\temail = a@b\n"


class Owner:
    """A user with git settings and a repository in the agent's workspace."""

    def __init__(
        self, base: Path, spawner: Spawner, make: Callable[[FilesystemPolicy], IsolationBackend]
    ) -> None:
        self.home = base / "home"
        self.work = self.home / "work"
        self.repo = self.work / "repo"
        self.marker = base / "executed"
        self.repo.mkdir(parents=True)
        self.policy = FilesystemPolicy(
            tmp=str(base / "private"),
            hidden=hidden_paths(self.home, root=True),
            shown=VISIBLE_IN_RUN,
            guarded=(*GUARDED, *startup_files(self.home)),
            user_home=str(self.home),
        )
        self._spawner, self._make = spawner, make
        self._sandbox: IsolatedSandbox | None = None
        self.write(self.home / ".gitconfig", USER)
        self.git("init", "-q")
        self.git("commit", "-q", "--allow-empty", "-m", "first")

    def write(self, path: Path, text: str, mode: int = 0o644) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def add_settings(self, text: str) -> None:
        self.write(self.home / ".gitconfig", USER + text)

    def hook(self, path: Path) -> Path:
        return self.write(path, "#!/bin/sh\nexit 0\n", 0o755)

    async def command(
        self, text: str, *, work: Path | None = None, most: int = MAX_SCANNED_FOLDERS
    ) -> ProcessResult:
        """Run a command in the sandbox; `evil FILE` writes a program that creates the marker."""
        if self._sandbox is None:
            owner = owner_git_config({}, str(self.home))
            backend = self._make(self.policy)
            self._sandbox = IsolatedSandbox(self._spawner, backend, owner=owner, max_folders=most)
        evil = (
            'evil() { mkdir -p "$(dirname "$1")"; '
            f'printf \'#!/bin/sh\\ntouch {self.marker}\\n\' > "$1"; chmod +x "$1"; }}\n'
        )
        work = work or self.work
        job = ProcessSpec(
            argv=("/bin/bash", "-c", evil + text),
            cwd=str(work),
            env={"PATH": PATH, "HOME": str(self.home)},
            timeout=TIMEOUT,
            permissions=ProcessPermissions(writable=(str(work),)),
        )
        return await self._sandbox.run(job)

    def git(self, *args: str, folder: Path | None = None, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *args], cwd=folder or self.repo, env={"PATH": PATH, "HOME": str(self.home)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=check,
        )  # fmt: skip
        return done.stdout

    def use_git(self, folder: Path | None = None) -> None:
        """Run common git commands outside the sandbox; failures are ignored."""
        self.git("status", folder=folder, check=False)
        self.git("diff", "HEAD", folder=folder, check=False)
        self.git("commit", "-q", "--allow-empty", "-m", "next", folder=folder, check=False)
        self.git("checkout", "-q", "-b", "other", folder=folder, check=False)


def bubblewrap(policy: FilesystemPolicy) -> IsolationBackend:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, policy)
