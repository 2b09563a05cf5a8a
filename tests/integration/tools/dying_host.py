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

from background import registry_of
from hermes.kit.clock import SystemClock
from hermes.ports.model import Request
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.schema.events import Event
from hermes.schema.messages import Assistant, Result, Text, ToolCall, text_of
from hermes.session.conversation import Conversation, Origin
from hermes.session.runner import Runner
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import open_store
from hermes.testing.scripted import ScriptedModel, Step, says
from hermes.tools.catalog import ToolDeps, first_tools
from hermes.tools.terminal.shell import find_shell
from talks import ScriptedPlanner, half_a_cent
from workbench import answer, call

PATH = "/usr/local/bin:/usr/bin:/bin"
UNKNOWN = "the outcome is unknown"


def acts(run: int) -> Callable[[Request], Sequence[Step]]:
    def script(request: Request) -> Sequence[Step]:
        command = f"echo {run} >> effects; kill -9 {os.getpid()}; sleep 1000"
        said = answer(call("terminal", f"call-{run}", command=command))
        return [structs.replace(said, id=f"msg-{run}")]

    return script


async def live(folder: Path, run: int, *, last: bool) -> None:
    clock = SystemClock()
    with Door() as door:
        async with (
            open_store(folder / "state.db", clock) as store,
            registry_of(store, clock, folder) as registry,
        ):
            deps = ToolDeps(
                sandbox=LocalSandbox(door),
                blobs=FileBlobs(folder / "blobs"),
                clock=clock,
                env=lambda scope: child_env(EnvRules(process={"PATH": PATH}), scope),
                redact=lambda text: text,
                home=folder,
                spill_folder=folder / "spill",
                shell=find_shell(PATH),
                rg=None,
                processes=registry,
            )
            model = ScriptedModel(says("over") if last else acts(run))
            planner = ScriptedPlanner(model, first_tools(deps))
            runner = Runner(store, clock, planner, half_a_cent, "default")
            talk = Conversation(store, clock, runner, Origin(cwd=str(folder)))
            if run:
                await talk.resume_latest()
            await talk.say([Text(f"go {run}")], hear)
            rows = [row.message for row in await talk.messages()]
            calls = [
                part
                for message in rows
                if isinstance(message, Assistant)
                for part in message.parts
                if isinstance(part, ToolCall)
            ]
            told = [one for one in rows if isinstance(one, Result) and UNKNOWN in text_of(one)]
            sys.stdout.write(json.dumps({"calls": len(calls), "unknown": len(told)}))
            sys.stdout.flush()


async def hear(event: Event) -> None:
    await anyio.lowlevel.checkpoint()


def in_a_process(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """How it ended; it is a fork, so that nothing has to be imported again."""
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
        ended = in_a_process(lambda run=run: live(folder, run, last=False))
        if ended != -signal.SIGKILL:
            return 2
    return in_a_process(lambda: live(folder, runs, last=True))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
