"""Register another gateway as the runtime of a profile's chats."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from hermes.config.schema import Config
from hermes.config.variables import proxy_url
from hermes.kit.ids import new_id
from hermes.ports.plugins import PluginContext, RuntimeTurn
from hermes.ports.runtime import EmitRuntimeEvent, Runtime, RuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.tool import Tool
from hermes.runtimes.proxy.chat_runtime import (
    MODEL,
    PROVIDER,
    ChatRuntime,
    RemoteGateway,
    is_question,
)
from hermes.runtimes.proxy.followups import RemoteFollowups, followup_text, is_followup
from hermes.runtimes.proxy.gateway_client import CapabilityProbe
from hermes.runtimes.proxy.remote_turn import RemoteTurn, RemoteTurnDeps, RunsUnsupported
from hermes.schema.events import MessageAdded, Outcome
from hermes.schema.messages import Assistant, Message, Stop, Text
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session

NO_TIMEOUT = 10.0 * 365 * 86_400
"""Seconds; stands for a disabled timeout where a number is required."""
KEY_VARIABLE = "GATEWAY_PROXY_KEY"
API_CHANNEL = "api_server"


def register(ctx: PluginContext) -> None:
    services = ctx.services
    if (gateway := remote_gateway(services.config, services.env)) is None:
        return
    followups = RemoteFollowups(gateway, services.clock, services.store, services.followups)
    deps = RemoteTurnDeps(
        remote=gateway,
        blobs=services.blobs,
        clock=services.clock,
        approvals=services.approvals,
        followups=followups,
    )
    ctx.register_runtime(Proxy(RemoteRuntime(deps)))
    ctx.register_gateway_task(followups.run)


class Proxy:
    """Runs only the turns of chats in the other gateway.

    The terminal and API clients are answered here, even those that accept later messages.
    """

    name = "proxy"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def turn_for(
        self,
        session: Session,
        scope: Scope,
        history: Sequence[Message],
        offered: Callable[[Scope], Mapping[str, Tool]],
    ) -> RuntimeTurn | None:
        if scope.address is None or scope.address.channel == API_CHANNEL:
            return None
        return RuntimeTurn(runtime=self._runtime)


def remote_gateway(config: Config, env: Mapping[str, str]) -> RemoteGateway | None:
    """The other gateway's URL, key and timeouts."""
    if (url := proxy_url(config, env)) is None:
        return None
    settings = config.gateway.proxy
    return RemoteGateway(
        url=url.removesuffix("/v1"),
        key=env.get(KEY_VARIABLE, "").strip(),
        connect=settings.connect_timeout or NO_TIMEOUT,
        read=settings.idle_timeout or NO_TIMEOUT,
        reconnect_timeout=settings.link_timeout,
        total=settings.total_timeout,
    )


class RemoteRuntime:
    """Implements `ports.runtime.Runtime`, depending on what the remote gateway supports."""

    name = "The remote gateway"

    def __init__(self, deps: RemoteTurnDeps) -> None:
        self._deps = deps
        self._plain = ChatRuntime(deps.remote)
        self._probe = CapabilityProbe(deps.remote, deps.clock)

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        followup = followup_text(runtime_request.messages)
        messages = [message for message in runtime_request.messages if not is_followup(message)]
        runtime_request = msgspec.structs.replace(runtime_request, messages=messages)
        if not followup:
            return await self._run(runtime_request, emit)
        if not _has_question(messages):
            # There is nothing else to answer, so the followups are the answer.
            parts = (Text(followup),)
            answer = Assistant(new_id("msg"), parts, Stop.END, model=MODEL, provider=PROVIDER)
            await emit(MessageAdded(answer))
            return TurnEnd(Outcome.DONE)

        async def emit_after_followups(event: RuntimeEvent) -> None:
            if isinstance(event, MessageAdded) and isinstance(event.message, Assistant):
                parts = (Text(f"{followup}\n\n"), *event.message.parts)
                event = MessageAdded(msgspec.structs.replace(event.message, parts=parts))
            await emit(event)

        return await self._run(runtime_request, emit_after_followups)

    async def _run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        capabilities = await self._probe.capabilities()
        if capabilities.runs:
            try:
                return await RemoteTurn(self._deps, capabilities, runtime_request, emit).run()
            except RunsUnsupported as error:
                # A chat completion has no role: a Hermes gateway would treat it as its owner's.
                if not await self._probe.is_chat_only():
                    raise error.error from error
        return await self._plain.run(runtime_request, emit)

    async def close(self) -> None:
        """Do nothing: there are no connections between turns."""
        await self._plain.close()


def _has_question(messages: Sequence[Message]) -> bool:
    """Return whether there is a message to answer besides the followups."""
    for message in reversed(messages):
        if is_question(message) or isinstance(message, Assistant):
            return is_question(message)
    return False
