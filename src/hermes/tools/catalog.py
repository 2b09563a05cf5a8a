"""Build the built-in tools from their dependencies.

Their specs come from `specs.json`, so the code of a tool is imported at its first call.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.delegation import Delegator
from hermes.ports.message_sender import MessageSender
from hermes.ports.sandbox import Sandbox
from hermes.ports.store import Blobs, Store
from hermes.ports.tool import Tool
from hermes.schema.scope import Scope
from hermes.tools.tool_io import DEFAULT_LIMITS, OutputLimits
from hermes.tools.tool_wrappers import CheckpointedTool, LazyTool, RedactedTool, load_specs

T = TypeVar("T")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.learning.memory import MemoryStore
    from hermes.learning.skills.catalog import SkillCatalog, SkillEnvironment
    from hermes.learning.skills.editor import SkillEditor
    from hermes.learning.skills.usage import SkillUsageLog
    from hermes.ports.protected_paths import ProtectedPaths
    from hermes.tools.files.edit_conflicts import FileLocks, SeenFiles
    from hermes.tools.files.editor import FileEditor
    from hermes.tools.files.folder_instructions import FolderInstructions
    from hermes.tools.paths import RemotePaths, SessionPaths
    from hermes.tools.processes.registry import ProcessRegistry
    from hermes.tools.provenance.file_provenance import FileProvenance
    from hermes.tools.skills import SkillDeps
    from hermes.tools.terminal.shell import Shell
    from hermes.tools.thread_runner import ThreadRunner

CHECKPOINTED_TOOLS = frozenset({"terminal", "write_file", "patch", "execute_code"})
"""Tools that take a checkpoint before their first call in a turn."""


class LearningDeps(Struct, frozen=True, kw_only=True):
    """Stores of memory and skills, each created on first use."""

    memory_store: "Callable[[], MemoryStore]"
    skill_catalog: "Callable[[], SkillCatalog]"
    usage: "Callable[[], SkillUsageLog]"
    skill_editor: "Callable[[], SkillEditor]"
    skill_environment: "Callable[[], SkillEnvironment]"
    memory_needs_approval: Callable[[], bool] = lambda: False
    skills_need_approval: Callable[[], bool] = lambda: False


class ToolDeps(Struct, frozen=True, kw_only=True):
    """Everything the built-in tools need.

    Options that are None or empty disable the tool or feature they belong to.

    - `env`: builds the environment of a scope's child processes.
    - `home`: the user's home folder.
    - `protected`: secrets and databases of Hermes that no tool may open.
    - `redact_file`: redacts file contents; unlike `redact` it keeps code that only looks like a
      secret, so that files can be edited. Defaults to `redact`.
    - `processes`: registry of background processes.
    - `network`: whether commands have network access without an approval.
    - `local_sandbox`: sandbox on this machine, for reading local files when commands run remotely.
    - `remote_programs`: commands run where other programs are installed.
    - `remote_folder`: initial folder of commands that do not see this machine's files.
    - `private_files`: the user's files that need an approval to be read.
    - `instruction_folders`, `startup_files`, `is_executed_by_git`: what needs an approval to be
      written: folders that instruct the agent, startup files, what the user's git executes.
    - `fetch_log`: file that records when commands fetched something.
    - `trust_file`: file that records which instruction files the owner trusts.
    - `trusted_folders`: folders outside the workspace whose content counts as the owner's.
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
    protected: "ProtectedPaths | Sequence[Path]" = ()
    command_timeout: float = 180.0
    redact_file: Callable[[str], str] | None = None
    processes: "ProcessRegistry | None" = None
    network: bool = False
    local_sandbox: Sandbox | None = None
    remote_programs: bool = False
    remote_folder: str = ""
    checkpoints: Checkpoints | None = None
    node: str | None = None
    private_files: Sequence[Path] = ()
    instruction_folders: Sequence[Path] = ()
    startup_files: Sequence[Path] = ()
    is_executed_by_git: Callable[[Path], bool] = lambda path: False
    locks: "FileLocks | None" = None
    python: "Callable[[Path], str] | None" = None
    code_timeout: float = 300.0
    code_calls: int = 50
    store: Store | None = None
    delegator: Callable[[], Delegator] | None = None
    learning: LearningDeps | None = None
    message_sender: MessageSender | None = None
    own_tmp: Callable[[str], Path | None] = lambda principal: None
    tmp_folders: Sequence[Path] | None = None
    fetch_log: Path | None = None
    trust_file: Path | None = None
    trusted_folders: Sequence[Path] = ()
    output_limits: OutputLimits = DEFAULT_LIMITS


def build_tools(deps: ToolDeps) -> dict[str, Tool]:
    """Return the tools by name, in the order they are listed to the model."""
    specs = load_specs()
    tools: dict[str, Tool] = {
        name: LazyTool(specs[name], make) for name, make in _builders(deps).items()
    }
    if deps.checkpoints is not None:
        for name in CHECKPOINTED_TOOLS & tools.keys():
            tools[name] = CheckpointedTool(tools[name], deps.checkpoints)
    return tools


def load_all_tools(deps: ToolDeps) -> dict[str, Tool]:
    """Return the tools with their code loaded; `specs.json` is generated from them."""
    return {name: make() for name, make in _builders(deps).items()}


def _builders(deps: ToolDeps) -> "Mapping[str, Callable[[], Tool]]":
    """Map each available tool to its constructor."""
    make = _ToolBuilder(deps)
    builders: tuple[tuple[str, Callable[[], Tool], object], ...] = (
        ("terminal", make.terminal, True),
        ("process", make.process, deps.processes),
        ("read_file", make.read_file, True),
        ("write_file", make.write_file, True),
        ("patch", make.patch, True),
        ("search_files", make.search_files, True),
        ("execute_code", make.execute_code, deps.python),
        ("delegate_task", make.delegate_task, deps.delegator),
        ("todo", make.todo, True),
        ("clarify", make.clarify, True),
        ("send_message", make.send_message, deps.message_sender),
        ("memory", make.memory, deps.learning),
        ("skills_list", make.skills_list, deps.learning),
        ("skill_view", make.skill_view, deps.learning),
        ("skill_manage", make.skill_manage, deps.learning),
        ("session_search", make.session_search, deps.store),
    )
    return {name: build for name, build, needed in builders if needed is not None}


class _ToolBuilder:
    """One method per tool; shared parts are created once."""

    def __init__(self, deps: ToolDeps) -> None:
        self._deps = deps

    def terminal(self) -> Tool:
        from hermes.tools.terminal.output import OutputFiles
        from hermes.tools.terminal.tool import Terminal, TerminalDeps

        deps = self._deps
        return Terminal(
            TerminalDeps(
                sandbox=deps.sandbox,
                shell=self._shell,
                env=deps.env,
                paths=self._command_paths,
                output_files=OutputFiles(deps.spill_folder),
                redact=deps.redact,
                clock=deps.clock,
                timeout=deps.command_timeout,
                processes=deps.processes,
                network=deps.network,
                provenance=self._provenance,
                max_output=deps.output_limits.output,
            )
        )

    def process(self) -> Tool:
        from hermes.tools.processes.tool import ProcessTool

        deps = self._deps
        return ProcessTool(
            _require(deps.processes),
            deps.clock,
            self._provenance,
            max_output=deps.output_limits.output,
        )

    def read_file(self) -> Tool:
        from hermes.tools.files.documents import DocumentReader
        from hermes.tools.files.read import ReadDeps, ReadFile

        return self._with_instructions(
            ReadFile(
                ReadDeps(
                    paths=self._paths,
                    seen=self._seen_files,
                    blobs=self._deps.blobs,
                    redact=self._redact_file,
                    threads=self._threads,
                    documents=DocumentReader(self._local_sandbox),
                    provenance=self._provenance,
                    limits=self._deps.output_limits,
                )
            )
        )

    def write_file(self) -> Tool:
        from hermes.tools.files.write import WriteFile

        return self._with_instructions(RedactedTool(WriteFile(self._editor), self._redact_file))

    def patch(self) -> Tool:
        from hermes.tools.files.patch import Patch

        return self._with_instructions(
            RedactedTool(Patch(self._editor, self._redact_file), self._redact_file)
        )

    def search_files(self) -> Tool:
        from hermes.tools.search.tool import SearchDeps, SearchFiles

        return self._with_instructions(
            SearchFiles(
                SearchDeps(
                    sandbox=self._local_sandbox,
                    paths=self._paths,
                    rg=self._deps.rg,
                    redact=self._redact_file,
                    provenance=self._provenance,
                )
            )
        )

    def execute_code(self) -> Tool:
        from hermes.tools.code.tool import CodeDeps, ExecuteCode

        deps, specs = self._deps, load_specs()

        def parameters(name: str) -> "Sequence[str] | None":
            return list(specs[name].schema["properties"]) if name in specs else None

        return ExecuteCode(
            CodeDeps(
                sandbox=deps.sandbox,
                env=deps.env,
                paths=self._command_paths,
                redact=deps.redact,
                clock=deps.clock,
                python=(lambda folder: "python3")
                if deps.remote_programs
                else _require(deps.python),
                parameters=parameters,
                timeout=deps.code_timeout,
                calls=deps.code_calls,
                network=deps.network,
                provenance=self._provenance,
            )
        )

    def delegate_task(self) -> Tool:
        from hermes.tools.delegate_task import DelegateTask

        return DelegateTask(_require(self._deps.delegator)())

    def send_message(self) -> Tool:
        from hermes.tools.send_message import SendMessage

        return SendMessage(_require(self._deps.message_sender))

    def todo(self) -> Tool:
        from hermes.tools.todo import Todo

        return Todo()

    def clarify(self) -> Tool:
        from hermes.tools.clarify import Clarify

        return Clarify()

    def memory(self) -> Tool:
        from hermes.tools.memory import MemoryTool

        learning = _require(self._deps.learning)
        return MemoryTool(learning.memory_store(), learning.memory_needs_approval)

    def skills_list(self) -> Tool:
        from hermes.tools.skills import SkillsList

        return SkillsList(self._skills)

    def skill_view(self) -> Tool:
        from hermes.tools.skills import SkillView

        return SkillView(self._skills)

    def skill_manage(self) -> Tool:
        from hermes.tools.skills import SkillManage

        learning = _require(self._deps.learning)
        return SkillManage(learning.skill_editor(), learning.skills_need_approval)

    def session_search(self) -> Tool:
        from hermes.tools.session_search import SessionSearch

        return SessionSearch(_require(self._deps.store))

    @cached_property
    def _paths(self) -> "SessionPaths":
        from hermes.tools.paths import TMP_FOLDERS, SensitivePaths, SessionPaths

        deps = self._deps
        temporary = TMP_FOLDERS if deps.tmp_folders is None else deps.tmp_folders
        steering = SensitivePaths(
            deps.instruction_folders, deps.startup_files, deps.is_executed_by_git
        )
        return SessionPaths(
            deps.home, deps.protected, temporary, deps.private_files, deps.own_tmp, steering
        )

    @cached_property
    def _command_paths(self) -> "SessionPaths | RemotePaths":
        """The paths commands use; they may be on another machine than the files."""
        from hermes.tools.paths import RemotePaths

        return RemotePaths(self._deps.remote_folder) if self._deps.remote_folder else self._paths

    @property
    def _shell(self) -> "Shell":
        from hermes.tools.terminal.shell import remote_shell

        shell = self._deps.shell
        return remote_shell(shell.startup_files) if self._deps.remote_programs else shell

    @cached_property
    def _seen_files(self) -> "SeenFiles":
        from hermes.tools.files.edit_conflicts import SeenFiles

        return SeenFiles()

    @cached_property
    def _provenance(self) -> "FileProvenance":
        from hermes.tools.paths import TMP_FOLDERS
        from hermes.tools.provenance.file_provenance import FileProvenance
        from hermes.tools.provenance.instruction_files import TrustStore

        deps = self._deps
        own = (*deps.instruction_folders, deps.spill_folder, *deps.trusted_folders, *TMP_FOLDERS)
        return FileProvenance(deps.clock, deps.fetch_log, own, TrustStore(deps.trust_file))

    def _with_instructions(self, tool: Tool) -> Tool:
        from hermes.tools.files.folder_instructions import InstructedTool

        return InstructedTool(tool, self._instructions)

    @cached_property
    def _instructions(self) -> "FolderInstructions":
        from hermes.tools.files.folder_instructions import FolderInstructions

        return FolderInstructions(self._paths, self._provenance, self._threads, self._redact_file)

    @cached_property
    def _threads(self) -> "ThreadRunner":
        from hermes.tools.thread_runner import ThreadRunner

        return ThreadRunner()

    @cached_property
    def _editor(self) -> "FileEditor":
        from hermes.tools.files.editor import FileEditor
        from hermes.tools.files.lint import SyntaxChecker

        deps, shell = self._deps, self._deps.shell
        syntax = SyntaxChecker(self._local_sandbox, shell.path if shell.bash else None, deps.node)
        return FileEditor(
            self._paths, self._seen_files, self._threads, self._provenance, syntax, deps.locks
        )

    @cached_property
    def _skills(self) -> "SkillDeps":
        from hermes.tools.skills import SkillDeps

        learning = _require(self._deps.learning)
        return SkillDeps(
            catalog=learning.skill_catalog(),
            usage=learning.usage(),
            environment=learning.skill_environment,
            redact=self._deps.redact,
        )

    @property
    def _local_sandbox(self) -> Sandbox:
        return self._deps.local_sandbox or self._deps.sandbox

    @property
    def _redact_file(self) -> Callable[[str], str]:
        return self._deps.redact_file or self._deps.redact


def _require(given: "T | None") -> "T":
    if given is None:
        raise ValueError("a tool was built without a required dependency")
    return given
