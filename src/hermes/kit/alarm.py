"""Sleep until a time of day, and notice when the system's clock is set or the machine slept."""

import asyncio
import ctypes
import os
import sys
from datetime import UTC, datetime

import anyio

_CLOCK_REALTIME = 0
_ABSOLUTE = 1
_CANCEL_ON_SET = 2
_CHECK_SECONDS = 60.0
"""Seconds between checks of the clock on systems without a timer that notices changes."""


class _TimeSpec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _TimerSpec(ctypes.Structure):
    _fields_ = [("interval", _TimeSpec), ("value", _TimeSpec)]


async def sleep_until(at: datetime) -> None:
    """Return at that time, or earlier if the clock was set meanwhile."""
    timer = _open_timer(at) if sys.platform == "linux" else None
    if timer is None:
        left = (at - datetime.now(UTC)).total_seconds()
        await anyio.sleep(min(max(left, 0.0), _CHECK_SECONDS))
        return
    try:
        await _wait_readable(timer)
    finally:
        os.close(timer)


async def _wait_readable(file: int) -> None:
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)


def _open_timer(at: datetime) -> int | None:
    """Open a kernel timer that becomes readable; None if the system has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        file: int = libc.timerfd_create(_CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError:
        return None
    if file < 0:
        return None
    micros = max(int((at - datetime.fromtimestamp(0, UTC)).total_seconds() * 1_000_000), 1)
    seconds, rest = divmod(micros, 1_000_000)
    # One microsecond more, so that the timer never ends before the time.
    spec = _TimerSpec(_TimeSpec(0, 0), _TimeSpec(seconds, rest * 1000 + 1000))
    if libc.timerfd_settime(file, _ABSOLUTE | _CANCEL_ON_SET, ctypes.byref(spec), None) != 0:
        os.close(file)
        return None
    return file
