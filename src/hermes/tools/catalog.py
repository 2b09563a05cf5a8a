"""Build the first tools from what they need; names become objects here and in `app` only."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.blobs import Blobs
from hermes.ports.sandbox import Sandbox
from hermes.ports.tool import Tool
from hermes.schema.scope import Scope
from hermes.tools.aside import Aside
from hermes.tools.files.editor import Editor
from hermes.tools.files.patch import Patch
from hermes.tools.files.read import ReadFile, ReadParts
from hermes.tools.files.seen import Seen
from hermes.tools.files.write import WriteFile
from hermes.tools.masked import Masked
from hermes.tools.places import Places
from hermes.tools.search.tool import SearchFiles, SearchParts
from hermes.tools.terminal.shell import Shell
from hermes.tools.terminal.spills import Spills
from hermes.tools.terminal.tool import Terminal, TerminalParts
from hermes.tools.todo import Todo


class ToolDeps(Struct, frozen=True, kw_only=True):
    """`env` builds the environment of a scope's child processes; `home` is the user's own.

    `protected` are our secrets and databases; `rg` is None where there is no ripgrep.
    `redact_file` is for the text of files, where code that only looks like a secret must
    stay whole to be edited; without it, `redact` is used.
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


def first_tools(deps: ToolDeps) -> dict[str, Tool]:
    """The tools by name, in the order in which the model is told of them."""
    places = Places(deps.home, deps.protected)
    seen = Seen()
    aside = Aside()
    editor = Editor(places, seen, aside)
    terminal = TerminalParts(
        sandbox=deps.sandbox,
        shell=deps.shell,
        env=deps.env,
        places=places,
        spills=Spills(deps.spill_folder),
        redact=deps.redact,
        clock=deps.clock,
        timeout=deps.command_timeout,
    )
    masked = deps.redact_file or deps.redact
    search = SearchParts(sandbox=deps.sandbox, places=places, rg=deps.rg, redact=masked)
    reading = ReadParts(places=places, seen=seen, blobs=deps.blobs, redact=masked, aside=aside)
    tools: list[Tool] = [
        Terminal(terminal),
        ReadFile(reading),
        Masked(WriteFile(editor), masked),
        Masked(Patch(editor, masked), masked),
        SearchFiles(search),
        Todo(),
    ]
    return {tool.spec.name: tool for tool in tools}
