"""What commands ask of the house around the talk; each service may be missing on a surface."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.approvals.service import ApprovalService
from hermes.commands.surface import BusyMode
from hermes.compaction.service import CompactionOptions, CompactionResult
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.model import Model
from hermes.schema.messages import Media
from hermes.schema.scope import Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec


class ModelControl(Protocol):
    """The choice of models, as a command needs it."""

    async def choose(self, name: str, provider: str | None) -> Model:
        """The model of that name. Raises `ConfigError` when it cannot be used."""
        ...

    async def doubt(self, name: str, provider: str | None) -> str:
        """Why nobody could check the name; mostly nothing. Raises when it is surely wrong."""
        ...

    async def keep(self, model: Model) -> Sequence[str]:
        """Use it for new sessions, too; returns the settings of the former that were removed."""
        ...

    def current(self, session: Session) -> str: ...


class StatusFacts(Protocol):
    """What `/status` says about the house around the session."""

    def status(self, session: Session) -> Sequence[tuple[str, str]]: ...


class SettingsControl(Protocol):
    """What the settings say, and the few that a command may write."""

    def personalities(self) -> Mapping[str, str]:
        """By name, how each asks the agent to speak."""
        ...

    def personality(self) -> str:
        """The name of the one for sessions that chose none; empty when there is none."""
        ...

    def effort(self) -> str: ...

    def progress(self) -> str:
        """How much of the tools' work is shown."""
        ...

    async def save_effort(self, effort: str) -> None: ...

    async def save_busy_mode(self, manner: BusyMode) -> None: ...

    async def save_progress(self, level: str) -> None: ...

    async def save_home_channel(self, address: Address, name: str) -> None:
        """Deliver to this chat what is for its platform and names no chat."""
        ...

    async def shown(self) -> str:
        """What differs from the defaults, with no secret in it."""
        ...


class ProgramInfo(Protocol):
    """What the program says about itself; `report` has nothing secret in it."""

    @property
    def profile(self) -> str: ...

    @property
    def home(self) -> str: ...

    async def report(self) -> Sequence[tuple[str, str]]: ...


class ModelOffers(Protocol):
    """Models that can be chosen, as far as is known without asking far away."""

    async def offers(self) -> Sequence[str]:
        """Each as it is written behind `/model`."""
        ...


class ToolsetControl(Protocol):
    """The tools that the agent has on a platform when somebody of that role asks."""

    def offered(self, platform: str, role: Role, session: Session) -> Sequence[ToolSpec]:
        """As far as the session's model is told of them."""
        ...

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        """The tools of each toolset, by its name."""
        ...

    async def listed(self) -> str:
        """Which toolsets are on, on which platforms."""
        ...

    async def switch(self, names: Sequence[str], platform: str, *, on: bool) -> str:
        """On one platform, or on all; what was done, for people. Raises `UsageError`."""
        ...


class ImageLoader(Protocol):
    async def load(self, path: str) -> Media:
        """Raises `UsageError` for a file that is not there or is no picture."""
        ...


class PlatformState(Struct, frozen=True, kw_only=True):
    name: str
    state: str
    reason: str = ""


class PlatformControl(Protocol):
    """The messaging platforms that this program listens to."""

    def states(self) -> Sequence[PlatformState]: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...


class BackgroundJob(Struct, frozen=True, kw_only=True):
    """A background process, or delegated work: `command` is what was asked for.

    For `seconds` so far; `state` is empty while it runs, `doing` is what it was seen to do last.
    """

    name: str
    command: str
    seconds: float
    state: str = ""
    doing: str = ""


class BackgroundJobs(Protocol):
    """What a session left running."""

    async def begin(self, scope: Scope, prompt: str) -> str:
        """Have it done in a session of its own; its name. The scope hears what came of it.

        Raises `UsageError` when too much is under way.
        """
        ...

    async def of(self, session: Session) -> Sequence[BackgroundJob]: ...

    async def end(self, session: Session) -> int:
        """End all of it; returns how many there were."""
        ...


class SessionHandoff(Protocol):
    async def hand_off(self, session: Session, platform: str) -> str:
        """The session goes on in the home chat of that platform, which is told so.

        Returns where that is. Raises `UsageError`, and `SessionBusy` where a turn runs.
        """
        ...


class RuntimeControl(Protocol):
    """Who runs the turns of OpenAI's models: `auto` is our own loop."""

    def current(self) -> str: ...

    async def choose(self, name: str) -> str:
        """From the next message on. Returns a sentence for people; raises `UsageError`."""
        ...


class SkillSummary(Struct, frozen=True, kw_only=True):
    """One skill in a list; `marks` says whose it is and whether it is pinned."""

    name: str
    description: str
    category: str = ""
    marks: tuple[str, ...] = ()


class LearningControl(Protocol):
    """What the agent has learned, and the person's say in it. All texts are for people.

    Changes and proposals go by their id, or by an end of it. Raises `UsageError`, `NotFound`
    and `Drifted` with what to do next.
    """

    async def memory(self) -> str: ...

    async def waiting(self, kind: str | None = None) -> Sequence[str]:
        """Proposals, one line each; of `memory`, of `skill`, or all."""
        ...

    async def accept(self, name: str, kind: str | None = None) -> Sequence[str]:
        """Do what was proposed, or all that waits for `all`; what was done."""
        ...

    async def reject(self, name: str, kind: str | None = None) -> int: ...

    async def changes(self, limit: int) -> Sequence[str]: ...

    async def shown(self, name: str) -> str:
        """A change or a proposal, with every line of it."""
        ...

    async def undo(self, name: str) -> str: ...

    def asks(self) -> bool:
        """Whether every change of memory is decided by the person."""
        ...

    async def set_memory_approval(self, *, on: bool) -> None: ...

    async def skills(self) -> Sequence[SkillSummary]: ...

    async def curation_report(self) -> str:
        """When the skills were last looked after, and what came of it."""
        ...

    async def bundles(self) -> Sequence[SkillSummary]:
        """Names under which several skills are followed; `marks` names those."""
        ...

    async def skill(self, name: str) -> str: ...

    async def pin(self, name: str, *, pinned: bool) -> None: ...

    def skill_for_command(self, name: str) -> str:
        """The skill that is called by a command of that name; empty when there is none."""
        ...

    async def opened(self, name: str, session: str) -> str:
        """The instructions of a skill, to be followed now."""
        ...


class ContextUsage(Struct, frozen=True, kw_only=True):
    """What a session's next request takes of the window, in tokens, by what it is.

    From `trigger` on it is compressed; that happened `times` so far and cost so much.
    """

    window: int
    trigger: int
    parts: Mapping[str, int]
    times: int = 0
    cost: float | None = 0.0


class ContextWindow(Protocol):
    """What the model sees of a session."""

    async def filling(self, session: Session, role: Role) -> ContextUsage: ...

    async def compress(
        self, session: Session, wish: CompactionOptions, *, preview: bool
    ) -> CompactionResult:
        """Raises `SessionBusy`, and `UsageError` when there is nothing to be made shorter."""
        ...

    async def pins(self, session: Session) -> Sequence[str]: ...

    async def pin(self, session: Session, text: str) -> None:
        """Raises `SessionBusy` and `UsageError`."""
        ...

    async def unpin(self, session: Session, number: int) -> str:
        """Raises `SessionBusy` and `UsageError`."""
        ...


class InstructionFile(Struct, frozen=True):
    """A file that tells how things are done; `followed`: it may."""

    path: str
    followed: bool
    text: str


class InstructionFiles(Protocol):
    def of(self, workspace: str) -> Sequence[InstructionFile]:
        """Those of the project; the first that is followed counts."""
        ...

    def vouch(self, workspace: str, name: str) -> InstructionFile:
        """From now on it is followed as it stands. Raises `UsageError`."""
        ...


class McpServerControl(Protocol):
    """The MCP servers of the profile; `confirms`: who connects them anew is asked first."""

    @property
    def confirms_reload(self) -> bool: ...

    async def reload(self) -> str:
        """Read the settings again and connect anew. Returns what came of it, for people."""
        ...


RestartGateway: TypeAlias = Callable[[Address | None], Awaitable[None]]


class CommandServices(Struct, frozen=True, kw_only=True):
    """`restart` asks the program in the background to begin again, and does not wait for it.

    Whoever asks for it is told at that address when it is over.
    """

    settings: SettingsControl | None = None
    house: ProgramInfo | None = None
    offers: ModelOffers | None = None
    toolbox: ToolsetControl | None = None
    pictures: ImageLoader | None = None
    platforms: PlatformControl | None = None
    restart: RestartGateway | None = None
    approvals: ApprovalService | None = None
    checkpoints: Checkpoints | None = None
    background: BackgroundJobs | None = None
    window: ContextWindow | None = None
    lessons: LearningControl | None = None
    runtimes: RuntimeControl | None = None
    guides: InstructionFiles | None = None
    handing: SessionHandoff | None = None
    servers: McpServerControl | None = None
