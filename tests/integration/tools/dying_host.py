"""A program whose own tool kills it, over and over, on one home.

usage: dying_host.py <folder> <runs>

Each run is a process of its own that goes on with the same session: its model runs a command that
leaves a line in `effects` and then kills the process. A last one looks at what is left, and says
how many calls there were and how many of them ended with an unknown outcome, as JSON.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from msgspec import structs

from hermes.bus.memory import MemoryBus
from hermes.kit.clock import SystemClock
from hermes.ports.model import ModelRequest
from hermes.schema.events import Event
from hermes.schema.messages import Assistant, Result, Text, ToolCall, text_of
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.runner import Runner
from hermes.testing.scripted_model import ScriptedModel, ScriptStep, answer_script
from support.conversation import FakePlanner, fixed_price
from support.local_tools import local_tools
from support.turns import assistant_message, tool_call

UNKNOWN = "the outcome is unknown"


def acts(run: int) -> Callable[[ModelRequest], Sequence[ScriptStep]]:
    def script(request: ModelRequest) -> Sequence[ScriptStep]:
        command = f"echo {run} >> effects; kill -9 {os.getpid()}; sleep 1000"
        message = assistant_message(tool_call("terminal", f"call-{run}", command=command))
        return [structs.replace(message, id=f"msg-{run}")]

    return script


async def live(folder: Path, run: int, *, last: bool) -> None:
    clock = SystemClock()
    async with local_tools(folder, clock) as (store, tools):
        model = ScriptedModel(answer_script("over") if last else acts(run))
        planner = FakePlanner(model, tools)
        runner = Runner(
            store=store,
            clock=clock,
            planner=planner,
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
        )
        talk = Conversation(store, clock, runner, SessionOptions(cwd=str(folder)))
        if run:
            await talk.resume_latest()
        await talk.submit([Text(f"go {run}")], ignore)
        rows = [row.message for row in await talk.messages()]
        calls = [
            part
            for message in rows
            if isinstance(message, Assistant)
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
        unknown = [one for one in rows if isinstance(one, Result) and UNKNOWN in text_of(one)]
        sys.stdout.write(json.dumps({"calls": len(calls), "unknown": len(unknown)}))
        sys.stdout.flush()


async def ignore(event: Event) -> None:
    await anyio.lowlevel.checkpoint()


def run_in_fork(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run in a fork, which needs no imports, and return the exit status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            anyio.run(work)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, runs: int) -> int:
    for run in range(runs):
        ended = run_in_fork(lambda run=run: live(folder, run, last=False))
        if ended != -signal.SIGKILL:
            return 2
    return run_in_fork(lambda: live(folder, runs, last=True))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
