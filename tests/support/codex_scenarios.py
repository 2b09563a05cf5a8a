"""Scripts and helpers for tests of turns run by a real codex."""

import os
import struct
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from hermes.kit.clock import SystemClock
from hermes.schema.events import Event
from hermes.schema.messages import Message, Result
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import FakeOpenAiServer
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexHarness, CodexSetup, codex_harness

PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: new.txt
+one
*** End Patch
EOF"""
ENDLESS_COMMAND = "echo $$ > pid; sleep 300"
SLOW_COMMAND = "for n in 1 2 3; do sleep 0.2; echo step $n; done"


def tiny_png() -> bytes:
    """A black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack("!I", len(data)) + body + struct.pack("!I", zlib.crc32(body))

    head = struct.pack("!IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0\0\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def command_script(command: str, *then: Reply, **more: object) -> Script:
    """The model runs this command, then answers."""
    call = Call("exec_command", {"cmd": command, "yield_time_ms": 30_000, **more})
    steps = [Reply(calls=[call]), *(then or [Reply(text="done")])]
    return Script(rules=[Rule(contains="go", steps=steps)])


def escalation_script(command: str) -> Script:
    return command_script(
        command, sandbox_permissions="require_escalated", justification="I need it"
    )


def results(messages: Sequence[Message]) -> list[Result]:
    return [message for message in messages if isinstance(message, Result)]


class EventWaiter:
    """Collects events until one of the given kinds arrives."""

    def __init__(self, *kinds: type[Event]) -> None:
        self._kinds = kinds
        self.seen = anyio.Event()

    async def __call__(self, event: Event, /) -> None:
        if isinstance(event, self._kinds):
            self.seen.set()


async def ask_and_interrupt(harness: CodexHarness, until: Callable[[], Awaitable[object]]) -> None:
    """Ask, and interrupt as soon as `until` returns."""
    async with anyio.create_task_group() as group:
        group.start_soon(harness.ask, "go")
        with anyio.fail_after(TEST_TIMEOUT):
            await until()
        group.cancel_scope.cancel()


async def wait_for_event(harness: CodexHarness, kind: type[Event]) -> None:
    while not any(isinstance(event, kind) for event in harness.events):
        await SystemClock().sleep(0.02)


@asynccontextmanager
async def served_codex(
    script: Script, path: Path, program: str
) -> AsyncGenerator[tuple[FakeOpenAiServer, CodexHarness]]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(serve(script))
        bench = CodexSetup(url=model.url, path=path, program=program)
        yield model, await stack.enter_async_context(codex_harness(bench))


async def has_exited(pid: int) -> bool:
    with anyio.move_on_after(TEST_TIMEOUT):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            await SystemClock().sleep(0.02)
    return False


async def wait_for_file(path: Path) -> str:
    with anyio.fail_after(TEST_TIMEOUT):
        while not path.exists() or not path.read_text().strip():
            await SystemClock().sleep(0.02)
    return path.read_text().strip()
