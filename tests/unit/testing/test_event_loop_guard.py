import time
from collections.abc import Callable

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from support.event_loop_guard import MAX_BLOCK, LoopBlocked, guard_loop


def idle_for(seconds: float) -> None:
    time.sleep(seconds)


def busy_for(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def blocked_by(block: Callable[[float], None]) -> None:
    async with guard_loop(MAX_BLOCK):
        await anyio.lowlevel.checkpoint()
        block(0.6)


@pytest.mark.slow
@pytest.mark.parametrize("block", [idle_for, busy_for])
async def test_blocking_call_is_named(block: Callable[[float], None]):
    # A block is not reported while the whole machine is suspended, so try several times.
    errors: list[str] = []
    while not errors or (block.__name__ not in errors[-1] and len(errors) < 10):
        try:
            await blocked_by(block)
            errors.append("not blocked")
        except LoopBlocked as error:
            errors.append(str(error))
    assert block.__name__ in errors[-1]


async def test_work_in_a_thread_does_not_block_the_loop():
    async with guard_loop(MAX_BLOCK) as guard:
        await anyio.to_thread.run_sync(idle_for, 0.2)
    assert guard.blocks == []
