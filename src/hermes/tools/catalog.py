"""Build the first tools from what they need; names become objects here and in `app` only.

What the model is told of them is known without their code (`lazily`), so each is loaded here
with its first call.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.blobs import Blobs
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.delegation import Delegates
from hermes.ports.posting import Poster
from hermes.ports.sandbox import Sandbox
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.schema.scope import Scope
from hermes.tools.caps import USUAL, Caps
from hermes.tools.lazily import Lazily, known_specs

T = TypeVar("T")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.memory.notebook import Notebook
    from hermes.skills.editing import Editor as SkillEditor
    from hermes.skills.gate import Surroundings
    from hermes.skills.shelf import Shelf
    from hermes.skills.usage import Usage
    from hermes.tools.aside import Aside
    from hermes.tools.far_places import FarPlaces
    from hermes.tools.files.editor import Editor
    from hermes.tools.files.guides import Guides
    from hermes.tools.files.locks import Locks
    from hermes.tools.files.seen import Seen
    from hermes.tools.origins import Origins
    from hermes.tools.places import Enclosure, Places
    from hermes.tools.processes.registry import Registry
    from hermes.tools.skills.listing import SkillParts
    from hermes.tools.terminal.shell import Shell

CHANGING = frozenset({"terminal", "write_file", "patch", "execute_code"})
"""Tools before whose first call in a turn the files are kept."""


class Knowledge(Struct, frozen=True, kw_only=True):
    """Where what is learned lies; each is made when it is first needed."""

    notebook: "Callable[[], Notebook]"
    shelf: "Callable[[], Shelf]"
    usage: "Callable[[], Usage]"
    skill_editor: "Callable[[], SkillEditor]"
    here: "Callable[[], Surroundings]"
    ask_for_memory: Callable[[], bool] = lambda: False
    ask_for_skills: Callable[[], bool] = lambda: False


class ToolDeps(Struct, frozen=True, kw_only=True):
    """`env` builds the environment of a scope's child processes; `home` is the user's own.

    `protected` are our secrets and databases; `rg` is None where there is no ripgrep.
    `redact_file` is for the text of files, where code that only looks like a secret must
    stay whole to be edited; without it, `redact` is used. `processes` keeps what is left
    running; `network` says whether commands have it unasked. `checkpoints` keeps files before
    they are changed; `private` are files of the user's own that are read with leave only, and
    `steering` folders of ours that are written with leave only, as are the user's `starts`
    and what the user's git would execute (`executed`).
    `fetched` is the file that keeps when commands brought something from outside, `vouched` the
    one that keeps which files the owner lets tell how things are done; `our_folders` are
    besides the workspace where what is read counts as the person's own.
    `near` is a sandbox of this machine, for reading its files when commands run elsewhere; then
    `elsewhere` says that they find other programs there, and `far` where they begin if they do
    not see the files of this machine, either.
    """

    sandbox: Sandbox
    blobs: Blobs
    clock: Clock
    env: Callable[[Scope], dict[str, str]]
    redact: Callable[[str], str]
    home: Path
    spill_folder: Path
    shell: "Shell"
    rg: str | None
    protected: "Enclosure | Sequence[Path]" = ()
    command_timeout: float = 180.0
    redact_file: Callable[[str], str] | None = None
    processes: "Registry | None" = None
    network: bool = False
    near: Sandbox | None = None
    elsewhere: bool = False
    far: str = ""
    checkpoints: Checkpoints | None = None
    node: str | None = None
    private: Sequence[Path] = ()
    steering: Sequence[Path] = ()
    starts: Sequence[Path] = ()
    executed: Callable[[Path], bool] = lambda path: False
    locks: "Locks | None" = None
    python: "Callable[[Path], str] | None" = None
    code_timeout: float = 300.0
    code_calls: int = 50
    store: Store | None = None
    delegates: Callable[[], Delegates] | None = None
    knowledge: Knowledge | None = None
    poster: Poster | None = None
    own_tmp: Callable[[str], Path | None] = lambda principal: None
    temporary: Sequence[Path] | None = None
    fetched: Path | None = None
    vouched: Path | None = None
    our_folders: Sequence[Path] = ()
    caps: Caps = USUAL


def first_tools(deps: ToolDeps) -> dict[str, Tool]:
    """The tools by name, in the order in which the model is told of them."""
    specs = known_specs()
    tools: list[Tool] = [Lazily(specs[name], make) for name, make in _makers(deps).items()]
    if deps.checkpoints is not None:
        tools = _kept_first(tools, deps.checkpoints)
    return {tool.spec.name: tool for tool in tools}


def every_tool(deps: ToolDeps) -> dict[str, Tool]:
    """The tools themselves, all loaded: what the file of their specs is written from."""
    return {name: make() for name, make in _makers(deps).items()}


def _makers(deps: ToolDeps) -> "Mapping[str, Callable[[], Tool]]":
    """How each tool is made, without those for which something is missing."""
    make = _Makers(deps)
    found: dict[str, Callable[[], Tool]] = {
        "terminal": make.terminal,
        **({"process": make.process} if deps.processes else {}),
        "read_file": make.read_file,
        "write_file": make.write_file,
        "patch": make.patch,
        "search_files": make.search_files,
        **({"execute_code": make.execute_code} if deps.python else {}),
        **({"delegate_task": make.delegate_task} if deps.delegates else {}),
        "todo": make.todo,
        "clarify": make.clarify,
    }
    if deps.poster is not None:
        found["send_message"] = make.send_message
    if deps.knowledge is not None:
        found["memory"] = make.memory
        found["skills_list"] = make.skills_list
        found["skill_view"] = make.skill_view
        found["skill_manage"] = make.skill_manage
    if deps.store is not None:
        found["session_search"] = make.session_search
    return found


class _Makers:
    """One method for each tool; what several of them share is made once."""

    def __init__(self, deps: ToolDeps) -> None:
        self._deps = deps

    def terminal(self) -> Tool:
        from hermes.tools.terminal.spills import Spills
        from hermes.tools.terminal.tool import Terminal, TerminalParts

        deps = self._deps
        return Terminal(
            TerminalParts(
                sandbox=deps.sandbox,
                shell=self._shell,
                env=deps.env,
                places=self._standing,
                spills=Spills(deps.spill_folder),
                redact=deps.redact,
                clock=deps.clock,
                timeout=deps.command_timeout,
                processes=deps.processes,
                network=deps.network,
                origins=self._origins,
                most=deps.caps.output,
            )
        )

    def process(self) -> Tool:
        from hermes.tools.processes.tool import ProcessTool

        deps = self._deps
        return ProcessTool(_there(deps.processes), deps.clock, self._origins, most=deps.caps.output)

    def read_file(self) -> Tool:
        from hermes.tools.files.documents import Documents
        from hermes.tools.files.read import ReadFile, ReadParts

        return self._guided(
            ReadFile(
                ReadParts(
                    places=self._places,
                    seen=self._seen,
                    blobs=self._deps.blobs,
                    redact=self._masking,
                    aside=self._aside,
                    documents=Documents(self._near),
                    origins=self._origins,
                    caps=self._deps.caps,
                )
            )
        )

    def write_file(self) -> Tool:
        from hermes.tools.files.write import WriteFile
        from hermes.tools.masked import Masked

        return self._guided(Masked(WriteFile(self._editor), self._masking))

    def patch(self) -> Tool:
        from hermes.tools.files.patch import Patch
        from hermes.tools.masked import Masked

        return self._guided(Masked(Patch(self._editor, self._masking), self._masking))

    def search_files(self) -> Tool:
        from hermes.tools.search.tool import SearchFiles, SearchParts

        return self._guided(
            SearchFiles(
                SearchParts(
                    sandbox=self._near,
                    places=self._places,
                    rg=self._deps.rg,
                    redact=self._masking,
                    origins=self._origins,
                )
            )
        )

    def execute_code(self) -> Tool:
        from hermes.tools.code.tool import CodeParts, ExecuteCode

        deps, specs = self._deps, known_specs()

        def parameters(name: str) -> "Sequence[str] | None":
            return list(specs[name].schema["properties"]) if name in specs else None

        return ExecuteCode(
            CodeParts(
                sandbox=deps.sandbox,
                env=deps.env,
                places=self._standing,
                redact=deps.redact,
                clock=deps.clock,
                python=_python_there if deps.elsewhere else _there(deps.python),
                parameters=parameters,
                timeout=deps.code_timeout,
                calls=deps.code_calls,
                network=deps.network,
                origins=self._origins,
            )
        )

    def delegate_task(self) -> Tool:
        from hermes.tools.delegation.tool import DelegateTask

        return DelegateTask(_there(self._deps.delegates)())

    def send_message(self) -> Tool:
        from hermes.tools.send_message import SendMessage

        return SendMessage(_there(self._deps.poster))

    def todo(self) -> Tool:
        from hermes.tools.todo import Todo

        return Todo()

    def clarify(self) -> Tool:
        from hermes.tools.clarify import Clarify

        return Clarify()

    def memory(self) -> Tool:
        from hermes.tools.memory.tool import Memory, MemoryParts

        known = _there(self._deps.knowledge)
        return Memory(MemoryParts(notebook=known.notebook(), approval=known.ask_for_memory))

    def skills_list(self) -> Tool:
        from hermes.tools.skills.listing import SkillsList

        return SkillsList(self._skills)

    def skill_view(self) -> Tool:
        from hermes.tools.skills.listing import SkillView

        return SkillView(self._skills)

    def skill_manage(self) -> Tool:
        from hermes.tools.skills.managing import ManageParts, SkillManage

        known = _there(self._deps.knowledge)
        return SkillManage(ManageParts(editor=known.skill_editor(), approval=known.ask_for_skills))

    def session_search(self) -> Tool:
        from hermes.tools.session_search import SessionSearch

        return SessionSearch(_there(self._deps.store))

    @cached_property
    def _places(self) -> "Places":
        from hermes.tools.places import TEMPORARY, Places, Steering

        deps = self._deps
        temporary = TEMPORARY if deps.temporary is None else deps.temporary
        steering = Steering(deps.steering, deps.starts, deps.executed)
        return Places(deps.home, deps.protected, temporary, deps.private, deps.own_tmp, steering)

    @cached_property
    def _standing(self) -> "Places | FarPlaces":
        """Where commands are, which may be another machine than the one of the files."""
        from hermes.tools.far_places import FarPlaces

        return FarPlaces(self._deps.far) if self._deps.far else self._places

    @property
    def _shell(self) -> "Shell":
        from hermes.tools.terminal.shell import far_shell

        shell = self._deps.shell
        return far_shell(shell.begins) if self._deps.elsewhere else shell

    @cached_property
    def _seen(self) -> "Seen":
        from hermes.tools.files.seen import Seen

        return Seen()

    @cached_property
    def _origins(self) -> "Origins":
        from hermes.tools.origins import Origins
        from hermes.tools.places import TEMPORARY
        from hermes.tools.trusted import Trusted

        deps = self._deps
        own = (*deps.steering, deps.spill_folder, *deps.our_folders, *TEMPORARY)
        return Origins(deps.clock, deps.fetched, own, Trusted(deps.vouched))

    def _guided(self, tool: Tool) -> Tool:
        from hermes.tools.files.guides import Guided

        return Guided(tool, self._guides)

    @cached_property
    def _guides(self) -> "Guides":
        from hermes.tools.files.guides import Guides

        return Guides(self._places, self._origins, self._aside, self._masking)

    @cached_property
    def _aside(self) -> "Aside":
        from hermes.tools.aside import Aside

        return Aside()

    @cached_property
    def _editor(self) -> "Editor":
        from hermes.tools.files.editor import Editor
        from hermes.tools.files.syntax import Syntax

        deps, shell = self._deps, self._deps.shell
        syntax = Syntax(self._near, shell.path if shell.bash else None, deps.node)
        return Editor(self._places, self._seen, self._aside, syntax, deps.locks, self._origins)

    @cached_property
    def _skills(self) -> "SkillParts":
        from hermes.tools.skills.listing import SkillParts

        known = _there(self._deps.knowledge)
        return SkillParts(
            shelf=known.shelf(), usage=known.usage(), here=known.here, redact=self._deps.redact
        )

    @property
    def _near(self) -> Sandbox:
        return self._deps.near or self._deps.sandbox

    @property
    def _masking(self) -> Callable[[str], str]:
        return self._deps.redact_file or self._deps.redact


def _python_there(folder: Path) -> str:
    return "python3"


def _there(given: "T | None") -> "T":
    if given is None:
        raise ValueError("a tool was made without what it needs")
    return given


def _kept_first(tools: Sequence[Tool], checkpoints: Checkpoints) -> list[Tool]:
    from hermes.tools.checkpoints.kept_first import KeptFirst

    return [KeptFirst(one, checkpoints) if one.spec.name in CHANGING else one for one in tools]
