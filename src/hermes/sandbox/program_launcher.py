"""Start programs for plugins; their process trees end with this process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.ports.plugins import LaunchProgram, Program
from hermes.ports.sandbox import Process
from hermes.sandbox.spawner import Spawner, SpawnRequest


def program_launcher(spawner: Spawner) -> LaunchProgram:
    @asynccontextmanager
    async def launch(program: Program) -> AsyncGenerator[Process]:
        start = SpawnRequest(
            argv=program.argv,
            cwd=program.cwd,
            env=program.env,
            has_stdin=True,
            label=program.label,
        )
        async with spawner.open(start) as child:
            await child.wait_started()
            yield child

    return launch
