"""Run slash commands against fake services, as a terminal or a chat user."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Raw, structs

from hermes.app.learning import Learning
from hermes.app.learning_commands import LearningCommands
from hermes.app.session_services import ProjectInstructions
from hermes.approvals.policy import ApprovalRules
from hermes.approvals.service import ApprovalService
from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.commands.services import (
    BackgroundTask,
    CommandServices,
    ContextUsage,
    HandoffCaller,
    PlatformState,
)
from hermes.commands.surface import CommandCaller, Person, Surface, TerminalAbility
from hermes.compaction.service import CompactionOptions, CompactionResult
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.models.discovery import check_listed, unverified_message
from hermes.ports.checkpoints import Checkpoint, RestoreResult
from hermes.ports.model import Model
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media, text_of
from hermes.schema.scope import Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.schema.terminal import BusyMode, CommandReply, ResumedReply, TextReply
from hermes.schema.tools import Effect, ToolSpec
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Script, ScriptedModel
from support.conversation import ConversationHarness, conversation_harness
from support.turns import FakeTool

ALL_ABILITIES = frozenset(TerminalAbility)


class FakeModelSelector:
    """Records the chosen models."""

    def __init__(self) -> None:
        self.chosen: list[tuple[str, str | None]] = []
        self.kept: list[str] = []
        self.listed: list[str] = []
        """The models that the provider lists; empty if unknown."""

    async def check_name(self, name: str, provider: str | None) -> str:
        check_listed(provider or "scripted", name, self.listed)
        return "" if self.listed else unverified_message(name, "no list")

    async def choose(self, name: str, provider: str | None) -> Model:
        self.chosen.append((name, provider))
        return ScriptedModel(name=name, provider=provider or "scripted")

    async def save_default(self, model: Model) -> Sequence[str]:
        self.kept.append(model.name)
        return ()

    def current(self, session: Session) -> str:
        return session.model or "scripted"


class FakeFacts:
    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        return [("profile", "default"), ("home", "/home/ann/.hermes")]


class FakeCheckpoints:
    """Records checkpoints and restores."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.saved: list[Checkpoint] = []
        self.restored: list[Checkpoint] = []
        self.failed: tuple[str, ...] = ()

    async def checkpoint_before(self, scope: Scope, args: Raw) -> str:
        await self._keep(scope.workspace, scope.session, run=scope.run)
        return ""

    async def changed(self, run: str) -> bool | None:
        return None

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        return await self._keep(workspace, session, reason=reason)

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        return [one for one in self.saved[::-1] if one.workspace == workspace]

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        self.restored.append(checkpoint)
        before = await self._keep(checkpoint.workspace, session, reason="before a rollback")
        return RestoreResult(before=before, written=2, removed=1, failed=self.failed)

    async def _keep(
        self, workspace: str, session: str, *, run: str = "", reason: str = ""
    ) -> Checkpoint:
        """Each checkpoint gets its own time."""
        await self._clock.advance(1)
        one = Checkpoint(
            id=f"cp_{len(self.saved)}",
            workspace=workspace,
            session=session,
            at=self._clock.now(),
            run=run,
            reason=reason,
        )
        await self._clock.advance(1)
        self.saved.append(one)
        return one


class FakeContextWindow:
    """Records compaction options and pins."""

    def __init__(self) -> None:
        self.pinned: list[str] = []
        self.requests: list[CompactionOptions] = []
        self.parts = {"system": 500, "skills": 300, "project": 0, "tools": 3_000, "history": 9_000}

    async def usage(self, session: Session, role: Role) -> ContextUsage:
        return ContextUsage(window=40_000, trigger=34_000, parts=self.parts, times=2, cost=0.01)

    async def compress(
        self, session: Session, options: CompactionOptions, *, preview: bool
    ) -> CompactionResult:
        self.requests.append(options)
        return CompactionResult(before=30_000, after=8_000, messages=40, cost=0.002)

    async def pins(self, session: Session) -> Sequence[str]:
        return self.pinned

    async def pin(self, session: Session, text: str) -> None:
        self.pinned.append(text)

    async def unpin(self, session: Session, number: int) -> str:
        if number > len(self.pinned):
            raise UsageError("There is no pin of that number.")
        return self.pinned.pop(number - 1)


class FakeServices:
    """Implements all services; `kept` records what was saved to the settings."""

    profile = "default"
    home = "/home/ann/.hermes"

    def __init__(self) -> None:
        self.saved: list[object] = []
        self.restarts = 0
        self.running_processes: list[str] = []
        self.ended_processes: list[str] = []
        self.started: list[tuple[Scope, str]] = []
        self.paused: set[str] = set()
        self.more_tools: Sequence[ToolSpec] = ()
        self.window = FakeContextWindow()

    def personalities(self) -> Mapping[str, str]:
        return {"pirate": "Speak like a pirate.", "concise": "# How you speak\n\nBe brief."}

    def personality(self) -> str:
        return "concise"

    def effort(self) -> str:
        return "medium"

    def progress(self, platform: str = "") -> str:
        return "off" if platform else "all"

    def offers_progress_in_chats(self) -> bool:
        return True

    async def save_effort(self, effort: str) -> None:
        self.saved.append(effort)

    async def save_busy_mode(self, mode: BusyMode) -> None:
        self.saved.append(mode)

    async def save_progress(self, level: str, platform: str = "") -> None:
        self.saved.append(f"{platform}: {level}" if platform else level)

    async def save_theme(self, name: str) -> None:
        self.saved.append(name)

    async def diff(self, session: Session, path: str) -> str:
        return f"diff --git a/{path} b/{path}\n-old\n+new" if path else ""

    async def save_home_channel(self, address: Address, name: str) -> None:
        self.saved.append((address, name))

    async def report(self) -> Sequence[tuple[str, str]]:
        return [("database", "12 bytes")]

    async def offers(self) -> Sequence[str]:
        return ["big --provider here", "small"]

    def offered(self, platform: str, role: Role, session: Session) -> Sequence[ToolSpec]:
        tools = [ToolSpec("look", "Look at something.", {}, Effect.READ, 1.0)]
        if role is Role.OWNER:
            tools.append(ToolSpec("shell", f"Run on {platform}.", {}, Effect.OUTSIDE, 1.0))
        return [*tools, *self.more_tools]

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        return {"eyes": ["look"], "hands": ["shell"], "both": ["look", "shell"]}

    async def load(self, path: str) -> Media:
        return Media("0" * 64, "image/png", path)

    def states(self) -> Sequence[PlatformState]:
        return [
            PlatformState(name=name, state="paused" if name in self.paused else "listening")
            for name in ("fake", "slack")
        ]

    def pause(self, name: str) -> None:
        self.paused.add(name)

    def resume(self, name: str) -> None:
        self.paused.discard(name)

    async def restart(self, asker: Address | None) -> None:
        self.restarts += 1

    async def start(self, scope: Scope, prompt: str) -> str:
        self.started.append((scope, prompt))
        return f"dlg_{len(self.started)}"

    async def describe_changed(self) -> str:
        return "agent:\n  max_turns: 12"

    async def describe(self) -> str:
        return "eyes  on"

    async def switch(self, names: Sequence[str], platform: str, *, on: bool) -> str:
        where = f" ({platform})" if platform else ""
        return f"{'on' if on else 'off'}: {', '.join(names)}{where}"

    async def hand_off(
        self, session: Session, platform: str, caller: HandoffCaller | None = None
    ) -> str:
        self.saved.append((session.id, platform, *([caller] if caller is not None else [])))
        return platform

    async def accounts(self, account: str) -> Sequence[str]:
        return ()

    async def issue(self, account: str, address: Address, person: Person) -> str:
        return "ABCDEFGH"

    async def check(self, account: str, code: str) -> str:
        raise UsageError("The code is wrong.")

    async def redeem(
        self, account: str, address: Address, person: Person, code: str
    ) -> Sequence[str]:
        raise UsageError("The code is wrong.")

    async def unlink(self, account: str) -> bool:
        return False

    async def list_tasks(self, session: Session) -> Sequence[BackgroundTask]:
        return [
            BackgroundTask(name=name, command="sleep 9", seconds=3)
            for name in self.running_processes
        ] + [
            BackgroundTask(name=name, command="true", seconds=1, state="exited")
            for name in self.ended_processes
        ]

    async def end_all(self, session: Session) -> int:
        count = len(self.running_processes)
        self.running_processes.clear()
        return count

    confirms_reload = True

    async def reload(self) -> str:
        return "play: ready, 3 tools"

    def services(self) -> CommandServices:
        return CommandServices(
            settings=self,
            program=self,
            model_offers=self,
            toolsets=self,
            images=self,
            platforms=self,
            restart=self.restart,
            background=self,
            runtimes=FakeRuntimes(),
            checkpoints=FakeCheckpoints(FakeClock()),
            context_window=self.window,
            handoff=self,
            people=self,
            mcp_servers=self,
            changes=self,
            features=self,
        )

    def get(self, feature: str) -> object:
        """The features have no service here; their commands are listed."""
        raise UsageError(f"{feature} is not available here.")


class FakeRuntimes:
    def __init__(self) -> None:
        self.name = "auto"

    def current(self) -> str:
        return self.name

    async def choose(self, name: str) -> str:
        self.name = name
        return f"Now {name}."


class CommandHarness:
    """Types commands into one conversation."""

    def __init__(self, one: ConversationHarness, path: Path) -> None:
        self.conversation = one
        self.models = FakeModelSelector()
        home = Home(path / "home", path / "home")
        self.learning = Learning(home, Env({}), Config(), one.store, FakeClock())
        self.fake_services = FakeServices()
        self.context = CommandContext(
            one.conversation,
            self.models,
            FakeFacts(),
            caller=CommandCaller(abilities=ALL_ABILITIES),
            services=structs.replace(
                self.fake_services.services(),
                approvals=ApprovalService(one.store, FakeClock(), ApprovalRules(home="/home/ann")),
                learning=LearningCommands(home, Env({}), self.learning),
                instruction_files=ProjectInstructions(home, FakeClock()),
            ),
        )
        self._registry = standard_commands()

    def as_terminal(self, role: Role = Role.OWNER, **seat: object) -> None:
        self.context = structs.replace(
            self.context, role=role, caller=structs.replace(self.context.caller, **seat)
        )

    def as_chat(self, role: Role = Role.OWNER, **seat: object) -> None:
        where: dict[str, object] = {
            "surface": Surface.CHAT,
            "address": Address("fake", "1"),
            "platform": "fake",
            "person": Person(id="7", name="Ann"),
            "abilities": frozenset(),
        }
        self.as_terminal(role, **(where | seat))

    async def run(self, line: str) -> CommandReply:
        return await self._registry.run(self.context, line)

    async def run_text(self, line: str) -> str:
        reply = await self.run(line)
        assert isinstance(reply, TextReply | ResumedReply)
        return reply.text

    async def texts(self) -> list[str]:
        return [text_of(row.message) for row in await self.conversation.rows()]


@asynccontextmanager
async def command_harness(
    path: Path, *scripts: Script, tools: Sequence[FakeTool] = (), clock: FakeClock | None = None
) -> AsyncGenerator[CommandHarness]:
    async with conversation_harness(*scripts, tools=tools, clock=clock) as one:
        yield CommandHarness(one, path)
