"""Build the first tools from what they need; names become objects here and in `app` only."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.blobs import Blobs
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.sandbox import Sandbox
from hermes.ports.tool import Tool
from hermes.schema.scope import Scope
from hermes.tools.aside import Aside
from hermes.tools.clarify import Clarify
from hermes.tools.files.documents import Documents
from hermes.tools.files.editor import Editor
from hermes.tools.files.locks import Locks
from hermes.tools.files.patch import Patch
from hermes.tools.files.read import ReadFile, ReadParts
from hermes.tools.files.seen import Seen
from hermes.tools.files.syntax import Syntax
from hermes.tools.files.write import WriteFile
from hermes.tools.masked import Masked
from hermes.tools.places import TEMPORARY, Places
from hermes.tools.processes.registry import Registry
from hermes.tools.processes.tool import ProcessTool
from hermes.tools.search.tool import SearchFiles, SearchParts
from hermes.tools.terminal.shell import Shell
from hermes.tools.terminal.spills import Spills
from hermes.tools.terminal.tool import Terminal, TerminalParts
from hermes.tools.todo import Todo

CHANGING = frozenset({"terminal", "write_file", "patch"})
"""Tools before whose first call in a turn the files are kept."""


class ToolDeps(Struct, frozen=True, kw_only=True):
    """`env` builds the environment of a scope's child processes; `home` is the user's own.

    `protected` are our secrets and databases; `rg` is None where there is no ripgrep.
    `redact_file` is for the text of files, where code that only looks like a secret must
    stay whole to be edited; without it, `redact` is used. `processes` keeps what is left
    running; `network` says whether commands have it unasked. `checkpoints` keeps files before
    they are changed; `private` are files of the user's own that are read with leave only.
    `near` is a sandbox of this machine, for reading its files when commands run elsewhere.
    """

    sandbox: Sandbox
    blobs: Blobs
    clock: Clock
    env: Callable[[Scope], dict[str, str]]
    redact: Callable[[str], str]
    home: Path
    spill_folder: Path
    shell: Shell
    rg: str | None
    protected: Sequence[Path] = ()
    command_timeout: float = 180.0
    redact_file: Callable[[str], str] | None = None
    processes: Registry | None = None
    network: bool = False
    near: Sandbox | None = None
    checkpoints: Checkpoints | None = None
    node: str | None = None
    private: Sequence[Path] = ()
    locks: Locks | None = None
    own_tmp: Callable[[], Path | None] = lambda: None
    temporary: Sequence[Path] = TEMPORARY


def first_tools(deps: ToolDeps) -> dict[str, Tool]:
    """The tools by name, in the order in which the model is told of them."""
    places = Places(deps.home, deps.protected, deps.temporary, deps.private, deps.own_tmp)
    seen = Seen()
    aside = Aside()
    bash = deps.shell.path if deps.shell.bash else None
    syntax = Syntax(deps.near or deps.sandbox, bash, deps.node)
    editor = Editor(places, seen, aside, syntax, deps.locks)
    terminal = TerminalParts(
        sandbox=deps.sandbox,
        shell=deps.shell,
        env=deps.env,
        places=places,
        spills=Spills(deps.spill_folder),
        redact=deps.redact,
        clock=deps.clock,
        timeout=deps.command_timeout,
        processes=deps.processes,
        network=deps.network,
    )
    masked = deps.redact_file or deps.redact
    search = SearchParts(
        sandbox=deps.near or deps.sandbox, places=places, rg=deps.rg, redact=masked
    )
    reading = ReadParts(
        places=places,
        seen=seen,
        blobs=deps.blobs,
        redact=masked,
        aside=aside,
        documents=Documents(deps.near or deps.sandbox),
    )
    tools: list[Tool] = [
        Terminal(terminal),
        *([ProcessTool(deps.processes, deps.clock)] if deps.processes else []),
        ReadFile(reading),
        Masked(WriteFile(editor), masked),
        Masked(Patch(editor, masked), masked),
        SearchFiles(search),
        Todo(),
        Clarify(),
    ]
    if deps.checkpoints is not None:
        tools = _kept_first(tools, deps.checkpoints)
    return {tool.spec.name: tool for tool in tools}


def _kept_first(tools: Sequence[Tool], checkpoints: Checkpoints) -> list[Tool]:
    from hermes.tools.checkpoints.kept_first import KeptFirst  # noqa: PLC0415 - who keeps pays

    return [KeptFirst(one, checkpoints) if one.spec.name in CHANGING else one for one in tools]
