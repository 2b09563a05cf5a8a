"""`gateway.run` of the public system: run chat turns with our agent."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NotRequired, TypedDict, Unpack

from anyio.to_thread import run_sync

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.compat.chat_messages import Json, parse_history, to_chat_message
from hermes.compat.gateway_config import GatewayConfig
from hermes.compat.run_agent import AIAgent
from hermes.config.env import Env, process_env, profile_env
from hermes.config.home import resolve_home
from hermes.config.loader import config_from_mapping, load_config
from hermes.config.variables import proxy_url
from hermes.gateway.replies import final_reply_text
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.runtimes.proxy.chat_runtime import ChatRuntime
from hermes.runtimes.proxy.plugin import remote_gateway
from hermes.schema.errors import LeaseLost, UsageError
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded
from hermes.schema.messages import Message, Text, User
from hermes.schema.scope import Address, Scope
from hermes.schema.sessions import StoredMessage
from hermes.session.keys import SessionSource


class AgentRequest(TypedDict):
    """One chat message with everything needed to answer it."""

    message: str
    context_prompt: str
    history: Sequence[Mapping[str, Any]]
    source: SessionSource
    session_id: str
    session_key: NotRequired[str | None]
    run_generation: NotRequired[int | None]
    event_message_id: NotRequired[str | None]


def _load_gateway_config() -> Mapping[str, object]:
    env = _env()
    return load_config(resolve_home(env), env).raw


def _env() -> Env:
    env = Env(process_env())
    return profile_env(resolve_home(env).dotenv, env)


class GatewayRunner:
    """Runs chat turns; `_session_run_generation` holds the current run of each session."""

    def __init__(self, config: GatewayConfig | None = None) -> None:
        self.config = config or GatewayConfig()
        self.adapters: Json = {}
        self._session_run_generation: dict[str, int] = {}
        self._agent_class = AIAgent

    def _get_proxy_url(self) -> str | None:
        return proxy_url(config_from_mapping(_load_gateway_config()), _env())

    async def _run_agent(self, **request: Unpack[AgentRequest]) -> Json:
        if self._get_proxy_url() is not None:
            return await self._run_agent_via_proxy(**request)
        agent = self._agent_class(
            session_id=request["session_id"], platform=str(request["source"].platform)
        )
        texts = (request["message"], request["context_prompt"])
        return await run_sync(partial(agent.run_conversation, *texts, request["history"]))

    async def _run_agent_via_proxy(self, **request: Unpack[AgentRequest]) -> Json:
        remote = remote_gateway(config_from_mapping(_load_gateway_config()), _env())
        if remote is None:
            raise UsageError("No other gateway is configured.", hint="Set GATEWAY_PROXY_URL.")
        plan = RuntimePlan(
            scope=_scope(request),
            runtime=ChatRuntime(remote),
            system=request["context_prompt"],
            history=parse_history(request["history"], SystemClock().now()),
        )
        collector = _RunCollector(self._session_run_generation, request)
        message_id = request.get("event_message_id") or new_id("msg")
        question = User(message_id, (Text(request["message"]),))
        await run_turn(plan, [question], collector)
        return collector.result(request)


class _RunCollector:
    """Collects the events of a run until a newer one of the session starts."""

    def __init__(self, newest: Mapping[str, int], request: AgentRequest) -> None:
        self._newest = newest
        self._key = request.get("session_key") or ""
        self._generation = request.get("run_generation")
        self._messages: list[Message] = []
        self._ended: RunEnded | None = None

    async def __call__(self, event: Event, /) -> None:
        if isinstance(event, RunEnded):
            self._ended = event
        elif self._generation is not None and self._is_stale(self._generation):
            raise LeaseLost("A newer run of this session has started.")
        elif isinstance(event, MessageAdded):
            self._messages.append(event.message)

    def _is_stale(self, generation: int) -> bool:
        return self._newest.get(self._key, generation) != generation

    def result(self, asking: AgentRequest) -> Json:
        """Return the result in the public format; empty if a newer run has started."""
        ended, messages = self._ended, self._messages
        if ended is None or ended.code == LeaseLost.code:
            ended, messages = RunEnded("", Outcome.DONE), []
        now = SystemClock().now()
        return {
            "final_response": final_reply_text(ended, messages, None),
            "messages": [
                to_chat_message(StoredMessage(0, now, ended.run, message)) for message in messages
            ],
            "api_calls": ended.steps,
            "tools": [],
            "history_offset": len(asking["history"]),
            "session_id": asking["session_id"],
        }


def _scope(request: AgentRequest) -> Scope:
    source, session = request["source"], request["session_id"]
    address = Address(str(source.platform), source.chat_id, source.thread_id)
    key = request.get("session_key") or ""
    return Scope("default", session, new_id("run"), "", address=address, key=key)
