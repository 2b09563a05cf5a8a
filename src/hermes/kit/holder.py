"""Who holds a lease: this very process, named so that its death can be seen from outside."""

import os
import socket
from pathlib import Path


def this_process() -> str:
    """`host/boot/pid/start`: a pid used again after a crash has another start time."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{_boot()}/{pid}/{_start(pid)}"


def is_surely_dead(holder: str) -> bool:
    """True only when the process ran on this machine and is gone; in doubt, it lives."""
    host, _, rest = holder.partition("/")
    boot, _, rest = rest.partition("/")
    pid, _, start = rest.partition("/")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return boot != _boot() or _start(int(pid)) != start


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _start(pid: int) -> str:
    """Start time in clock ticks; without /proc only whether the process exists."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "here" if not Path("/proc").exists() and _exists(pid) else "gone"
    return stat.rpartition(")")[2].split()[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
