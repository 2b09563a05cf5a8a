"""`run_agent.AIAgent`: the blocking agent interface of the public system."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import anyio
import msgspec
from msgspec import Struct

from hermes.app.build import App, AppOptions, open_app
from hermes.app.planner import RuntimePlanner
from hermes.compat.chat_messages import Json, parse_history, to_chat_message
from hermes.compat.codex_agent import CODEX_MODE, CodexAgent
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.library import Answer, collect
from hermes.ports.runtime import Runtime
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, TextDelta
from hermes.schema.messages import Assistant, Message, Reasoning, Text, Usage
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.runner import Runner


class _AgentArguments(Struct, frozen=True, kw_only=True):
    """The arguments that have an effect."""

    base_url: str | None = None
    api_key: str | None = None
    provider: str | None = None
    model: str = ""
    max_iterations: int = 90
    enabled_toolsets: Sequence[str] | None = None
    disabled_toolsets: Sequence[str] = ()
    ephemeral_system_prompt: str | None = None
    platform: str | None = None


_IGNORED_ARGUMENTS = {
    "chat_id", "chat_name", "chat_type", "checkpoints_enabled", "credential_pool",
    "fallback_model", "gateway_session_key", "load_soul_identity", "log_prefix",
    "log_prefix_chars", "pass_session_id", "prefill_messages", "quiet_mode", "reasoning_config",
    "request_overrides", "save_trajectories", "service_tier", "session_db",
    "skip_context_files", "skip_memory", "thread_id", "tool_delay", "user_id", "user_name",
    "verbose_logging",
}  # fmt: skip
"""Accepted arguments without an effect, as is every `…_callback`; others raise `TypeError`."""


class AIAgent(CodexAgent):
    """Blocking: `AIAgent(model="…").chat("hi")`. Every call opens and closes the home."""

    def __init__(
        self, *, session_id: str | None = None, api_mode: str | None = None, **arguments: Any
    ) -> None:
        unknown = [
            name
            for name in arguments
            if name not in _AgentArguments.__struct_fields__ and name not in _IGNORED_ARGUMENTS
            if not name.endswith("_callback")
        ]
        if unknown:
            raise TypeError(f"AIAgent got unexpected arguments: {', '.join(sorted(unknown))}")
        known = {name: arguments.get(name) for name in _AgentArguments.__struct_fields__}
        values = {name: value for name, value in known.items() if value is not None}
        self._arguments = msgspec.convert(values, _AgentArguments)
        self._env = Env(process_env())
        self._running: tuple[asyncio.AbstractEventLoop, App] | None = None
        self.client: object = None
        """Always None: there is no provider SDK client. Kept for compatibility."""
        self._begin_counting()
        self.api_mode = api_mode or "chat_completions"
        self.session_id = session_id
        self.model = self._arguments.model
        self.provider = self._arguments.provider or ""
        self.base_url = self._arguments.base_url or ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def chat(self, message: str, stream_callback: Callable[[str], None] | None = None) -> str:
        return self.run_conversation(message, stream_callback=stream_callback)["final_response"]

    def run_conversation(
        self,
        user_message: str,
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
        stream_callback: Callable[[str], None] | None = None,
        **_: Any,
    ) -> Json:
        """Run one turn; a failure is reported in the result, never raised."""
        runtime = self._codex_runtime() if self.api_mode == CODEX_MODE else None

        async def run() -> Json:
            opening = open_app(resolve_home(self._env), self._env, self._choices(system_message))
            async with opening as app:
                if runtime is not None:
                    _use_runtime(app, runtime)
                await self._restore(app, conversation_history or ())
                answer = await self._run_interruptible(
                    app, user_message, _delta_callback(stream_callback)
                )
                return await self._result(app, answer)
            raise HermesError("Cannot start the agent.")

        try:
            result = _run_blocking(run)
        except HermesError as error:
            result = self._failure(error.sentence)
        return result if runtime is None else self._after_codex(runtime, result)

    def interrupt(self, message: str | None = None) -> None:
        """Interrupt the running turn; may be called from any thread."""
        running = self._running
        if running is not None:
            loop, app = running
            with suppress(RuntimeError):  # the turn and its loop have just ended
                loop.call_soon_threadsafe(app.conversation.interrupt)

    def close(self) -> None:
        """Only a Codex thread stays open between calls."""
        self.interrupt()
        self._drop_codex_session()

    def _choices(self, system_message: str | None) -> AppOptions:
        arguments = self._arguments
        extra = [text for text in (system_message, arguments.ephemeral_system_prompt) if text]
        return AppOptions(
            workspace=str(Path.cwd()),
            source=arguments.platform or "library",
            model=arguments.model or None,
            provider=arguments.provider,
            base_url=arguments.base_url,
            api_key=arguments.api_key,
            toolsets=None
            if arguments.enabled_toolsets is None
            else tuple(arguments.enabled_toolsets),
            excluded_toolsets=tuple(arguments.disabled_toolsets),
            max_steps=arguments.max_iterations,
            system_prompt="\n\n".join(extra),
        )

    async def _run_interruptible(
        self, app: App, message: str, on_event: Callable[[Event], None]
    ) -> Answer:
        """Run the turn so that `interrupt` can reach it from other threads."""
        self._running = (asyncio.get_running_loop(), app)
        try:
            return await collect(app, [Text(message)], on_event)
        finally:
            self._running = None

    async def _restore(self, app: App, history: Sequence[Mapping[str, Any]]) -> None:
        if self.session_id and await app.conversation.exists(self.session_id):
            await app.conversation.resume(self.session_id)
            return
        await app.conversation.begin_with(parse_history(history, app.clock.now()), self.session_id)

    async def _result(self, app: App, answer: Answer) -> Json:
        session = app.conversation.session
        self.session_id = session.id
        rows = await app.conversation.messages()
        ended = answer.ended
        failed = ended.outcome is Outcome.FAILED
        return {
            "final_response": answer.text or (ended.reason if failed else ""),
            "last_reasoning": _last_reasoning(answer.messages),
            "messages": [to_chat_message(row) for row in rows],
            "api_calls": ended.steps,
            "completed": ended.outcome is Outcome.DONE,
            "partial": ended.outcome is not Outcome.DONE,
            "interrupted": ended.outcome is Outcome.CANCELLED,
            "failed": failed,
            "error": ended.reason or None,
            "turn_exit_reason": ended.code or "text_response",
            "model": session.model,
            "provider": session.provider,
            "base_url": self.base_url,
            "session_id": session.id,
            **_usage_fields(ended.usage, app.price(session.model, session.provider, ended.usage)),
        }

    def _failure(self, reason: str) -> Json:
        return {
            "final_response": reason,
            "messages": [],
            "api_calls": 0,
            "completed": False,
            "partial": True,
            "interrupted": False,
            "failed": True,
            "error": reason,
            "session_id": self.session_id,
        }


def _use_runtime(app: App, runtime: Runtime) -> None:
    """Run every turn of the app's own conversation in this runtime, whatever is configured."""
    runner = Runner(
        store=app.store,
        clock=app.clock,
        planner=RuntimePlanner(runtime, app.planner),
        price=app.price,
        profile=app.home.profile,
        bus=app.bus,
    )
    runner.lease_renewer = app.runner.lease_renewer
    session = app.conversation.session
    options = SessionOptions(source=session.source, cwd=session.cwd)
    app.conversation = Conversation(app.store, app.clock, runner, options)


def _run_blocking(work: Callable[[], Awaitable[Json]]) -> Json:
    """Run here, or in another thread if this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return anyio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, work).result()


def _usage_fields(usage: Usage, cost: float | None) -> Json:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "total_tokens": usage.input + usage.output,
        "estimated_cost_usd": cost,
        "cost_status": "unknown" if cost is None else "estimated",
        "cost_source": "catalog",
    }


def _last_reasoning(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages):
        if isinstance(message, Assistant):
            thoughts = [part.text for part in message.parts if isinstance(part, Reasoning)]
            return "".join(thoughts) or None
    return None


def _delta_callback(callback: Callable[[str], None] | None) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if callback is not None and isinstance(event, TextDelta):
            callback(event.text)

    return on_event
