"""Start child processes for the owner, and end them when the owner is gone.

The spawner runs this file as a script; it uses only the standard library. It is small and has
one thread, so it can fork cheaply: a tenth of the cost of a new interpreter.

    owner ──fds──> reaper ──fork──> supervisor (one per job) ──fork──> the command and its tree

A supervisor is the subreaper of its job: daemons below it become its children, so "no child is
left" means that the whole tree is gone. It reads the job's control socket, which closes when the
owner dies. The reaper is a subreaper too: it inherits and kills the tree of a supervisor that was
killed or could not finish.
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
"""The descriptor number of the first extra file that a command finds open."""
SETTLE = 0.2
"""Seconds for processes a command left running to end on their own, like the end of a pipe."""
ORPHAN_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL when the owner is gone."""
KILL_TIMEOUT = 2.0
"""Seconds of killing before a tree counts as stuck, for example because it belongs to root."""
POLL_INTERVAL = 0.05
ISOLATION_FAILED = 1 << 8
"""The wait status of a program that exits with 1."""


def main(requests: socket.socket) -> None:
    prctl(PR_SET_NAME, b"hermes-reaper")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    gc.freeze()
    Reaper(requests).run()
    os._exit(0)


class Reaper:
    """Forks a supervisor per request until the owner closes the socket."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.sigchld = SigchldPipe()
        self.supervisors: set[int] = set()
        self.running = True
        self.kill_deadline = 0.0
        """When to stop killing trees without a supervisor; 0 when there are none."""

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        poll.register(self.sigchld.read_end, select.POLLIN)
        while self.running:
            for fd, _ in poll.poll(int(POLL_INTERVAL * 1000) if self.kill_deadline else None):
                if fd == self.sigchld.read_end:
                    self.sigchld.drain()
                else:
                    self.serve()
            self.reap()
        self.finish()

    def finish(self) -> None:
        """Kill the trees of supervisors that die during shutdown."""
        poll = select.poll()
        poll.register(self.sigchld.read_end, select.POLLIN)
        end = time.monotonic() + SETTLE
        while self.kill_deadline or (self.supervisors and time.monotonic() < end):
            if poll.poll(int(POLL_INTERVAL * 1000)):
                self.sigchld.drain()
            self.reap()

    def serve(self) -> None:
        data, fds, _, _ = socket.recv_fds(self.requests, 1, 4)
        self.running = bool(data)
        for fd in fds:
            os.set_inheritable(fd, False)
        if len(fds) == 4 and (pid := fork()) >= 0:
            if pid == 0:
                self.become_supervisor(fds)
            self.supervisors.add(pid)
        for fd in fds:
            os.close(fd)

    def become_supervisor(self, fds: list[int]) -> None:
        """Never returns; a non-zero exit code tells the reaper that processes may be left."""
        gone = False
        try:
            self.requests.close()
            self.sigchld.close()
            gone = JobSupervisor(socket.socket(fileno=fds[0])).run(fds[1:])
        finally:
            os._exit(0 if gone else 1)

    def reap(self) -> None:
        """Look for orphans only when a supervisor failed: only then can any be left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self.supervisors:
                    self.supervisors.discard(pid)
                    if status:
                        self.kill_deadline = time.monotonic() + KILL_TIMEOUT
        except ChildProcessError:
            pass
        if self.kill_deadline:
            self.kill_orphans()

    def kill_orphans(self) -> None:
        orphans = descendants(os.getpid(), self.supervisors) or []
        if not orphans or time.monotonic() > self.kill_deadline:
            self.kill_deadline = 0.0
        for number in (signal.SIGSTOP, signal.SIGKILL):
            signal_all(orphans, number)


class SigchldPipe:
    """A pipe that becomes readable when a child has ended."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self.write_end, False)
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.set_wakeup_fd(self.write_end, warn_on_full_buffer=False)

    def drain(self) -> None:
        try:
            while os.read(self.read_end, 512):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.read_end)
        os.close(self.write_end)


def fork() -> int:
    """Return -1 when no process can be created; the owner then sees its control socket close."""
    try:
        return os.fork()
    except OSError:
        return -1


class SpawnRequest:
    """A packed request: `cwd`, grace, counts, then the words of five lists, separated by NUL.

    The counts are those of the arguments, of files to open for reading, of paths to hold open, and
    of paths that must exist; then 1 to report whether the command started. The rest is the
    environment.
    """

    def __init__(self, packed: bytes) -> None:
        self.cwd, grace, counts, *rest = packed.split(b"\0")
        self.grace = float(grace)
        *numbers, reports = (*map(int, counts.split()), 0, 0, 0, 0)[:5]
        words = iter(rest)
        kinds = [[next(words) for _ in range(number)] for number in numbers]
        self.argv, self.files, self.held_paths, self.required_paths = kinds
        self.reports_status = bool(reports)
        self.env = dict(pair.split(b"=", 1) for pair in words)


class JobSupervisor:
    """Starts one job, waits for it, and leaves no process of it behind."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.sigchld = SigchldPipe()
        self.status: int | None = None
        self.tree_gone = False
        self.keep_running = True
        self.has_owner = True
        self.group = 0
        self.status_fd = -1

    def run(self, fds: list[int]) -> bool:
        """Return whether no process is left."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        job = self.receive()
        if job is None:
            return True
        try:
            if job.reports_status:
                self.status_fd, writer = os.pipe()
                os.set_blocking(self.status_fd, False)
                fds.append(writer)
            self.group = spawn(job, fds)
        except OSError as error:
            self.send(b"E%d\n" % (error.errno or 0))
            return True
        for fd in fds:
            os.close(fd)
        self.send(b"P%d\n" % self.group)
        self.watch(job.grace)
        return self.tree_gone

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
        while self.status is None and self.keep_running:
            self.wait(None)
        if self.keep_running:
            self.wait_until_gone(SETTLE)
        left = 0
        if not self.tree_gone:
            left = len(self.tree())
            self.end_tree(grace if self.has_owner else min(grace, ORPHAN_GRACE))
        stuck = 0 if self.tree_gone else len(self.tree())
        status = -1 if self.status is None else self.status
        self.send(b"X%d %d %d %d\n" % (status, left, stuck, self.began()))

    def began(self) -> bool:
        """False if the isolation failed: it exits without reporting the command's status."""
        if self.status_fd < 0 or self.status is None or self.status != ISOLATION_FAILED:
            return True
        try:
            return b"exit-code" in os.read(self.status_fd, 4096)
        except BlockingIOError:
            return False

    def end_tree(self, grace: float) -> None:
        self.signal_tree(signal.SIGTERM)
        self.signal_tree(signal.SIGCONT)
        self.wait_until_gone(grace)
        deadline = time.monotonic() + KILL_TIMEOUT
        while not self.tree_gone and time.monotonic() < deadline:
            self.signal_tree(signal.SIGSTOP)
            self.signal_tree(signal.SIGKILL)
            self.wait_until_gone(POLL_INTERVAL)

    def wait_until_gone(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.tree_gone and (left := end - time.monotonic()) > 0:
            self.wait(left)

    def wait(self, seconds: float | None) -> None:
        """Wait for a child to end, a message of the owner, or the timeout."""
        poll = select.poll()
        poll.register(self.sigchld.read_end, select.POLLIN)
        if self.has_owner:
            poll.register(self.control, select.POLLIN)
        for fd, _ in poll.poll(None if seconds is None else max(1, int(seconds * 1000))):
            if fd == self.sigchld.read_end:
                self.sigchld.drain()
            else:
                self.read_control()
        self.reap()

    def read_control(self) -> None:
        """Read the control socket: any message, or its end, means that the job must end."""
        try:
            data = self.control.recv(16)
        except OSError:
            data = b""
        self.keep_running = False
        self.has_owner = bool(data)

    def reap(self) -> None:
        while not self.tree_gone:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.tree_gone = True
                return
            if pid == 0:
                return
            if pid == self.group:
                self.status = status

    def tree(self) -> list[int]:
        """All descendants of this process; without /proc, the command's process group."""
        found = descendants(os.getpid())
        return [-self.group] if found is None else found

    def signal_tree(self, number: int) -> None:
        signal_all(self.tree(), number)

    def send(self, message: bytes) -> None:
        """Send a message; an owner that cannot be reached is gone, and the job is ended."""
        try:
            self.control.send(message, getattr(socket, "MSG_NOSIGNAL", 0))
        except OSError:
            self.has_owner = self.keep_running = False


def ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing; without a handler the signal would not reach the wake-up pipe."""


def spawn(job: SpawnRequest, fds: list[int]) -> int:
    """Start the command in its own session with only the three standard files and the extra ones.

    `posix_spawn` does not copy our pages as a fork would: half the cost. A terminal that a session
    leader opens by name becomes the controlling terminal.
    """
    os.chdir(job.cwd)
    for path in job.required_paths:
        os.lstat(path)
    program = find_program(job.argv[0], job.env)
    files: list[tuple[int, int, int] | tuple[int, int, bytes, int, int]] = [
        (os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds[:3])
    ]
    extra = open_extra_files(job, fds[3:])
    files += [(os.POSIX_SPAWN_DUP2, fd, FIRST_EXTRA_FD + index) for index, fd in enumerate(extra)]
    if sys.platform == "linux" and os.isatty(fds[0]):
        terminal = os.ttyname(fds[0]).encode()
        files[0] = (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0)
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    if sys.platform == "linux":
        return os.posix_spawn(
            program, job.argv, job.env, file_actions=files, setsigdef=defaults, setsid=True
        )
    return os.posix_spawn(
        program, job.argv, job.env, file_actions=files, setsigdef=defaults, setpgroup=0
    )


def open_extra_files(job: SpawnRequest, more: list[int]) -> list[int]:
    """Open the job's files and held paths above the numbers under which it will find them.

    A held path must be where its name says: a link on the way may have been created a moment ago.
    This process ends with the job, and the files are closed with it.
    """
    above = FIRST_EXTRA_FD + len(job.files) + len(job.held_paths) + len(more)
    opened: list[int] = []
    for path in (*job.files, *job.held_paths):
        flags = os.O_RDONLY if len(opened) < len(job.files) else os.O_PATH
        fd = os.open(path, flags | os.O_CLOEXEC)
        if len(opened) >= len(job.files) and os.readlink(b"/proc/self/fd/%d" % fd) != path:  # noqa: PTH115 as above
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        opened.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above))
        os.close(fd)
    return opened + [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in more]


def find_program(program: bytes, env: dict[bytes, bytes]) -> bytes:
    """Find the file to execute on the child's own PATH."""
    if b"/" in program:
        return program
    for folder in env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        path = (folder or b".") + b"/" + program
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113 no pathlib here
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def descendants(pid: int, excluded: Collection[int] = ()) -> list[int] | None:
    """All descendants except the `excluded` and theirs; None where there is no /proc."""
    below: dict[int, list[int]] = {}
    try:
        with os.scandir("/proc") as entries:
            names = [entry.name for entry in entries if entry.name.isdigit()]
    except OSError:
        names = []
    for name in names:
        if parent := parent_of(name):
            below.setdefault(parent, []).append(int(name))
    found = [child for child in below.get(pid, ()) if child not in excluded]
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
    """On other systems a supervisor has only the process group."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
