"""The wall without namespaces, for machines that allow none: landlock and a filter of calls.

Landlock only ever allows, and a right counts for everything below its folder. So the folders
around something hidden are walked, and what lies beside it is allowed piece by piece. The
names of hidden files can be listed, their content cannot be read. What it cannot do is
said in `docs/sandbox.md`: no `/tmp` of its own, nothing read-only in a folder that may be changed,
and no socket at all without a network.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Iterator

from msgspec import structs

from hermes.ports.sandbox import ProcessExit, ProcessSpec
from hermes.sandbox import landlock_launcher
from hermes.sandbox.filesystem_policy import (
    FilesystemPolicy,
    PathAccess,
    PathRule,
    is_hidden,
    is_within,
    make_tmp_folder,
    path_rules,
    policy_for,
)
from hermes.sandbox.isolated_sandbox import find_program, hidden_folder_error, require_folder
from hermes.sandbox.seccomp import INET, INET6, NETLINK, syscall_filter
from hermes.sandbox.spawner import SpawnRequest
from hermes.schema.errors import SandboxError

_LAUNCHER = landlock_launcher.__file__
_NETWORK_FAMILIES = (INET, INET6, NETLINK)


class Landlock:
    """`python` is an interpreter that can be started without any of our packages."""

    name = "landlock"
    word = "landlock"
    guards = False

    @property
    def complete(self) -> bool:
        """Landlock knows no modes and times, and the files of the system are root's own."""
        return os.geteuid() != 0

    def __init__(self, view: FilesystemPolicy, python: str = sys.executable) -> None:
        self._view = view
        self._python = python

    def around(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        require_folder(start)
        own = policy_for(self._view, job.principal)
        make_tmp_folder(own.tmp)
        families = _NETWORK_FAMILIES if job.reach.network else ()
        root = os.geteuid() == 0
        calls = syscall_filter(
            platform.machine(), families, root=root, ownership=False, namespaces=False
        )
        if calls is None:
            raise SandboxError(f"landlock is not known on {platform.machine()} machines")
        tmp = (own.tmp,) if job.reach.writable else ()
        writable = (*job.reach.writable, *tmp)
        reach = structs.replace(job.reach, writable=writable, read_only=())
        # What is needed of it, the launcher allows: neither other terminals nor raw disks.
        view = structs.replace(own, guarded=(), hidden=(*own.hidden, "/dev"))
        found = path_rules(view, reach)
        if is_hidden(os.path.realpath(start.cwd), found):
            raise hidden_folder_error(start)
        words = [self._python, "-I", "-S", _LAUNCHER, calls.hex()]
        words.append("network" if job.reach.network else "none")
        for rule in allowed_rules(found):
            words += ["-w" if rule.sight is PathAccess.CHANGE else "-r", rule.path]
        words += ["--", start.cwd, find_program(start), *start.argv[1:]]
        env = {**start.env, "TMPDIR": own.tmp}
        return structs.replace(start, argv=tuple(words), env=env, cwd="/")

    def ended(self, how: ProcessExit) -> ProcessExit:
        return how


def landlock_version() -> int:
    """0 where the kernel has no landlock."""
    if sys.platform != "linux":
        return 0
    return landlock_launcher.version(ctypes.CDLL(None, use_errno=True))


def allowed_rules(found: list[PathRule]) -> Iterator[PathRule]:
    """What is allowed, so that nothing allowed contains anything hidden."""
    root = PathRule("/", PathAccess.READ)
    rest = found
    if found and found[0].path == "/":
        root, rest = found[0], found[1:]
    yield from _allowed_below(root, rest)


def _allowed_below(here: PathRule, below: list[PathRule]) -> Iterator[PathRule]:
    if here.sight is not PathAccess.HIDDEN and not any(
        rule.sight is PathAccess.HIDDEN for rule in below
    ):
        yield here
        yield from (rule for rule in below if rule.sight is PathAccess.CHANGE)
        return
    for path in sorted({*_next_folders(here, below), *_entries(here)}):
        inside = [rule for rule in below if is_within(rule.path, path)]
        own = next((rule for rule in inside if rule.path == path), None)
        rest = [rule for rule in inside if rule.path != path]
        yield from _allowed_below(own or PathRule(path, here.sight), rest)


def _next_folders(here: PathRule, below: list[PathRule]) -> Iterator[str]:
    """The next folder towards each rule, when what lies here is not listed because it is hidden."""
    start = here.path.rstrip("/")
    for rule in below:
        yield f"{start}/{rule.path[len(start) + 1 :].split('/', 1)[0]}"


def _entries(here: PathRule) -> list[str]:
    """What a link leads to is allowed, or not, where it lies."""
    if here.sight is PathAccess.HIDDEN:
        return []
    try:
        with os.scandir(here.path) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
