"""What commands ask of the house around the talk; each service may be missing on a surface."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from hermes.approvals.desk import ApprovalDesk
from hermes.commands.surface import Busy
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.model import Model
from hermes.schema.messages import Media
from hermes.schema.scope import Address, Role
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec


class Models(Protocol):
    """The choice of models, as a command needs it."""

    async def choose(self, name: str, provider: str | None) -> Model:
        """The model of that name. Raises `ConfigError` when it cannot be used."""
        ...

    async def keep(self, model: Model) -> None:
        """Use it for new sessions, too, from now on."""
        ...

    def current(self, session: Session) -> str: ...


class Facts(Protocol):
    """What `/status` says about the house around the session."""

    def status(self) -> Sequence[tuple[str, str]]: ...


class Settings(Protocol):
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

    async def keep_effort(self, effort: str) -> None: ...

    async def keep_manner(self, manner: Busy) -> None: ...

    async def keep_progress(self, level: str) -> None: ...

    async def keep_home(self, address: Address, name: str) -> None:
        """Deliver to this chat what is for its platform and names no chat."""
        ...


class House(Protocol):
    """What the program says about itself; `report` has nothing secret in it."""

    @property
    def profile(self) -> str: ...

    @property
    def home(self) -> str: ...

    async def report(self) -> Sequence[tuple[str, str]]: ...


class Offers(Protocol):
    """Models that can be chosen, as far as is known without asking far away."""

    async def offers(self) -> Sequence[str]:
        """Each as it is written behind `/model`."""
        ...


class Toolbox(Protocol):
    """The tools that the agent has on a platform when somebody of that role asks."""

    def offered(self, platform: str, role: Role) -> Sequence[ToolSpec]: ...

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        """The tools of each toolset, by its name."""
        ...


class Pictures(Protocol):
    async def load(self, path: str) -> Media:
        """Raises `UsageError` for a file that is not there or is no picture."""
        ...


class PlatformState(Struct, frozen=True, kw_only=True):
    name: str
    state: str
    reason: str = ""


class Platforms(Protocol):
    """The messaging platforms that this program listens to."""

    def states(self) -> Sequence[PlatformState]: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...


class Running(Struct, frozen=True, kw_only=True):
    """A background process, for `seconds` so far; `state` is empty while it runs."""

    name: str
    command: str
    seconds: float
    state: str = ""


class Background(Protocol):
    """What a session left running."""

    async def of(self, session: Session) -> Sequence[Running]: ...

    async def end(self, session: Session) -> int:
        """End all of it; returns how many there were."""
        ...


class Services(Struct, frozen=True, kw_only=True):
    """`restart` asks the program in the background to begin again, and returns at once."""

    settings: Settings | None = None
    house: House | None = None
    offers: Offers | None = None
    toolbox: Toolbox | None = None
    pictures: Pictures | None = None
    platforms: Platforms | None = None
    restart: Callable[[], None] | None = None
    approvals: ApprovalDesk | None = None
    checkpoints: Checkpoints | None = None
    background: Background | None = None
