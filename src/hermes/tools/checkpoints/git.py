"""Git on a repository of our own, started through the sandbox's door."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from hermes.kit.text import one_line
from hermes.ports.sandbox import Finished, Job, Reach, Sandbox
from hermes.schema.errors import SandboxError, UsageError

TIMEOUT = 20.0
KEEP = 64 << 20
"""Bytes of one answer; lists of names and the contents of files."""
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "gc.auto=0",
    "core.autocrlf=false", "core.symlinks=true", "core.fileMode=true", "core.quotePath=false",
    "core.protectNTFS=false", "core.compression=1", "advice.addEmbeddedRepo=false",
    "maintenance.auto=false", "core.bigFileThreshold=8m",
)  # fmt: skip
_ATTRIBUTES = "* -text -eol -filter -ident -working-tree-encoding -diff -merge\n"
"""What stands in the repository wins over the work tree's own: every byte is kept as it is."""
_EXCLUDED = (
    "node_modules/", ".venv/", "venv/", "__pycache__/", ".tox/", ".mypy_cache/", ".pytest_cache/",
    ".ruff_cache/", "target/debug/", "target/release/", ".gradle/", ".next/", ".nuxt/", ".cache/",
    ".DS_Store", "*.pyc", ".env", ".env.*", ".hermes-*.tmp",
)  # fmt: skip
_SHA = re.compile(rb"[0-9a-f]{40,64}")
_QUIET = 'exec "$0" "$@" 2>/dev/null'


def find_git(path: str) -> str | None:
    return shutil.which("git", path=path)


class Where(Struct, frozen=True):
    """The work tree a command looks at, and the index that remembers it."""

    work: Path
    index: Path


class Git:
    """`program` is git's path, None where there is none; `store` the folder of the repository."""

    def __init__(self, sandbox: Sandbox, program: str | None, store: Path) -> None:
        self._sandbox = sandbox
        self._program = program
        self.store = store

    async def ready(self) -> None:
        """Make the repository. Raises `UsageError` where git is missing."""
        if self._program is None:
            raise UsageError(
                "Checkpoints need git, which is not installed.",
                hint="Install git, or set checkpoints.enabled to false.",
            )
        if (self.store / "HEAD").is_file():
            return
        self.store.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self.run("init", "--bare", "--quiet", str(self.store))
        (self.store / "info").mkdir(exist_ok=True)
        (self.store / "info" / "attributes").write_text(_ATTRIBUTES)
        (self.store / "info" / "exclude").write_text("\n".join(_EXCLUDED) + "\n")
        (self.store / "indexes").mkdir(exist_ok=True)

    async def run(self, *args: str, where: Where | None = None, stdin: bytes = b"") -> bytes:
        """What it prints, complaints included. Raises `SandboxError`."""
        return (await self._done(self._argv(args), where, stdin)).output

    async def data(self, *args: str, where: Where | None = None, stdin: bytes = b"") -> bytes:
        """What it prints without its complaints, whole or not at all."""
        argv = ("/bin/sh", "-c", _QUIET, *self._argv(args))
        done = await self._done(argv, where, stdin)
        if done.seam is not None:
            raise UsageError("The workspace has too many files for a checkpoint.")
        return done.output

    async def sha(self, *args: str, where: Where | None = None, stdin: bytes = b"") -> str:
        found = _SHA.search(await self.data(*args, where=where, stdin=stdin))
        if found is None:
            raise SandboxError(f"git {args[0]} gave no answer")
        return found[0].decode()

    def _argv(self, args: Sequence[str]) -> tuple[str, ...]:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        return (self._program or "git", *settings, *args)

    async def _done(self, argv: tuple[str, ...], where: Where | None, stdin: bytes) -> Finished:
        job = Job(
            argv=argv,
            cwd=str(where.work if where else self.store),
            env=self._env(where),
            timeout=TIMEOUT,
            reach=Reach(writable=(str(self.store),)),
            stdin=stdin,
            keep=KEEP,
        )
        done = await self._sandbox.run(job)
        if done.timed_out:
            raise SandboxError(f"git took longer than {TIMEOUT:g} s")
        if done.exit_code:
            said = one_line(done.output[-2_000:].decode("utf-8", "replace"), 300)
            raise SandboxError(f"git failed with exit code {done.exit_code}. {said}".strip())
        return done

    def _env(self, where: Where | None) -> dict[str, str]:
        program = self._program or "git"
        env = {
            "PATH": f"{Path(program).parent}:/usr/bin:/bin",
            "HOME": str(self.store),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_DIR": str(self.store),
            "GIT_AUTHOR_NAME": "Hermes",
            "GIT_AUTHOR_EMAIL": "hermes@localhost",
            "GIT_COMMITTER_NAME": "Hermes",
            "GIT_COMMITTER_EMAIL": "hermes@localhost",
        }
        if where is not None:
            env |= {"GIT_WORK_TREE": str(where.work), "GIT_INDEX_FILE": str(where.index)}
        return env
