"""Every tool there is, made from the least that it can be made from: to be looked at, not run."""

import sys
from pathlib import Path
from typing import Any

from hermes.kit.clock import SystemClock
from hermes.ports.tool import Tool
from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.tools.catalog import Knowledge, ToolDeps, every_tool
from hermes.tools.terminal.shell import find_shell

_NOTHING: Any = object()


def all_tools(folder: Path) -> dict[str, Tool]:
    return every_tool(
        ToolDeps(
            sandbox=LocalSandbox(Door()),
            blobs=_NOTHING,
            clock=SystemClock(),
            env=lambda scope: {},
            redact=str,
            home=folder,
            spill_folder=folder,
            shell=find_shell("/usr/bin:/bin"),
            rg=None,
            processes=_NOTHING,
            python=lambda place: sys.executable,
            store=_NOTHING,
            poster=_NOTHING,
            delegates=lambda: _NOTHING,
            knowledge=Knowledge(
                notebook=lambda: _NOTHING,
                shelf=lambda: _NOTHING,
                usage=lambda: _NOTHING,
                skill_editor=lambda: _NOTHING,
                here=lambda: _NOTHING,
            ),
        )
    )
