"""Isolate commands with landlock and seccomp, where namespaces are not available.

Landlock can only allow, and a right covers everything below its folder. So the folders around
hidden paths are walked and their siblings allowed one by one. Names of hidden files can be
listed, but not read. `docs/sandbox.md` lists the limits: no private `/tmp`, nothing read-only in
a writable folder, and no sockets at all without a network.
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
    """`python` is an interpreter that starts without any of our packages."""

    name = "landlock"
    label = "landlock"
    protects_files = False

    @property
    def complete(self) -> bool:
        """Landlock does not cover modes and times, and root owns the files of the system."""
        return os.geteuid() != 0

    def __init__(self, policy: FilesystemPolicy, python: str = sys.executable) -> None:
        self._policy = policy
        self._python = python

    def wrap(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        require_folder(start)
        own = policy_for(self._policy, job.principal)
        make_tmp_folder(own.tmp)
        families = _NETWORK_FAMILIES if job.permissions.network else ()
        root = os.geteuid() == 0
        calls = syscall_filter(
            platform.machine(), families, root=root, ownership=False, namespaces=False
        )
        if calls is None:
            raise SandboxError(f"landlock is not supported on {platform.machine()} machines")
        tmp = (own.tmp,) if job.permissions.writable else ()
        writable = (*job.permissions.writable, *tmp)
        reach = structs.replace(job.permissions, writable=writable, read_only=())
        # The launcher allows the devices that are needed: no other terminals, no raw disks.
        policy = structs.replace(own, guarded=(), hidden=(*own.hidden, "/dev"))
        rules = path_rules(policy, reach)
        if is_hidden(os.path.realpath(start.cwd), rules):
            raise hidden_folder_error(start)
        argv = [self._python, "-I", "-S", _LAUNCHER, calls.hex()]
        argv.append("network" if job.permissions.network else "none")
        for rule in allowed_rules(rules):
            argv += ["-w" if rule.access is PathAccess.CHANGE else "-r", rule.path]
        argv += ["--", start.cwd, find_program(start), *start.argv[1:]]
        env = {**start.env, "TMPDIR": own.tmp}
        return structs.replace(start, argv=tuple(argv), env=env, cwd="/")

    def translate_exit(self, ended: ProcessExit) -> ProcessExit:
        return ended


def landlock_version() -> int:
    """Return 0 where the kernel has no landlock."""
    if sys.platform != "linux":
        return 0
    return landlock_launcher.version(ctypes.CDLL(None, use_errno=True))


def allowed_rules(rules: list[PathRule]) -> Iterator[PathRule]:
    """Yield what is allowed, such that nothing allowed contains anything hidden."""
    root = PathRule("/", PathAccess.READ)
    rest = rules
    if rules and rules[0].path == "/":
        root, rest = rules[0], rules[1:]
    yield from _allowed_below(root, rest)


def _allowed_below(parent: PathRule, below: list[PathRule]) -> Iterator[PathRule]:
    if parent.access is not PathAccess.HIDDEN and not any(
        rule.access is PathAccess.HIDDEN for rule in below
    ):
        yield parent
        yield from (rule for rule in below if rule.access is PathAccess.CHANGE)
        return
    for path in sorted({*_next_folders(parent, below), *_entries(parent)}):
        inside = [rule for rule in below if is_within(rule.path, path)]
        own = next((rule for rule in inside if rule.path == path), None)
        rest = [rule for rule in inside if rule.path != path]
        yield from _allowed_below(own or PathRule(path, parent.access), rest)


def _next_folders(parent: PathRule, below: list[PathRule]) -> Iterator[str]:
    """The next folder towards each rule; entries of a hidden folder are not listed."""
    start = parent.path.rstrip("/")
    for rule in below:
        yield f"{start}/{rule.path[len(start) + 1 :].split('/', 1)[0]}"


def _entries(folder: PathRule) -> list[str]:
    """The entries of a folder except links, whose targets are allowed or not where they are."""
    if folder.access is PathAccess.HIDDEN:
        return []
    try:
        with os.scandir(folder.path) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
