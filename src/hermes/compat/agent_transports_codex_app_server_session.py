"""`agent.transports.codex_app_server_session`: one thread of codex, by its old blocking names."""

from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct, structs

from hermes.app.codex import codex_program, codex_service_deps
from hermes.compat.chat_messages import Json, to_chat_message
from hermes.config.dotenv import profile_env
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.codex.runtime import CodexDeps, CodexRuntime
from hermes.runtimes.codex.service import CodexTimeouts, open_service
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import HermesError
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Message, Text, User
from hermes.schema.scope import Scope
from hermes.schema.sessions import StoredMessage


class TurnResult(Struct, kw_only=True):
    """What a turn came to; `should_retire` asks for a new process for the next one."""

    final_text: str = ""
    projected_messages: list[Json] = []
    tool_iterations: int = 0
    interrupted: bool = False
    error: str | None = None
    turn_id: str | None = None
    thread_id: str | None = None
    should_retire: bool = False


class CodexAppServerSession:
    """A process and a thread of its own, from the first turn to `close`."""

    def __init__(self, *, cwd: str | None = None, codex_bin: str = "", **_: Any) -> None:
        self._cwd = cwd or str(Path.cwd())
        self._program = codex_bin
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._runtime: CodexRuntime | None = None
        self._patience = CodexTimeouts()
        self._said: list[Message] = []
        self._session = new_id("ses")
        self._running: anyio.CancelScope | None = None

    def ensure_started(self) -> str:
        """The thread's id. Raises `HermesError` when codex cannot be started."""
        portal, runtime = self._open()
        return portal.call(runtime.open, self._runtime_request())

    def run_turn(
        self,
        user_input: str,
        *,
        turn_timeout: float = 600.0,
        post_tool_quiet_timeout: float = 90.0,
        **_: Any,
    ) -> TurnResult:
        """Never raises for a turn that fails: the result says so."""
        patience = structs.replace(
            self._patience, deadline=turn_timeout, quiet=post_tool_quiet_timeout
        )
        portal, runtime = self._open(patience)
        return portal.call(self._turn, runtime, user_input)

    def request_interrupt(self) -> None:
        """End the running turn; may be called from any thread."""
        if self._portal is not None and self._running is not None:
            with suppress(RuntimeError):  # the portal was closed just now
                self._portal.start_task_soon(self._interrupt)

    def close(self) -> None:
        self._portal = self._runtime = None
        self._stack.close()

    async def _interrupt(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _open(self, patience: CodexTimeouts | None = None) -> tuple[BlockingPortal, CodexRuntime]:
        if self._portal is None or self._runtime is None:
            env = Env(process_env())
            home = resolve_home(env)
            env = profile_env(home.dotenv, env)
            config = load_config(home, env).config
            door = self._stack.enter_context(Spawner())
            program = self._program or codex_program(env)
            parts = codex_service_deps(home, config, env, door, program)
            parts = structs.replace(parts, patience=patience or self._patience)
            self._portal = self._stack.enter_context(start_blocking_portal())
            opened: AbstractContextManager[Any] = self._portal.wrap_async_context_manager(
                open_service(parts)
            )
            service = self._stack.enter_context(opened)
            self._runtime = CodexRuntime(
                CodexDeps(service=service, store=None, clock=SystemClock())
            )
        return self._portal, self._runtime

    def _runtime_request(self) -> RuntimeRequest:
        scope = Scope("default", self._session, new_id("run"), self._cwd)
        return RuntimeRequest(scope, "", list(self._said))

    async def _turn(self, runtime: CodexRuntime, words: str) -> TurnResult:
        asked = User(new_id("msg"), (Text(words),))
        self._said.append(asked)
        heard: list[Message] = []

        async def tell(event: RuntimeEvent) -> None:
            if isinstance(event, MessageAdded):
                heard.append(event.message)

        ending = TurnEnd(Outcome.CANCELLED, "user interrupted")
        with anyio.CancelScope() as self._running:
            try:
                ending = await runtime.run(self._runtime_request(), tell)
            except HermesError as error:
                ending = TurnEnd(Outcome.FAILED, error.sentence)
        self._running = None
        self._said += heard
        return _result(ending, heard, runtime)


def _result(ending: TurnEnd, heard: list[Message], runtime: CodexRuntime) -> TurnResult:
    now, turn = SystemClock().now(), runtime.last
    answers = [message.text for message in heard if isinstance(message, Assistant)]
    return TurnResult(
        final_text=answers[-1] if answers else "",
        projected_messages=[
            to_chat_message(StoredMessage(0, now, "", message)) for message in heard
        ],
        tool_iterations=turn.mapper.iterations if turn is not None else 0,
        interrupted=ending.outcome is Outcome.CANCELLED,
        error=ending.reason or None,
        turn_id=turn.id if turn is not None else None,
        thread_id=turn.thread if turn is not None else None,
        should_retire=turn is None or turn.retire,
    )
