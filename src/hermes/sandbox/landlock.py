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

from hermes.ports.sandbox import Exit, Job
from hermes.sandbox import landlock_launcher
from hermes.sandbox.door import Start
from hermes.sandbox.filter import INET, INET6, NETLINK, syscall_filter
from hermes.sandbox.view import (
    Rule,
    Sight,
    View,
    is_hidden,
    make_private,
    rules,
    view_for,
    within,
)
from hermes.sandbox.walled import hidden_folder, must_be_folder, program
from hermes.schema.errors import SandboxError

_LAUNCHER = landlock_launcher.__file__
_ONLINE = (INET, INET6, NETLINK)


class Landlock:
    """`python` is an interpreter that can be started without any of our packages."""

    name = "landlock"
    word = "landlock"
    guards = False

    @property
    def complete(self) -> bool:
        """Landlock knows no modes and times, and the files of the system are root's own."""
        return os.geteuid() != 0

    def __init__(self, view: View, python: str = sys.executable) -> None:
        self._view = view
        self._python = python

    def around(self, start: Start, job: Job) -> Start:
        must_be_folder(start)
        own = view_for(self._view, job.principal)
        make_private(own.tmp)
        families = _ONLINE if job.reach.network else ()
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
        found = rules(view, reach)
        if is_hidden(os.path.realpath(start.cwd), found):
            raise hidden_folder(start)
        words = [self._python, "-I", "-S", _LAUNCHER, calls.hex()]
        words.append("network" if job.reach.network else "none")
        for rule in grants(found):
            words += ["-w" if rule.sight is Sight.CHANGE else "-r", rule.path]
        words += ["--", start.cwd, program(start), *start.argv[1:]]
        env = {**start.env, "TMPDIR": own.tmp}
        return structs.replace(start, argv=tuple(words), env=env, cwd="/")

    def ended(self, how: Exit) -> Exit:
        return how


def landlock_version() -> int:
    """0 where the kernel has no landlock."""
    if sys.platform != "linux":
        return 0
    return landlock_launcher.version(ctypes.CDLL(None, use_errno=True))


def grants(found: list[Rule]) -> Iterator[Rule]:
    """What is allowed, so that nothing allowed contains anything hidden."""
    root = Rule("/", Sight.READ)
    rest = found
    if found and found[0].path == "/":
        root, rest = found[0], found[1:]
    yield from _allowed(root, rest)


def _allowed(here: Rule, below: list[Rule]) -> Iterator[Rule]:
    if here.sight is not Sight.HIDDEN and not any(rule.sight is Sight.HIDDEN for rule in below):
        yield here
        yield from (rule for rule in below if rule.sight is Sight.CHANGE)
        return
    for path in sorted({*_steps(here, below), *_entries(here)}):
        inside = [rule for rule in below if within(rule.path, path)]
        own = next((rule for rule in inside if rule.path == path), None)
        rest = [rule for rule in inside if rule.path != path]
        yield from _allowed(own or Rule(path, here.sight), rest)


def _steps(here: Rule, below: list[Rule]) -> Iterator[str]:
    """The next folder towards each rule, when what lies here is not listed because it is hidden."""
    start = here.path.rstrip("/")
    for rule in below:
        yield f"{start}/{rule.path[len(start) + 1 :].split('/', 1)[0]}"


def _entries(here: Rule) -> list[str]:
    """What a link leads to is allowed, or not, where it lies."""
    if here.sight is Sight.HIDDEN:
        return []
    try:
        with os.scandir(here.path) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
