"""`agent.transports.codex_app_server_session`: a blocking session with one Codex thread."""

from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct

from hermes.compat.chat_messages import Json, to_chat_message
from hermes.config.env import Env, process_env, profile_env
from hermes.config.home import resolve_home
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.codex.runtime import CodexRuntime
from hermes.runtimes.codex.service import CodexService, CodexTimeouts, open_service
from hermes.runtimes.codex.settings import codex_program, codex_service_deps
from hermes.runtimes.codex.turn import CodexDeps, CodexTurn
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import HermesError
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Message, Text, User
from hermes.schema.scope import Scope
from hermes.schema.sessions import StoredMessage


class TurnResult(Struct, kw_only=True):
    """The result of a turn. If `should_retire` is set, the next turn needs a new session."""

    final_text: str = ""
    projected_messages: list[Json] = []
    tool_iterations: int = 0
    interrupted: bool = False
    error: str | None = None
    turn_id: str | None = None
    thread_id: str | None = None
    should_retire: bool = False


class CodexAppServerSession:
    """A Codex process with one thread. It starts with the first turn and runs until `close`."""

    def __init__(self, *, cwd: str | None = None, codex_bin: str = "", **_: Any) -> None:
        self._cwd = cwd or str(Path.cwd())
        self._program = codex_bin
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._runtime: CodexRuntime | None = None
        self._messages: list[Message] = []
        self._session = new_id("ses")
        self._running: anyio.CancelScope | None = None

    def ensure_started(self) -> str:
        """Return the thread id. Raises `HermesError` if Codex cannot be started."""
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
        """Run one turn; a failure is reported in the result, never raised."""
        timeouts = CodexTimeouts(deadline=turn_timeout, quiet=post_tool_quiet_timeout)
        try:
            portal, runtime = self._open()
        except (HermesError, OSError) as error:
            reason = error.sentence if isinstance(error, HermesError) else str(error)
            return TurnResult(error=reason, should_retire=True)
        return portal.call(self._turn, runtime, user_input, timeouts)

    def request_interrupt(self) -> None:
        """Interrupt the running turn; may be called from any thread."""
        if self._portal is not None and self._running is not None:
            with suppress(RuntimeError):  # the portal was just closed
                self._portal.start_task_soon(self._interrupt)

    def close(self) -> None:
        self._portal = self._runtime = None
        self._stack.close()

    async def _interrupt(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _open(self) -> tuple[BlockingPortal, CodexRuntime]:
        if self._portal is None or self._runtime is None:
            env = Env(process_env())
            home = resolve_home(env)
            env = profile_env(home.dotenv, env)
            config = load_config(home, env).config
            program = self._program or codex_program(env)
            with ExitStack() as stack:
                launch = program_launcher(stack.enter_context(Spawner()))
                deps = codex_service_deps(home, config, env, launch, program)
                portal = stack.enter_context(start_blocking_portal())
                opened: AbstractContextManager[CodexService] = portal.wrap_async_context_manager(
                    open_service(deps)
                )
                service = stack.enter_context(opened)
                self._stack = stack.pop_all()
            self._portal = portal
            self._runtime = CodexRuntime(
                CodexDeps(service=service, store=None, clock=SystemClock())
            )
        return self._portal, self._runtime

    def _runtime_request(self) -> RuntimeRequest:
        scope = Scope("default", self._session, new_id("run"), self._cwd)
        return RuntimeRequest(scope, "", list(self._messages))

    async def _turn(self, runtime: CodexRuntime, text: str, timeouts: CodexTimeouts) -> TurnResult:
        question = User(new_id("msg"), (Text(text),))
        self._messages.append(question)
        messages: list[Message] = []

        async def emit(event: RuntimeEvent) -> None:
            if isinstance(event, MessageAdded):
                messages.append(event.message)

        turn_end, turn_before = TurnEnd(Outcome.CANCELLED, "user interrupted"), runtime.last_turn
        with anyio.CancelScope() as self._running:
            try:
                turn_end = await runtime.run(self._runtime_request(), emit, timeouts)
            except HermesError as error:
                turn_end = TurnEnd(Outcome.FAILED, error.sentence)
        self._running = None
        self._messages += messages
        # There is no end event if the turn failed before it began.
        turn = runtime.last_turn if runtime.last_turn is not turn_before else None
        return _result(turn_end, messages, turn)


def _result(turn_end: TurnEnd, messages: list[Message], turn: CodexTurn | None) -> TurnResult:
    now = SystemClock().now()
    answers = [message.text for message in messages if isinstance(message, Assistant)]
    return TurnResult(
        final_text=answers[-1] if answers else "",
        projected_messages=[
            to_chat_message(StoredMessage(0, now, "", message)) for message in messages
        ],
        tool_iterations=turn.mapper.iterations if turn is not None else 0,
        interrupted=turn_end.outcome is Outcome.CANCELLED,
        error=turn_end.reason or None,
        turn_id=turn.id if turn is not None else None,
        thread_id=turn.thread if turn is not None else None,
        should_retire=turn is None or turn.retire,
    )
