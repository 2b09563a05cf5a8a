"""Interface of plugins: what a profile offers to them, and what they register."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, TypeVar

from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.approvals import Approvals
from hermes.ports.message_sender import Followups
from hermes.ports.model import Model
from hermes.ports.runtime import Runtime
from hermes.ports.sandbox import Process
from hermes.ports.store import Blobs, Store
from hermes.ports.tool import Tool
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Loaded only where hooks are configured.
    from hermes.ports.turn import TurnHooks

T = TypeVar("T")

BuildModel: TypeAlias = Callable[[str, str], Model]
"""Builds a model from its name and the address of its provider."""


class Program(Struct, frozen=True, kw_only=True):
    """A program to start outside the sandbox; `env` is its whole environment."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    label: str = ""  # its name in errors


LaunchProgram: TypeAlias = Callable[[Program], AbstractAsyncContextManager[Process]]
"""Starts a program with an open standard input; leaving the block ends its process tree."""


class WorkspacePolicy(Struct, frozen=True, kw_only=True):
    """Paths that a runtime's own commands must not read, and those they must not write."""

    closed: Sequence[str] = ()
    read_only: Sequence[str] = ()


class WatchedCommand(Protocol):
    """A command of a runtime, checked for untrusted content as our own are."""

    @property
    def shown(self) -> bool:
        """Whether its output may contain untrusted text."""
        ...

    @property
    def unverified(self) -> bool:
        """Whether it could read files written by others."""
        ...

    def start_recording(self) -> None:
        """Mark everything that the command writes as untrusted."""
        ...

    def end(self) -> None: ...


WatchCommand: TypeAlias = Callable[[str, str, float | None, str, Scope], WatchedCommand]
"""Checks a command for untrusted content it may show or write.

Arguments: the command (empty for an edit), its folder, its start time, the workspace if others
than the owner can influence it, and the scope of the turn.
"""


class ModelDefaults(Struct, frozen=True, kw_only=True):
    """The model of sessions that chose none."""

    model: str = ""
    provider: str = ""
    base_url: str = ""  # only if given on the command line


class SharedResources(Protocol):
    """Objects that the plugins of all profiles of a process share."""

    def get(self, build: Callable[[LaunchProgram, TaskGroup], T]) -> T:
        """The object of this kind; built by the first that asks."""
        ...


class PluginServices(Struct, frozen=True, kw_only=True):
    """What a profile offers to its plugins."""

    home: Home
    config: Config
    env: Env
    clock: Clock
    store: Store
    blobs: Blobs
    approvals: Approvals
    hooks: "TurnHooks | None"
    followups: Followups
    model: ModelDefaults
    launch: LaunchProgram
    watch_command: WatchCommand
    workspace_policy: Callable[[str], WorkspacePolicy]  # by workspace; reads files
    tasks: TaskGroup  # cancelled when the profile is closed
    shared: SharedResources


class PromptModel(Struct, frozen=True):
    """What the system prompt says about a runtime's model."""

    name: str
    provider: str
    window: int


class RuntimeTurn(Struct, frozen=True, kw_only=True):
    """How a runtime runs a turn."""

    runtime: Runtime
    tools: Mapping[str, Tool] = {}  # our tools that it may call
    prompt_for: PromptModel | None = None  # None: only the configured instructions, no full prompt


class RuntimeProvider(Protocol):
    """Decides which turns a runtime runs."""

    @property
    def name(self) -> str: ...

    async def turn_for(
        self,
        session: Session,
        scope: Scope,
        history: Sequence[Message],
        offered: Callable[[Scope], Mapping[str, Tool]],
    ) -> RuntimeTurn | None:
        """None if the turn runs elsewhere; `offered` returns the tools of a scope."""
        ...


class SwitchableRuntime(RuntimeProvider, Protocol):
    """A runtime that people switch on and off."""

    enabled: bool

    async def check(self) -> str:
        """Its name and version. Raises `UsageError` if it cannot be used."""
        ...

    def usage(self) -> str:
        """How much of its account is used; empty if unknown."""
        ...


class PluginContext(Protocol):
    """Given to a plugin's `register`, which must not block."""

    @property
    def services(self) -> PluginServices: ...

    def register_runtime(self, runtime: RuntimeProvider) -> None:
        """Register a runtime, which is asked about turns after earlier ones."""
        ...

    def register_switch(self, runtime: SwitchableRuntime) -> None:
        """Like `register_runtime`, for a runtime that people switch on and off."""
        ...

    def register_model_provider(self, name: str, build: BuildModel) -> None:
        """Register what builds the models of this provider."""
        ...

    def register_close(self, close: Callable[[], Coroutine[None, None, None]]) -> None:
        """Register a function to await when the profile is closed."""
        ...

    def register_gateway_task(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        """Register a function to run while the gateway serves chats."""
        ...
