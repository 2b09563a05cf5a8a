"""Generate unique ids that sort by time; identify processes and workers."""

import os
import random
import secrets
import socket
import time
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_SHIFTS = tuple(range(120, -1, -10))


def new_id(prefix: str) -> str:
    """48 bits of milliseconds and 80 random bits in Crockford's base32."""
    # Not from the kernel: that would release the GIL, and getting it back is slow under load.
    chance = random.getrandbits(80)
    n = (time.time_ns() // 1_000_000) << 80 | chance
    return f"{prefix}_" + "".join([_PAIRS[(n >> shift) & 1023] for shift in _SHIFTS])


def new_session_id(now: datetime) -> str:
    """`20260131_235959_a1b2c3`, the form users know from their existing sessions."""
    return f"{now:%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"


_WORKER_PARTS = 5


def process_id() -> str:
    """`host/boot.pids/pid/start`: a reused pid has a different start time."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{'.'.join(_boot_and_pids())}/{pid}/{_start(pid)}"


def new_worker_id() -> str:
    """`host/boot.pids/pid/start/token`: one worker, never named twice."""
    return f"{process_id()}/{secrets.token_hex(4)}"


def new_holder_id(worker: str) -> str:
    """A unique holder of claims within a worker."""
    return f"{worker}/{secrets.token_hex(4)}"


def worker_of(holder: str) -> str:
    """The worker that a holder belongs to; a holder without one stands for itself."""
    return "/".join(holder.split("/", _WORKER_PARTS)[:_WORKER_PARTS])


def names_worker(holder: str) -> bool:
    """False for holders of earlier versions, which had no workers."""
    return holder.count("/") >= _WORKER_PARTS - 1


def runs_here(holder: str) -> bool:
    """Whether the process is on this machine, alive and not a reused pid."""
    here = holder.split("/")[:2] == process_id().split("/")[:2]
    return here and not is_surely_dead(holder)


def is_surely_dead(holder: str) -> bool:
    """Whether the process ran on this machine and is gone; False if unknown."""
    host, place, pid, start, *_ = [*holder.split("/"), "", "", ""]
    boot, _, pids = place.partition(".")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    boot_here, pids_here = _boot_and_pids()
    if boot != boot_here:
        return True
    # A container may share host name and boot id, but not the pid namespace.
    return pids == pids_here and _start(int(pid)) != start


def shares_boot(holder: str) -> bool:
    """Whether it ran in this boot, so that its monotonic clock is comparable."""
    place = holder.partition("/")[2].partition("/")[0]
    return place.partition(".")[0] == _boot_and_pids()[0] != "unknown"


@cache
def _boot_and_pids() -> tuple[str, str]:
    """The ids of this boot, and of the namespace of pids."""
    boot = pids = "unknown"
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        pids = str(Path("/proc/self/ns/pid").stat().st_ino)
    return boot, pids


def _start(pid: int) -> str:
    """Start time in clock ticks; without /proc only whether the process exists."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "here" if not Path("/proc").exists() and pid_exists(pid) else "gone"
    state, *fields = stat.rpartition(")")[2].split()
    # A zombie has already ended.
    return "gone" if state in {"Z", "X"} else fields[18]


def pid_exists(pid: int) -> bool:
    """Whether the process exists, including zombies and other users' processes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
