"""Load every tool with placeholder dependencies, for inspection only."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes.kit.clock import SystemClock
from hermes.ports.tool import Tool
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.tools.catalog import BUILT_IN, Registration, load_all_tools
from hermes.tools.collaborators import LearningDeps, ToolCollaborators
from hermes.tools.terminal.shell import find_shell

_UNUSED: Any = object()


def all_tools(folder: Path, registered: Sequence[Registration] = BUILT_IN) -> dict[str, Tool]:
    return load_all_tools(
        ToolCollaborators(
            sandbox=LocalSandbox(Spawner()),
            blobs=_UNUSED,
            clock=SystemClock(),
            env=lambda scope: {},
            redact=str,
            home=folder,
            spill_folder=folder,
            shell=find_shell("/usr/bin:/bin"),
            rg=None,
            processes=_UNUSED,
            python=lambda place: sys.executable,
            store=_UNUSED,
            message_sender=_UNUSED,
            features=_UNUSED,
            delegator=lambda: _UNUSED,
            learning=LearningDeps(
                memory_store=lambda: _UNUSED,
                skill_catalog=lambda: _UNUSED,
                usage=lambda: _UNUSED,
                skill_editor=lambda: _UNUSED,
                skill_environment=lambda: _UNUSED,
            ),
        ),
        registered,
    )
