"""Tell a turn that somebody ended from one that stumbled over a cancellation of its own."""

import asyncio
import math

import anyio


def cancelled_from_outside() -> bool:
    """Whether a scope around us, or whoever owns our task, wants us to end.

    Libraries leak cancellations of their own futures; those are failures, not wishes.
    """
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (
        task is not None and task.cancelling() > 0
    )
