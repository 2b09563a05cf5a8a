"""The part of `AIAgent` that runs turns with Codex: its session, counters and reviews."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync

from hermes.compat.agent_transports_codex_app_server_session import (
    CodexAppServerSession,
    TurnResult,
)
from hermes.compat.chat_messages import Json, parse_history
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.kit.tasks import Worker
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.schema.errors import ModelError
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Stop, Text, User, text_of

CODEX_MODE = "codex_app_server"
RESPONSES_MODE = "codex_responses"
"""Mode of reviewing agents, which need our own tools."""
REVIEW_INTERVAL = 10
AUTO_RUNTIME_HINT = "`/codex-runtime auto` goes back to our own loop."
REVIEW_PROMPT = (
    "Look back at this conversation. {what} Change nothing else, and say in one line what you kept."
)
MEMORY_PROMPT = "Keep with the memory tool what will still be true and useful later."
SKILLS_PROMPT = "Keep with skill_manage what was learned about how to do such work."


class _SessionRuntime:
    """Runs a turn through the blocking session."""

    name = "Codex"

    def __init__(self, session: CodexAppServerSession) -> None:
        self._session = session
        self.result: TurnResult | None = None
        self.broken = False

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        texts: list[str] = []
        for message in reversed(runtime_request.messages):
            if not isinstance(message, User):
                break
            texts.insert(0, text_of(message))
        try:
            run = partial(self._session.run_turn, "\n\n".join(texts))
            result = self.result = await run_sync(run, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            self._session.request_interrupt()
            raise
        except Exception as error:
            # Any failure of the session ends only this turn.
            self.broken = True
            raise ModelError(
                f"Codex app-server turn failed: {error}", hint=AUTO_RUNTIME_HINT
            ) from error
        await self._emit_messages(result, emit)
        if result.interrupted:
            return TurnEnd(Outcome.CANCELLED, result.error or "Interrupted.", "cancelled")
        if result.error:
            return TurnEnd(Outcome.FAILED, result.error, ModelError.code)
        return TurnEnd(Outcome.DONE)

    async def close(self) -> None:
        """Nothing to do: the session belongs to the agent."""

    async def _emit_messages(self, result: TurnResult, emit: EmitRuntimeEvent) -> None:
        """Emit each message once; the question was already emitted by the caller."""
        now = SystemClock().now()
        parsed = parse_history(result.projected_messages, now)
        messages = [message for message in parsed if not isinstance(message, User)]
        if result.final_text and not any(isinstance(message, Assistant) for message in messages):
            messages.append(Assistant(new_id("msg"), (Text(result.final_text),), Stop.END))
        for message in messages:
            await emit(MessageAdded(message))


class CodexAgent:
    """The Codex part of `AIAgent`. Counters decide when to start a review."""

    api_mode: str
    model: str
    provider: str
    base_url: str

    def _begin_counting(self) -> None:
        self._codex_session: CodexAppServerSession | None = None
        self._iters_since_skill = 0
        self._turns_since_memory = 0
        self._user_turn_count = 0
        self._skill_nudge_interval = REVIEW_INTERVAL
        self._memory_nudge_interval = REVIEW_INTERVAL
        self._memory_store: object = None
        self._memory_enabled = False
        self._user_profile_enabled = False
        self.valid_tool_names: set[str] = set()

    def _codex_runtime(self) -> _SessionRuntime:
        self._user_turn_count += 1
        if self._codex_session is None:
            self._codex_session = CodexAppServerSession()
        return _SessionRuntime(self._codex_session)

    def _drop_codex_session(self) -> None:
        session, self._codex_session = self._codex_session, None
        if session is not None:
            session.close()

    def _after_codex(self, runtime: _SessionRuntime, result: Json) -> Json:
        """Add the Codex fields to the result, update the counters, and start a due review."""
        turn = runtime.result or TurnResult()
        if runtime.broken or turn.should_retire:
            self._drop_codex_session()
        ids = {"codex_thread_id": turn.thread_id, "codex_turn_id": turn.turn_id}
        result |= {"api_calls": 1, **ids}
        text = result["final_response"]
        if result["error"] and not turn.interrupted and AUTO_RUNTIME_HINT not in text:
            result["final_response"] = f"{text} {AUTO_RUNTIME_HINT}".strip()
        memory, skills = self._due_reviews(turn)
        if result["completed"] and (memory or skills):
            self._spawn_background_review(
                messages_snapshot=list(result["messages"]),
                review_memory=memory,
                review_skills=skills,
            )
        return result

    def _due_reviews(self, turn: TurnResult) -> tuple[bool, bool]:
        """Count the turn; return whether reviews of memory and of skills are due."""
        self._iters_since_skill += turn.tool_iterations
        self._turns_since_memory += self._memory_enabled
        skills = (
            0 < self._skill_nudge_interval <= self._iters_since_skill
            and "skill_manage" in self.valid_tool_names
        )
        memory = (
            self._memory_store is not None
            and 0 < self._memory_nudge_interval <= self._turns_since_memory
        )
        if skills:
            self._iters_since_skill = 0
        if memory:
            self._turns_since_memory = 0
        return memory, skills

    def _current_main_runtime(self) -> Mapping[str, Any]:
        """Return the arguments for another agent with the same model."""
        return {"api_mode": self.api_mode, "base_url": self.base_url, "provider": self.provider}

    def _spawn_background_review(
        self,
        *,
        messages_snapshot: list[Json],
        review_memory: bool = False,
        review_skills: bool = False,
    ) -> None:
        """Have another agent review the conversation in a background thread."""
        prompts = [MEMORY_PROMPT] * review_memory + [SKILLS_PROMPT] * review_skills
        question = REVIEW_PROMPT.format(what=" ".join(prompts))
        toolsets = ["memory"] * review_memory + ["skills"] * review_skills
        options = dict(self._current_main_runtime())
        if options.get("api_mode") == CODEX_MODE:
            options["api_mode"] = RESPONSES_MODE

        def review() -> None:
            reviewer = type(self)(model=self.model, enabled_toolsets=toolsets, **options)
            try:
                reviewer.run_conversation(question, conversation_history=messages_snapshot)
            finally:
                reviewer.close()

        Worker("codex-review", review).start()

    def run_conversation(self, user_message: str, **_: Any) -> Json:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __init__(self, **_: Any) -> None:
        raise NotImplementedError
