"""The process beside ours that starts children, and ends them when we are gone.

Run as a script by `door`, on the standard library alone. It is small and has one thread,
so it may fork freely: a fork here costs a tenth of a new interpreter.

    owner ──fds──> keeper ──fork──> warden (one per job) ──fork──> the command and its tree

A warden is the subreaper of its job: whoever daemonises below it becomes its child, so "no
child is left" means the whole tree is gone. It listens on the job's control socket, and
an owner that dies, however it dies, closes that socket. The keeper is a subreaper too: a
warden that was killed, or could not finish its work, leaves its tree to the keeper, which
kills it at once.
"""

import ctypes
import errno
import fcntl
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection
from types import FrameType

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

FIRST_EXTRA_FD = 10
"""The number under which a command finds the first file that is held open for it."""
SETTLE = 0.2
"""Seconds for what a command left running to end by itself, as the end of a pipe does."""
ORPHAN_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL when the owner is gone."""
KILL_TIMEOUT = 2.0
"""Seconds of killing before a tree counts as stuck, as a process of root's would be."""
POLL_INTERVAL = 0.05
ISOLATION_FAILED = 1 << 8
"""The status of a program that exits with 1."""


def main(requests: socket.socket) -> None:
    prctl(PR_SET_NAME, b"hermes-keeper")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    gc.freeze()
    Reaper(requests).run()
    os._exit(0)


class Reaper:
    """Forks a warden per request until the owner closes the socket."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.alarm = SigchldPipe()
        self.supervisors: set[int] = set()
        self.asked = True
        self.patience = 0.0
        """Until when trees without a warden are being killed; 0 when there are none."""

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        poll.register(self.alarm.woken, select.POLLIN)
        while self.asked:
            for fd, _ in poll.poll(int(POLL_INTERVAL * 1000) if self.patience else None):
                if fd == self.alarm.woken:
                    self.alarm.drain()
                else:
                    self.serve()
            self.reap()
        self.finish()

    def finish(self) -> None:
        """A warden that dies just now must not leave its tree to nobody."""
        poll = select.poll()
        poll.register(self.alarm.woken, select.POLLIN)
        end = time.monotonic() + SETTLE
        while self.patience or (self.supervisors and time.monotonic() < end):
            if poll.poll(int(POLL_INTERVAL * 1000)):
                self.alarm.drain()
            self.reap()

    def serve(self) -> None:
        asked, fds, _, _ = socket.recv_fds(self.requests, 1, 4)
        self.asked = bool(asked)
        for fd in fds:
            os.set_inheritable(fd, False)
        if len(fds) == 4 and (pid := fork()) >= 0:
            if pid == 0:
                self.become_supervisor(fds)
            self.supervisors.add(pid)
        for fd in fds:
            os.close(fd)

    def become_supervisor(self, fds: list[int]) -> None:
        """Never returns; the exit code tells the keeper whether somebody may be left."""
        alone = False
        try:
            self.requests.close()
            self.alarm.close()
            alone = JobSupervisor(socket.socket(fileno=fds[0])).run(fds[1:])
        finally:
            os._exit(0 if alone else 1)

    def reap(self) -> None:
        """Only a warden that failed leaves anybody behind, so only then we look around."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self.supervisors:
                    self.supervisors.discard(pid)
                    if status:
                        self.patience = time.monotonic() + KILL_TIMEOUT
        except ChildProcessError:
            pass
        if self.patience:
            self.kill_orphans()

    def kill_orphans(self) -> None:
        orphans = descendants(os.getpid(), self.supervisors) or []
        if not orphans or time.monotonic() > self.patience:
            self.patience = 0.0
        for number in (signal.SIGSTOP, signal.SIGKILL):
            signal_all(orphans, number)


class SigchldPipe:
    """A pipe that becomes readable when a child ended."""

    def __init__(self) -> None:
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)

    def drain(self) -> None:
        try:
            while os.read(self.woken, 512):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.woken)
        os.close(self.wake)


def fork() -> int:
    """-1 when no process can be had; the owner then sees its control socket close."""
    try:
        return os.fork()
    except OSError:
        return -1


class SpawnRequest:
    """What to run: `cwd`, grace, numbers, five kinds of words; split by NUL.

    The numbers are those of the arguments, of files that it finds open for reading, of places
    that it finds held, of paths that must be there; then 1 if it tells whether the command
    began. The rest is the environment.
    """

    def __init__(self, packed: bytes) -> None:
        self.cwd, grace, counts, *rest = packed.split(b"\0")
        self.grace = float(grace)
        *numbers, tells = (*map(int, counts.split()), 0, 0, 0, 0)[:5]
        words = iter(rest)
        kinds = [[next(words) for _ in range(number)] for number in numbers]
        self.argv, self.files, self.places, self.there = kinds
        self.tells = bool(tells)
        self.env = dict(pair.split(b"=", 1) for pair in words)


class JobSupervisor:
    """Starts one job, waits for it, and leaves nothing of it behind."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.alarm = SigchldPipe()
        self.status: int | None = None
        self.alone = False
        self.wanted = True
        self.owned = True
        self.group = 0
        self.heard = -1

    def run(self, fds: list[int]) -> bool:
        """Whether nobody is left."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        job = self.receive()
        if job is None:
            return True
        try:
            if job.tells:
                self.heard, said = os.pipe()
                os.set_blocking(self.heard, False)
                fds.append(said)
            self.group = spawn(job, fds)
        except OSError as error:
            self.tell(b"E%d\n" % (error.errno or 0))
            return True
        for fd in fds:
            os.close(fd)
        self.tell(b"P%d\n" % self.group)
        self.watch(job.grace)
        return self.alone

    def receive(self) -> SpawnRequest | None:
        header = self.control.recv(4, socket.MSG_WAITALL)
        if len(header) < 4:
            return None
        size = struct.unpack("!I", header)[0]
        packed = bytearray()
        while len(packed) < size:
            got = self.control.recv(size - len(packed))
            if not got:
                return None
            packed += got
        return SpawnRequest(bytes(packed))

    def watch(self, grace: float) -> None:
        while self.status is None and self.wanted:
            self.wait(None)
        if self.wanted:
            self.wait_until_alone(SETTLE)
        left = 0
        if not self.alone:
            left = len(self.tree())
            self.end_tree(grace if self.owned else min(grace, ORPHAN_GRACE))
        stuck = 0 if self.alone else len(self.tree())
        status = -1 if self.status is None else self.status
        self.tell(b"X%d %d %d %d\n" % (status, left, stuck, self.began()))

    def began(self) -> bool:
        """A wall that could not be put up fails, and never told how its command ended."""
        if self.heard < 0 or self.status is None or self.status != ISOLATION_FAILED:
            return True
        try:
            return b"exit-code" in os.read(self.heard, 4096)
        except BlockingIOError:
            return False

    def end_tree(self, grace: float) -> None:
        self.signal_tree(signal.SIGTERM)
        self.signal_tree(signal.SIGCONT)
        self.wait_until_alone(grace)
        patience = time.monotonic() + KILL_TIMEOUT
        while not self.alone and time.monotonic() < patience:
            self.signal_tree(signal.SIGSTOP)
            self.signal_tree(signal.SIGKILL)
            self.wait_until_alone(POLL_INTERVAL)

    def wait_until_alone(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.alone and (left := end - time.monotonic()) > 0:
            self.wait(left)

    def wait(self, seconds: float | None) -> None:
        """Until a child ended, the owner spoke, or the time is over."""
        poll = select.poll()
        poll.register(self.alarm.woken, select.POLLIN)
        if self.owned:
            poll.register(self.control, select.POLLIN)
        for fd, _ in poll.poll(None if seconds is None else max(1, int(seconds * 1000))):
            if fd == self.alarm.woken:
                self.alarm.drain()
            else:
                self.listen()
        self.reap()

    def listen(self) -> None:
        """Any word, and silence too, means: end it."""
        try:
            said = self.control.recv(16)
        except OSError:
            said = b""
        self.wanted = False
        self.owned = bool(said)

    def reap(self) -> None:
        while not self.alone:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.alone = True
                return
            if pid == 0:
                return
            if pid == self.group:
                self.status = status

    def tree(self) -> list[int]:
        """Everybody below this process; without /proc, the command's process group."""
        found = descendants(os.getpid())
        return [-self.group] if found is None else found

    def signal_tree(self, number: int) -> None:
        signal_all(self.tree(), number)

    def tell(self, word: bytes) -> None:
        """An owner who does not hear it is gone, and with it the wish for the job."""
        try:
            self.control.send(word, getattr(socket, "MSG_NOSIGNAL", 0))
        except OSError:
            self.owned = self.wanted = False


def ignore_signal(number: int, frame: FrameType | None) -> None:
    """A handler must exist for the signal to reach the wake-up pipe."""


def spawn(job: SpawnRequest, fds: list[int]) -> int:
    """The command in a session of its own, with the three files and nothing else open.

    `posix_spawn` does not copy our pages as a fork would: half the cost. A terminal that the
    leader of a session opens by its name becomes the one that controls the session.
    """
    os.chdir(job.cwd)
    for path in job.there:
        os.lstat(path)
    program = find_program(job.argv[0], job.env)
    files: list[tuple[int, int, int] | tuple[int, int, bytes, int, int]] = [
        (os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds[:3])
    ]
    held = open_extra_files(job, fds[3:])
    files += [(os.POSIX_SPAWN_DUP2, fd, FIRST_EXTRA_FD + place) for place, fd in enumerate(held)]
    if sys.platform == "linux" and os.isatty(fds[0]):
        terminal = os.ttyname(fds[0]).encode()
        files[0] = (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0)
    plain = [signal.SIGPIPE, signal.SIGXFSZ]
    if sys.platform == "linux":
        return os.posix_spawn(
            program, job.argv, job.env, file_actions=files, setsigdef=plain, setsid=True
        )
    return os.posix_spawn(
        program, job.argv, job.env, file_actions=files, setsigdef=plain, setpgroup=0
    )


def open_extra_files(job: SpawnRequest, more: list[int]) -> list[int]:
    """The job's files and places, opened above the numbers under which it will find them.

    A place is held only if it lies where its path says: on the way there may be a link that
    somebody made a moment ago. This process ends with the job, and they with it.
    """
    above = FIRST_EXTRA_FD + len(job.files) + len(job.places) + len(more)
    held: list[int] = []
    for path in (*job.files, *job.places):
        how = os.O_RDONLY if len(held) < len(job.files) else os.O_PATH
        fd = os.open(path, how | os.O_CLOEXEC)
        if len(held) >= len(job.files) and os.readlink(b"/proc/self/fd/%d" % fd) != path:  # noqa: PTH115 as above
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        held.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above))
        os.close(fd)
    return held + [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in more]


def find_program(program: bytes, env: dict[bytes, bytes]) -> bytes:
    """The file to execute, looked for on the child's own PATH."""
    if b"/" in program:
        return program
    for folder in env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        path = (folder or b".") + b"/" + program
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113 no pathlib here
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def descendants(pid: int, spared: Collection[int] = ()) -> list[int] | None:
    """Everybody below a process except the `spared` and theirs; None where there is no /proc."""
    below: dict[int, list[int]] = {}
    try:
        with os.scandir("/proc") as entries:
            names = [entry.name for entry in entries if entry.name.isdigit()]
    except OSError:
        names = []
    for name in names:
        if parent := parent_of(name):
            below.setdefault(parent, []).append(int(name))
    found = [child for child in below.get(pid, ()) if child not in spared]
    for child in found:
        found.extend(below.get(child, ()))
    return found if names else None


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 no pathlib here
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def prctl(option: int, value: int | bytes) -> None:
    """Where there is no such call, the process group is all a warden has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
