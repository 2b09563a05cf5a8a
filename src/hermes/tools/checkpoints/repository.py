"""The shadow git repository: write the trees of a workspace, and restore files from them."""

import os
import re
import shutil
import stat as modes
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from hermes.kit.text import one_line
from hermes.ports.sandbox import ProcessPermissions, ProcessResult, ProcessSpec, Sandbox
from hermes.schema.errors import SandboxError, ToolError, UsageError
from hermes.tools.files.file_changes import FileChange, apply_changes
from hermes.tools.files.safe_open import Forbids, open_folder

TIMEOUT = 20.0
MAX_OUTPUT = 64 << 20
"""Bytes of one answer: lists of names, and file contents."""
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "gc.auto=0",
    "core.autocrlf=false", "core.symlinks=true", "core.fileMode=true", "core.quotePath=false",
    "core.protectNTFS=false", "core.compression=1", "advice.addEmbeddedRepo=false",
    "maintenance.auto=false", "core.bigFileThreshold=8m",
)  # fmt: skip
_ATTRIBUTES = "* -text -eol -filter -ident -working-tree-encoding -diff -merge\n"
"""Attributes in the repository override those of the work tree, so that every byte is kept."""
_EXCLUDED = (
    "node_modules/", ".venv/", "venv/", "__pycache__/", ".tox/", ".mypy_cache/", ".pytest_cache/",
    ".ruff_cache/", "target/debug/", "target/release/", ".gradle/", ".next/", ".nuxt/", ".cache/",
    ".DS_Store", "*.pyc", ".env", ".env.*", ".hermes-*.tmp",
)  # fmt: skip
_SHA = re.compile(rb"[0-9a-f]{40,64}")
_WITHOUT_STDERR = 'exec "$0" "$@" 2>/dev/null'


def find_git(path: str) -> str | None:
    return shutil.which("git", path=path)


class WorkTree(Struct, frozen=True):
    """The work tree a command operates on, and its index."""

    work: Path
    index: Path


class ShadowRepository:
    """`program` is the path of git, None if it is not installed; `store` its folder."""

    def __init__(self, sandbox: Sandbox, program: str | None, store: Path) -> None:
        self._sandbox = sandbox
        self._program = program
        self.store = store

    async def ensure_created(self) -> None:
        """Create the repository if needed. Raises `UsageError` if git is missing."""
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

    async def run(self, *args: str, where: WorkTree | None = None, stdin: bytes = b"") -> bytes:
        """Return the output including stderr. Raises `SandboxError`."""
        return (await self._run(self._argv(args), where, stdin)).output

    async def data(self, *args: str, where: WorkTree | None = None, stdin: bytes = b"") -> bytes:
        """Return standard output only. Raises `UsageError` if it is too long."""
        argv = ("/bin/sh", "-c", _WITHOUT_STDERR, *self._argv(args))
        done = await self._run(argv, where, stdin)
        if done.seam is not None:
            raise UsageError("The workspace has too many files for a checkpoint.")
        return done.output

    async def sha(self, *args: str, where: WorkTree | None = None, stdin: bytes = b"") -> str:
        found = _SHA.search(await self.data(*args, where=where, stdin=stdin))
        if found is None:
            raise SandboxError(f"git {args[0]} gave no answer")
        return found[0].decode()

    def _argv(self, args: Sequence[str]) -> tuple[str, ...]:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        return (self._program or "git", *settings, *args)

    async def _run(
        self, argv: tuple[str, ...], where: WorkTree | None, stdin: bytes
    ) -> ProcessResult:
        job = ProcessSpec(
            argv=argv,
            cwd=str(where.work if where else self.store),
            env=self._env(where),
            timeout=TIMEOUT,
            permissions=ProcessPermissions(writable=(str(self.store),)),
            stdin=stdin,
            keep=MAX_OUTPUT,
        )
        done = await self._sandbox.run(job)
        if done.timed_out:
            raise SandboxError(f"git took longer than {TIMEOUT:g} s")
        if done.exit_code:
            message = one_line(done.output[-2_000:].decode("utf-8", "replace"), 300)
            raise SandboxError(f"git failed with exit code {done.exit_code}. {message}".strip())
        return done

    def _env(self, where: WorkTree | None) -> dict[str, str]:
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


MAX_FILES = 50_000
MAX_NESTED = 50
"""Nested repositories in the workspace; each is saved separately."""
MAX_SKIPPED = 5_000
STALE_LOCK_SECONDS = 60.0
"""Seconds after which the lock of a killed git is considered stale."""


class CheckpointLimits(Struct, frozen=True, kw_only=True):
    """Bytes."""

    file: int = 10 << 20
    total: int = 500 << 20


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """How many checkpoints are kept and for how long, from the `checkpoints` settings."""

    snapshots: int = 20
    limits: CheckpointLimits = CheckpointLimits()
    days: int = 7
    prune: bool = True


class TreeRoot(Struct, frozen=True):
    """A work tree in the workspace, by its path there; empty for the workspace itself.

    `skipped` are files that were not saved.
    """

    path: str
    tree: str
    skipped: tuple[str, ...] = ()


class TreeWriter:
    def __init__(
        self, git: ShadowRepository, limits: CheckpointLimits, is_blocked: Callable[[Path], bool]
    ) -> None:
        """`is_blocked` tells whether a file must not be copied."""
        self._git = git
        self._limits = limits
        self._is_blocked = is_blocked

    async def write(self, workspace: Path, now: float) -> list[TreeRoot]:
        """Write the trees of a workspace. Raises `UsageError` if it exceeds the limits."""
        roots: list[TreeRoot] = []
        pending = [""]
        room = self._limits.total
        while pending:
            path = pending.pop(0)
            where = WorkTree(workspace / path, self._index(workspace, path))
            remove_stale_lock(where.index, now)
            found = await self._changes(where, room)
            room -= found.size
            skipped = tuple(map(printable_name, found.skipped))
            roots.append(TreeRoot(path, await self._tree(where, found), skipped))
            pending += [str(Path(path, nested)) for nested in found.nested]
            if len(roots) + len(pending) > MAX_NESTED:
                raise UsageError(f"The workspace has more than {MAX_NESTED} repositories.")
        return roots

    def _index(self, workspace: Path, path: str) -> Path:
        name = f"{short_hash(str(workspace))}.{short_hash(path)}"
        return self._git.store / "indexes" / name

    async def _changes(self, where: WorkTree, room: int) -> "_TreeChanges":
        listed = await self._git.data(
            "ls-files", "-z", "--others", "--modified", "--deleted", "--exclude-standard",
            where=where,
        )  # fmt: skip
        names = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
        if len(names) > MAX_FILES:
            raise UsageError(
                f"The workspace has {len(names):,} new files, too many for a checkpoint.",
                hint="Exclude files that need no checkpoint in a .gitignore.",
            )
        found = _TreeChanges()
        for name in names:
            self._classify(where.work, name, found)
        if found.size > room:
            raise UsageError(
                f"The workspace is larger than checkpoints may be ({self._limits.total >> 20} MB).",
                hint="Exclude files that need no checkpoint in a .gitignore, or raise "
                "checkpoints.max_total_size_mb.",
            )
        return found

    def _classify(self, work: Path, name: str, found: "_TreeChanges") -> None:
        path = work / name
        if name.endswith("/"):
            if printable_name(name) == name:
                found.nested.append(name.rstrip("/"))
            return
        try:
            stat = path.lstat() if found.is_inside(path.parent) else None
        except OSError:
            stat = None
        if stat is None or modes.S_ISDIR(stat.st_mode):
            found.deleted.append(name)
        elif self._is_skipped(path, stat):
            found.skipped.append(name)
        else:
            found.size += stat.st_size
            found.saved.append(name)

    def _is_skipped(self, path: Path, stat: os.stat_result) -> bool:
        if modes.S_ISLNK(stat.st_mode):
            return False
        large = stat.st_size > self._limits.file
        return large or self._is_blocked(path) or not os.access(path, os.R_OK)

    async def _tree(self, where: WorkTree, found: "_TreeChanges") -> str:
        if len(found.skipped) > MAX_SKIPPED:
            raise UsageError("The workspace has too many files that cannot be saved.")
        if found.skipped or found.deleted:
            await self._update(["--force-remove"], [*found.skipped, *found.deleted], where)
        if found.saved:
            await self._update(["--add", "--replace", "--remove"], found.saved, where)
        try:
            return await self._git.sha("write-tree", where=where)
        except SandboxError:
            # The index refers to deleted objects; start over with a new one.
            where.index.unlink(missing_ok=True)
            raise

    async def _update(self, options: list[str], names: list[str], where: WorkTree) -> None:
        listed = b"".join(os.fsencode(name) + b"\0" for name in names)
        await self._git.run("update-index", *options, "-z", "--stdin", where=where, stdin=listed)


class _TreeChanges:
    """Differences between work tree and index, grouped by how they are handled."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.deleted: list[str] = []
        self.skipped: list[str] = []
        self.nested: list[str] = []
        self.size = 0
        self._inside: dict[Path, bool] = {}

    def is_inside(self, folder: Path) -> bool:
        """Whether the folder is reached without symlinks."""
        if folder not in self._inside:
            self._inside[folder] = folder.resolve() == folder
        return self._inside[folder]


def short_hash(text: str) -> str:
    return sha256(os.fsencode(text)).hexdigest()[:16]


def printable_name(name: str) -> str:
    """Return a file name as text, whatever its bytes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def remove_stale_lock(index: Path, now: float) -> None:
    lock = index.with_name(f"{index.name}.lock")
    try:
        if now - lock.stat().st_mtime > STALE_LOCK_SECONDS:
            lock.unlink()
    except FileNotFoundError:
        return


BATCH_BYTES = 32 << 20
"""Bytes of file contents held in memory at a time."""
LINK_MODE, PROGRAM_MODE = "120000", "100755"
_FILE_MODES = ("100644", PROGRAM_MODE, LINK_MODE)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Id of the empty tree."""


class RestoreStep(Struct, frozen=True):
    """A file to be written (`blob`) or removed (no blob)."""

    path: str
    mode: str = ""
    blob: str = ""


async def restore_steps(
    git: ShadowRepository, now: str, then: str, skipped: Sequence[str]
) -> list[RestoreStep]:
    """Return the steps from the current tree to the earlier one."""
    raw = await git.data("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", now, then)
    fields = raw.split(b"\0")
    not_saved = set(skipped)
    found: list[RestoreStep] = []
    for info, name in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, blob, _ = info.decode().split(" ")
        path = os.fsdecode(name)
        if mode in _FILE_MODES:
            found.append(RestoreStep(path, mode, blob))
        elif mode == "000000" and printable_name(path) not in not_saved:
            found.append(RestoreStep(path))
    return found


async def batches(git: ShadowRepository, wanted: Sequence[RestoreStep]) -> list[list[RestoreStep]]:
    """Group steps so that the contents of each batch fit in memory."""
    blobs = "".join(f"{step.blob}\n" for step in wanted).encode()
    sizes = await git.data("cat-file", "--batch-check=%(objectsize)", stdin=blobs)
    found: list[list[RestoreStep]] = []
    room = 0
    for step, size in zip(wanted, sizes.split(), strict=True):
        if not found or int(size) > room:
            found.append([])
            room = BATCH_BYTES
        found[-1].append(step)
        room -= int(size)
    return found


async def contents(git: ShadowRepository, wanted: Sequence[RestoreStep]) -> list[bytes]:
    blobs = "".join(f"{step.blob}\n" for step in wanted).encode()
    raw = await git.data("cat-file", "--batch", stdin=blobs)
    found: list[bytes] = []
    at = 0
    for _ in wanted:
        end = raw.index(b"\n", at)
        size = int(raw[at:end].split()[-1])
        found.append(raw[end + 1 : end + 1 + size])
        at = end + 2 + size
    return found


def restore_file(work: Path, step: RestoreStep, data: bytes, forbids: Forbids) -> None:
    """Raises `OSError` or `ToolError`."""
    path = work / step.path
    made: list[Path] = []
    with open_folder(path.parent, forbids, made) as folder:
        present = folder.stat(path.name)
        regular = present is not None and modes.S_ISREG(present.st_mode)
        if present is not None and not regular:
            folder.unlink(path.name)
            present = None
        if step.mode == LINK_MODE:
            if present is not None:
                folder.check(path.name, present)
                folder.unlink(path.name)
            folder.symlink(os.fsdecode(data), path.name)
            return
    mode = present.st_mode & 0o7777 if present is not None else 0o644
    mode = mode | 0o111 if step.mode == PROGRAM_MODE else mode & ~0o111
    before = None if present is None else b""
    apply_changes([FileChange(path, before, data, present, mode)], forbids)


def remove_file(work: Path, step: RestoreStep, forbids: Forbids) -> None:
    """Remove a file, and the folders that become empty."""
    path = work / step.path
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        open_folder(path.parent, forbids) as folder,
    ):
        present = folder.stat(path.name)
        if present is None:
            return
        if not modes.S_ISLNK(present.st_mode):
            folder.check(path.name, present)
        folder.unlink(path.name)
    for parent in path.parents:
        if parent == work:
            return
        try:
            with open_folder(parent.parent, forbids) as folder:
                folder.rmdir(parent.name)
        except (OSError, ToolError):
            return
