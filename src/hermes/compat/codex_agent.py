"""What `AIAgent` does when codex runs its turns: the old session, its counters, the look back."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.compat.agent_transports_codex_app_server_session import (
    CodexAppServerSession,
    TurnResult,
)
from hermes.compat.chat_messages import Json, parse_history
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.kit.threads import Worker
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.schema.errors import ModelError
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Stop, Text, User, text_of

CODEX_MODE = "codex_app_server"
RESPONSES_MODE = "codex_responses"
"""Who looks back calls our own tools, which codex would not do for it."""
REVIEW_INTERVAL = 10
AUTO_RUNTIME_HINT = "`/codex-runtime auto` goes back to our own loop."
REVIEW_PROMPT = (
    "Look back at this conversation. {what} Change nothing else, and say in one line what you kept."
)
MEMORY_PROMPT = "Keep with the memory tool what will still be true and useful later."
SKILLS_PROMPT = "Keep with skill_manage what was learned about how to do such work."


class _SessionRuntime:
    """The blocking session as a runtime of a turn."""

    name = "Codex"

    def __init__(self, session: CodexAppServerSession) -> None:
        self._session = session
        self.result: TurnResult | None = None
        self.broken = False

    async def run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        asked: list[str] = []
        for message in reversed(runtime_request.messages):
            if not isinstance(message, User):
                break
            asked.insert(0, text_of(message))
        try:
            run = partial(self._session.run_turn, "\n\n".join(asked))
            result = self.result = await run_sync(run, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            self._session.request_interrupt()
            raise
        except Exception as error:
            # The boundary to whatever stands behind the session: its trouble ends this turn only.
            self.broken = True
            raise ModelError(
                f"Codex app-server turn failed: {error}", hint=AUTO_RUNTIME_HINT
            ) from error
        await self._tell_messages(result, tell)
        if result.interrupted:
            return TurnEnd(Outcome.CANCELLED, result.error or "Interrupted.", "cancelled")
        if result.error:
            return TurnEnd(Outcome.FAILED, result.error, ModelError.code)
        return TurnEnd(Outcome.DONE)

    async def close(self) -> None:
        """The session belongs to the agent."""

    async def _tell_messages(self, result: TurnResult, tell: EmitRuntimeEvent) -> None:
        """What came, once each; the question was told by who asked it."""
        now = SystemClock().now()
        said = [
            one
            for one in parse_history(result.projected_messages, now)
            if not isinstance(one, User)
        ]
        if result.final_text and not any(isinstance(one, Assistant) for one in said):
            said.append(Assistant(new_id("msg"), (Text(result.final_text),), Stop.END))
        for one in said:
            await tell(MessageAdded(one))


class _DueReviews(Struct, frozen=True):
    memory: bool = False
    skills: bool = False


class CodexAgent:
    """The part of `AIAgent` that has to do with codex. Counters tell when to look back."""

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
        """Put to the result what is codex's, count, and look back when it is time."""
        turn = runtime.result or TurnResult()
        if runtime.broken or turn.should_retire:
            self._drop_codex_session()
        result |= {
            "api_calls": 1,
            "codex_thread_id": turn.thread_id,
            "codex_turn_id": turn.turn_id,
        }
        if (
            result["error"]
            and not turn.interrupted
            and AUTO_RUNTIME_HINT not in result["final_response"]
        ):
            result["final_response"] = f"{result['final_response']} {AUTO_RUNTIME_HINT}".strip()
        due = self._count(turn)
        if result["completed"] and (due.memory or due.skills):
            self._spawn_background_review(
                messages_snapshot=list(result["messages"]),
                review_memory=due.memory,
                review_skills=due.skills,
            )
        return result

    def _count(self, turn: TurnResult) -> _DueReviews:
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
        return _DueReviews(memory, skills)

    def _current_main_runtime(self) -> Mapping[str, Any]:
        """With what another agent would have to be made to ask the same model."""
        return {"api_mode": self.api_mode, "base_url": self.base_url, "provider": self.provider}

    def _spawn_background_review(
        self,
        *,
        messages_snapshot: list[Json],
        review_memory: bool = False,
        review_skills: bool = False,
    ) -> None:
        """Have another agent look back at the talk, in a thread of its own."""
        wanted = [MEMORY_PROMPT] * review_memory + [SKILLS_PROMPT] * review_skills
        question = REVIEW_PROMPT.format(what=" ".join(wanted))
        toolsets = ["memory"] * review_memory + ["skills"] * review_skills
        given = dict(self._current_main_runtime())
        if given.get("api_mode") == CODEX_MODE:
            given["api_mode"] = RESPONSES_MODE

        def look_back() -> None:
            other = type(self)(model=self.model, enabled_toolsets=toolsets, **given)
            try:
                other.run_conversation(question, conversation_history=messages_snapshot)
            finally:
                other.close()

        Worker("look-back", look_back).start()

    def run_conversation(self, user_message: str, **_: Any) -> Json:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __init__(self, **_: Any) -> None:
        raise NotImplementedError
