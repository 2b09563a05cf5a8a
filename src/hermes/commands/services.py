"""Services that commands use; each may be missing on a surface."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from hermes.approvals.service import ApprovalService
from hermes.commands.surface import Person
from hermes.compaction.service import CompactionOptions, CompactionResult
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.model import Model
from hermes.schema.messages import Media
from hermes.schema.scope import Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.schema.terminal import BusyMode
from hermes.schema.tools import ToolSpec


class ModelControl(Protocol):
    """Choose the model of sessions."""

    async def choose(self, name: str, provider: str | None) -> Model:
        """Return the model of this name. Raises `ConfigError` if it cannot be used."""
        ...

    async def check_name(self, name: str, provider: str | None) -> str:
        """Say why the name could not be verified, or nothing. Raises if it is certainly wrong."""
        ...

    async def save_default(self, model: Model) -> Sequence[str]:
        """Save it as the default; return the removed settings of the previous provider."""
        ...

    def current(self, session: Session) -> str: ...


class StatusFacts(Protocol):
    """Facts for `/status` that the session does not know."""

    def status(self, session: Session) -> Sequence[tuple[str, str]]: ...


class SettingsControl(Protocol):
    """Read settings, and write those that commands may change."""

    def personalities(self) -> Mapping[str, str]:
        """The prompt of each personality by name."""
        ...

    def personality(self) -> str:
        """The default personality, or an empty string."""
        ...

    def effort(self) -> str: ...

    def progress(self, platform: str = "") -> str:
        """The level of tool progress in the terminal, or on a platform."""
        ...

    def offers_progress_in_chats(self) -> bool:
        """Whether chats may change the level of their platform."""
        ...

    async def save_effort(self, effort: str) -> None: ...

    async def save_busy_mode(self, mode: BusyMode) -> None: ...

    async def save_progress(self, level: str, platform: str = "") -> None: ...

    async def save_theme(self, name: str) -> None: ...

    async def save_home_channel(self, address: Address, name: str) -> None:
        """Make this chat its platform's home channel."""
        ...

    async def describe_changed(self) -> str:
        """The settings that differ from the defaults, with secrets masked."""
        ...


class ProgramInfo(Protocol):
    """Facts about this installation; `report` contains no secrets."""

    @property
    def profile(self) -> str: ...

    @property
    def home(self) -> str: ...

    async def report(self) -> Sequence[tuple[str, str]]: ...


class ModelOffers(Protocol):
    """Models that can be chosen, as far as known without a network request."""

    async def offers(self) -> Sequence[str]:
        """Names as `/model` accepts them."""
        ...


class ToolsetControl(Protocol):
    """The agent's tools by platform and role."""

    def offered(self, platform: str, role: Role, session: Session) -> Sequence[ToolSpec]:
        """The tools offered to the session's model."""
        ...

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        """The names of the tools in each toolset."""
        ...

    async def describe(self) -> str:
        """A table of the toolsets enabled on each platform."""
        ...

    async def switch(self, names: Sequence[str], platform: str, *, on: bool) -> str:
        """Switch on one platform or all; return a text for the user. Raises `UsageError`."""
        ...


class ImageLoader(Protocol):
    async def load(self, path: str) -> Media:
        """Raises `UsageError` if the file is missing or not an image."""
        ...


class PlatformState(Struct, frozen=True, kw_only=True):
    name: str
    state: str
    reason: str = ""


class PlatformControl(Protocol):
    """This gateway's messaging platforms."""

    def states(self) -> Sequence[PlatformState]: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...


class BackgroundTask(Struct, frozen=True, kw_only=True):
    """A background process or a subagent."""

    name: str
    command: str  # or the prompt
    seconds: float
    state: str = ""  # empty while it runs
    activity: str = ""  # its last known activity


class BackgroundTasks(Protocol):
    async def start(self, scope: Scope, prompt: str) -> str:
        """Run the prompt in its own session and report to the scope; return the task's name.

        Raises `UsageError` if too many tasks are running.
        """
        ...

    async def list_tasks(self, session: Session) -> Sequence[BackgroundTask]: ...

    async def end_all(self, session: Session) -> int:
        """End all tasks of the session; return how many there were."""
        ...


class HandoffCaller(Struct, frozen=True, kw_only=True):
    """Who hands a session off from a chat, and where that is."""

    account: str
    role: Role
    platform: str


class PeopleControl(Protocol):
    """The accounts that belong to one person. All raise `UsageError`."""

    async def accounts(self, account: str) -> Sequence[str]:
        """Return this account and those linked with it; empty if there are none."""
        ...

    async def issue(self, account: str, address: Address, person: Person) -> str:
        """A code that proves the account of this direct chat."""
        ...

    async def check(self, account: str, code: str) -> str:
        """Describe the account whose code it is."""
        ...

    async def redeem(
        self, account: str, address: Address, person: Person, code: str
    ) -> Sequence[str]:
        """Link both accounts, notify the other one, and return all of the person.

        The account must have checked the code before.
        """
        ...

    async def unlink(self, account: str) -> bool: ...


class SessionHandoff(Protocol):
    async def hand_off(
        self, session: Session, platform: str, caller: HandoffCaller | None = None
    ) -> str:
        """Continue the session in another chat, and return that chat's name.

        It is the caller's direct chat there, by their linked accounts; for the owner, by those
        that the owner linked, or else the platform's home channel.

        Raises `UsageError`, or `SessionBusy` while a turn is running.
        """
        ...


class RuntimeControl(Protocol):
    """The runtime of turns with OpenAI models; `auto` is Hermes itself."""

    def current(self) -> str: ...

    async def choose(self, name: str) -> str:
        """Use it for the next message; return a text for the user. Raises `UsageError`."""
        ...


class SkillSummary(Struct, frozen=True, kw_only=True):
    """One skill in a list; `marks` name its origin and whether it is pinned."""

    name: str
    description: str
    category: str = ""
    marks: tuple[str, ...] = ()


class LearningControl(Protocol):
    """Memory, skills and changes to both; returned texts are for the user.

    Changes and proposals are named by their id or the end of it. Raises `UsageError`, `NotFound`
    and `FileConflict`.
    """

    async def memory(self) -> str: ...

    async def pending(self, kind: str | None = None) -> Sequence[str]:
        """Pending proposals, one line each; `kind` is `memory` or `skill`."""
        ...

    async def accept(self, name: str, kind: str | None = None) -> Sequence[str]:
        """Apply a proposal, or `all` of them; return what was done."""
        ...

    async def reject(self, name: str, kind: str | None = None) -> int: ...

    async def changes(self, limit: int) -> Sequence[str]: ...

    async def describe(self, name: str) -> str:
        """A change or proposal in full."""
        ...

    async def undo(self, name: str) -> str: ...

    def memory_approval(self) -> bool:
        """Whether every change to memory needs approval."""
        ...

    async def set_memory_approval(self, *, on: bool) -> None: ...

    async def skills(self) -> Sequence[SkillSummary]: ...

    async def curation_report(self) -> str:
        """When skills were last curated, and the result."""
        ...

    async def bundles(self) -> Sequence[SkillSummary]:
        """Bundles of skills; `marks` name the skills."""
        ...

    async def skill(self, name: str) -> str: ...

    async def pin(self, name: str, *, pinned: bool) -> None: ...

    def skill_for_command(self, name: str) -> str:
        """The skill with a command of that name, or an empty string."""
        ...

    async def skill_instructions(self, name: str, session: str) -> str: ...


class ContextUsage(Struct, frozen=True, kw_only=True):
    """Tokens of a session's next request by part."""

    window: int
    trigger: int  # compaction starts here
    parts: Mapping[str, int]
    times: int = 0  # compactions so far
    cost: float | None = 0.0  # of those compactions


class ContextWindow(Protocol):
    """The part of a session that the model sees."""

    async def usage(self, session: Session, role: Role) -> ContextUsage: ...

    async def compress(
        self, session: Session, options: CompactionOptions, *, preview: bool
    ) -> CompactionResult:
        """Raises `SessionBusy`, or `UsageError` if there is nothing to compact."""
        ...

    async def pins(self, session: Session) -> Sequence[str]: ...

    async def pin(self, session: Session, text: str) -> None:
        """Raises `SessionBusy` and `UsageError`."""
        ...

    async def unpin(self, session: Session, number: int) -> str:
        """Raises `SessionBusy` and `UsageError`."""
        ...


class InstructionFile(Struct, frozen=True):
    """A file with instructions for the agent; `followed` if it is trusted."""

    path: str
    followed: bool
    text: str


class InstructionFiles(Protocol):
    def list_files(self, workspace: str) -> Sequence[InstructionFile]:
        """The files in the working directory; the first trusted one is used."""
        ...

    def trust(self, workspace: str, name: str) -> InstructionFile:
        """Trust the file in its current form. Raises `UsageError`."""
        ...


class WorkspaceChanges(Protocol):
    """What changed in a session's working directory since the last commit."""

    async def diff(self, session: Session, path: str) -> str:
        """Raises `UsageError` if it is not a repository; an empty `path` means all of it."""
        ...


class McpServerControl(Protocol):
    """The profile's MCP servers; `confirms_reload` if the user must confirm a reload."""

    @property
    def confirms_reload(self) -> bool: ...

    async def reload(self) -> str:
        """Read the settings again and reconnect; return a text for the user."""
        ...


class FeatureServices(Protocol):
    """The services of the features with a slash command."""

    def get(self, feature: str) -> Any: ...


RestartGateway: TypeAlias = Callable[[Address | None], Awaitable[None]]


class CommandServices(Struct, frozen=True, kw_only=True):
    """The services available on a surface.

    `restart` requests a restart without waiting; the address is notified when it is done.
    """

    settings: SettingsControl | None = None
    program: ProgramInfo | None = None
    model_offers: ModelOffers | None = None
    toolsets: ToolsetControl | None = None
    images: ImageLoader | None = None
    platforms: PlatformControl | None = None
    restart: RestartGateway | None = None
    approvals: ApprovalService | None = None
    checkpoints: Checkpoints | None = None
    background: BackgroundTasks | None = None
    context_window: ContextWindow | None = None
    learning: LearningControl | None = None
    runtimes: RuntimeControl | None = None
    instruction_files: InstructionFiles | None = None
    handoff: SessionHandoff | None = None
    people: PeopleControl | None = None
    mcp_servers: McpServerControl | None = None
    changes: WorkspaceChanges | None = None
    features: FeatureServices | None = None
