"""Whatever hangs, /stop ends it: the user gets a reply and the chat is free again."""

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median

import anyio
import anyio.lowlevel
import pytest
from msgspec import Raw

from hermes.agent.plan import Plan
from hermes.app.build import App
from hermes.gateway.gateway import Gateway
from hermes.kit.clock import SystemClock
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect, ToolSpec
from hermes.session.runner import Planner, Runner
from support.chat_platform.model import ModelCall
from support.chat_platform.server import PlatformServer, serve_platform
from support.event_loop_guard import guard_loop
from support.faulty_disk import faulty_disk
from support.homes import CHANNEL_NAME, ProfileSettings, write_profile
from support.mcp_harness import stdio_server
from support.polling import pause
from support.profile_gateway import profile_gateway, session_key_of

KEY = session_key_of(CHANNEL_NAME, "c")
REPLY_LIMIT, FREE_LIMIT = 0.5, 2.0
TIMEOUT = 60.0
BEGUN = "begun"
SLOW_DISK = 0.05


class BusyThreadTool:
    """Works in a thread and checks periodically whether to continue."""

    spec = ToolSpec("thread", "Works in a thread.", {"type": "object"}, Effect.READ)

    def __init__(self, started: Path) -> None:
        self._begun = started

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        def work() -> None:
            self._begun.touch()
            while True:
                anyio.from_thread.check_cancelled()

        await anyio.to_thread.run_sync(work)
        return ToolOutput.text("done")


class HangingPlanner:
    """Hangs while planning its first turn."""

    def __init__(self, plain: Planner, started: Path) -> None:
        self._plain = plain
        self._begun = started

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        if not self._begun.exists():
            self._begun.touch()
            await anyio.sleep_forever()
        return await self._plain.plan(session, scope, history)


class HangHarness:
    def __init__(self, server: PlatformServer, gateway: Gateway, started: Path) -> None:
        self.server = server
        self.gateway = gateway
        self._begun = started

    def say(self, text: str, chat: str = "c") -> None:
        self.server.say("main", chat, "ann", text)

    def texts(self) -> list[str]:
        return [post.text for post in self.server.platform.posts_in("main", "c")]

    async def sees(self, text: str) -> None:
        await self.server.until(lambda: any(text in one for one in self.texts()))

    @property
    def busy(self) -> bool:
        """Whether a turn or command is running."""
        return self.gateway.actors.activity(KEY).run is not None or bool(
            self.gateway.command_queue.count
        )

    async def hangs(self) -> None:
        """Wait until the model, tool, child or question is active."""
        await until(lambda: self._begun.exists() or any(ASKED in one for one in self.texts()))
        assert self.busy

    async def is_free(self) -> None:
        await until(lambda: not self.busy)


@asynccontextmanager
async def hang_harness(folder: Path, kind: str) -> AsyncGenerator[HangHarness]:
    home, work = folder / "home", folder / "work"
    work.mkdir(parents=True)
    started = work / BEGUN

    def mark_started(thought: ModelCall) -> None:
        if "hang:" in thought.question:
            started.touch()

    def prepare(app: App) -> None:
        app.toolbox.add_tools([BusyThreadTool(started)])
        if kind == "a planner that hangs":
            planner = HangingPlanner(app.planner, started)
            app.runner = Runner(
                store=app.store,
                clock=app.clock,
                planner=planner,
                price=app.price,
                profile=app.home.profile,
                bus=app.bus,
            )

    with ExitStack() as stack:
        if kind == "a slow disk":
            stack.enter_context(faulty_disk()).slow = SLOW_DISK
        async with serve_platform() as server:
            server.model.on_call = mark_started
            turns = 1 if kind == "no slot is free" else None
            settings = ProfileSettings(
                account="main",
                url=server.url,
                env={"MESSAGING_CWD": str(work)},
                settings={"max_concurrent_sessions": turns, **servers_of(kind, work)},
            )
            write_profile(home, settings)
            async with profile_gateway(home, prepare) as service, guard_loop():
                yield HangHarness(server, service.gateway, started)


def servers_of(kind: str, work: Path) -> dict[str, object]:
    if kind != SILENT_SERVER:
        return {}
    return {
        "mcp_discovery_timeout": TIMEOUT,
        "mcp_servers": {"play": stdio_server(work, HANGS=BEGUN)},
    }


def command(text: str) -> str:
    return f'use:terminal {{"command": "{text}"}}'


ASKED = "Which of them?"
SILENT_SERVER = "an MCP server that never answers"
HANGS: dict[str, str] = {
    "a model that never answers": "hang:model",
    "a model that never connects": "hang:connect",
    "a model that streams for ever": "hang:stream",
    "a tool that waits for a person": f'use:clarify {{"question": "{ASKED}"}}',
    "a tool in a thread": "use:thread",
    "a command that runs for ever": command("touch begun; sleep 1000"),
    "a command that ignores SIGTERM": command(
        "trap '' TERM INT HUP; touch begun; while :; do sleep 1; done"
    ),
    "a command that floods": command("touch begun; yes and so on"),
    "a child that holds the pipe": command("setsid sleep 1000 & touch begun; sleep 1000"),
    SILENT_SERVER: "use:mcp__play__hang",
    "a planner that hangs": "q-plan",
    "a slow disk": "hang:model",
    "sending hangs": "hang:model",
    "editing hangs": command("touch begun; sleep 1000"),
    "typing hangs": "hang:model",
    "reactions hang": "hang:model",
    "steering while it hangs": "hang:model",
    "a queue behind it": "hang:model",
    "no slot is free": "hang:model",
    "a slash command that hangs": "/compress here 1",
}
COMMAND = "a slash command that hangs"
HELD = {
    "sending hangs": "posts",
    "editing hangs": "edits",
    "typing hangs": "typing",
    "reactions hang": "signs",
}


async def stop_it(folder: Path, kind: str) -> tuple[float, float]:
    """Return seconds until the reply, and until the chat is free."""
    clock = SystemClock()
    async with hang_harness(folder, kind) as harness:
        queued = HELD.get(kind)
        if queued:
            harness.server.hold(queued)
        if kind == "no slot is free":
            harness.say("q-other hang:model", "other")
            await until((folder / "work" / BEGUN).exists)
        if kind == COMMAND:
            await command_hangs(harness)
        else:
            harness.say(f"q-1 {HANGS[kind]}")
        if kind == "no slot is free":
            await until(lambda: len(harness.gateway.actors.snapshot()) == 2)
        else:
            await harness.hangs()
        stopped = "was stopped." if kind == COMMAND else "Stopped."
        if kind == "steering while it hangs":
            harness.say("/steer q-2 go another way")
            await harness.sees("Sent to the running turn.")
        if kind == "a queue behind it":
            harness.say("q-2 later")
            await until(lambda: harness.gateway.actors.activity(KEY).waiting == 1)
        began = clock.monotonic()
        harness.say("/stop")
        if queued == "posts":
            await harness.is_free()
            free = clock.monotonic() - began
            harness.server.release(queued)
            await harness.sees(stopped)
            reply = free
        else:
            await harness.sees(stopped if kind == COMMAND else "Stop")
            reply = clock.monotonic() - began
            await harness.is_free()
            free = clock.monotonic() - began
            await harness.sees(stopped)
        if kind == "no slot is free":
            harness.say("/stop", "other")
        harness.say("q-3")
        await harness.sees("re: q-3")
        assert not any("re: q-1" in text or "re: q-2" in text for text in harness.texts())
        if queued and queued != "posts":
            harness.server.release(queued)
    return reply, free


async def command_hangs(harness: HangHarness) -> None:
    """It delays only what follows it in its own chat."""
    # The model hangs on this text if it is the last one to be summarised.
    words = command("printf hang%s :model")
    for name in ("q-5", "q-6", f"q-7 {words}", "q-8"):
        harness.say(name)
        await harness.sees(f"re: {name[:3]}")
        await harness.is_free()
    harness.say(HANGS[COMMAND])
    await harness.hangs()
    harness.say("/status")
    await harness.sees("running for")
    harness.say("q-2 later")
    harness.say("q-9", "other")
    await harness.server.until(lambda: bool(harness.server.platform.posts_in("main", "other")))


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await pause()


def children() -> set[str]:
    found: set[str] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        # A thread may end meanwhile.
        with suppress(OSError):
            found.update(file.read_text().split())
    return found


@pytest.mark.parametrize("kind", HANGS)
async def test_stop_ends_it(tmp_path: Path, kind: str) -> None:
    before = children()
    with anyio.fail_after(TIMEOUT):
        reply, free = await stop_it(tmp_path, kind)
        # A process that was asked to end may still be exiting.
        await until(lambda: children() <= before)
    sys.stdout.write(f"{kind}: answered after {reply:.3f} s, free after {free:.3f} s\n")


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", HANGS)
async def test_stop_ends_it_in_time(
    tmp_path: Path, kind: str, prove: Callable[[str], None]
) -> None:
    took = [await stop_it(tmp_path / str(number), kind) for number in range(20)]
    reply, free = (sorted(times) for times in zip(*took, strict=True))
    numbers = (
        f"{kind}: 20 times, answered after {median(reply):.3f} s ({reply[-1]:.3f} s at most), "
        f"free after {median(free):.3f} s ({free[-1]:.3f} s at most)"
    )
    prove(numbers)
    # On a busy machine, a single measurement says more about the machine.
    assert (median(reply) < REPLY_LIMIT, median(free) < FREE_LIMIT) == (True, True), numbers
