"""Everything tools are built from: dependencies from the app, and parts that tools share."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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

if TYPE_CHECKING:
    from hermes.learning.memory import MemoryStore
    from hermes.learning.skills.catalog import SkillCatalog, SkillEnvironment
    from hermes.learning.skills.editor import SkillEditor
    from hermes.learning.skills.usage import SkillUsageLog
    from hermes.tools.files.editor import FileEditor, FileLocks, SeenFiles
    from hermes.tools.files.folder_instructions import FolderInstructions
    from hermes.tools.paths import ProtectedPaths, RemotePaths, SessionPaths
    from hermes.tools.processes.registry import ProcessRegistry
    from hermes.tools.provenance.file_provenance import FileProvenance
    from hermes.tools.terminal.shell import Shell
    from hermes.tools.thread_runner import ThreadRunner

T = TypeVar("T")


class FeatureServices(Protocol):
    """The services of the features that have a tool."""

    def get(self, feature: str) -> Any: ...


def required(collaborator: "T | None") -> "T":
    """Return a collaborator that a tool's registration says it needs."""
    if collaborator is None:
        raise ValueError("a tool was built without a required collaborator")
    return collaborator


class LearningDeps(Struct, frozen=True, kw_only=True):
    """Stores of memory and skills, each created on first use."""

    memory_store: "Callable[[], MemoryStore]"
    skill_catalog: "Callable[[], SkillCatalog]"
    usage: "Callable[[], SkillUsageLog]"
    skill_editor: "Callable[[], SkillEditor]"
    skill_environment: "Callable[[], SkillEnvironment]"
    memory_needs_approval: Callable[[], bool] = lambda: False
    skills_need_approval: Callable[[], bool] = lambda: False


class ToolCollaborators(Struct, frozen=True, kw_only=True, dict=True):
    """Everything the built-in tools are built from; parts that tools share are created once.

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
    features: FeatureServices | None = None
    own_tmp: Callable[[str], Path | None] = lambda principal: None
    tmp_folders: Sequence[Path] | None = None
    fetch_log: Path | None = None
    trust_file: Path | None = None
    trusted_folders: Sequence[Path] = ()
    output_limits: OutputLimits = DEFAULT_LIMITS

    @cached_property
    def paths(self) -> "SessionPaths":
        from hermes.tools.paths import TMP_FOLDERS, SensitivePaths, SessionPaths

        temporary = TMP_FOLDERS if self.tmp_folders is None else self.tmp_folders
        steering = SensitivePaths(
            self.instruction_folders, self.startup_files, self.is_executed_by_git
        )
        return SessionPaths(
            self.home, self.protected, temporary, self.private_files, self.own_tmp, steering
        )

    @cached_property
    def command_paths(self) -> "SessionPaths | RemotePaths":
        """The paths commands use; they may be on another machine than the files."""
        from hermes.tools.paths import RemotePaths

        return RemotePaths(self.remote_folder) if self.remote_folder else self.paths

    @property
    def command_shell(self) -> "Shell":
        from hermes.tools.terminal.shell import remote_shell

        return remote_shell(self.shell.startup_files) if self.remote_programs else self.shell

    @cached_property
    def seen_files(self) -> "SeenFiles":
        from hermes.tools.files.editor import SeenFiles

        return SeenFiles()

    @cached_property
    def provenance(self) -> "FileProvenance":
        from hermes.tools.paths import TMP_FOLDERS
        from hermes.tools.provenance.file_provenance import FileProvenance
        from hermes.tools.provenance.instruction_files import TrustStore

        own = (*self.instruction_folders, self.spill_folder, *self.trusted_folders, *TMP_FOLDERS)
        return FileProvenance(self.clock, self.fetch_log, own, TrustStore(self.trust_file))

    def with_instructions(self, tool: Tool) -> Tool:
        from hermes.tools.files.folder_instructions import InstructedTool

        return InstructedTool(tool, self._instructions)

    @cached_property
    def _instructions(self) -> "FolderInstructions":
        from hermes.tools.files.folder_instructions import FolderInstructions

        return FolderInstructions(self.paths, self.provenance, self.threads, self.file_redactor)

    @cached_property
    def threads(self) -> "ThreadRunner":
        from hermes.tools.thread_runner import ThreadRunner

        return ThreadRunner()

    @cached_property
    def editor(self) -> "FileEditor":
        from hermes.tools.files.editor import FileEditor
        from hermes.tools.files.lint import SyntaxChecker

        shell = self.shell
        syntax = SyntaxChecker(self.files_sandbox, shell.path if shell.bash else None, self.node)
        return FileEditor(
            self.paths, self.seen_files, self.threads, self.provenance, syntax, self.locks
        )

    @property
    def files_sandbox(self) -> Sandbox:
        return self.local_sandbox or self.sandbox

    @property
    def file_redactor(self) -> Callable[[str], str]:
        return self.redact_file or self.redact
