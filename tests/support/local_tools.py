"""The built-in tools with a real store, a process registry and no isolation."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.kit.clock import Clock
from hermes.ports.tool import Tool
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import GRACE, Spawner
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import find_shell
from support.fake_processes import process_registry, unchanged

TOOL_PATH = "/usr/local/bin:/usr/bin:/bin"


@asynccontextmanager
async def local_tools(
    folder: Path, clock: Clock, grace: float = GRACE
) -> AsyncGenerator[tuple[SqliteStore, dict[str, Tool]]]:
    with Spawner(grace=grace) as spawner:
        async with (
            open_store(folder / "hermes.db", clock) as store,
            process_registry(store, clock, folder) as registry,
        ):
            deps = ToolCollaborators(
                sandbox=LocalSandbox(spawner),
                blobs=FileBlobs(folder / "blobs"),
                clock=clock,
                env=lambda scope: child_env(EnvRules(process={"PATH": TOOL_PATH}), scope),
                redact=unchanged,
                home=folder,
                spill_folder=folder / "spill",
                shell=find_shell(TOOL_PATH),
                rg=find_rg(TOOL_PATH),
                python=lambda _: sys.executable,
                processes=registry,
            )
            yield store, build_tools(deps)
