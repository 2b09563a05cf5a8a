"""Register another gateway as the runtime of a profile's chats."""

from collections.abc import Callable, Mapping, Sequence

from hermes.config.schema import Config
from hermes.config.variables import proxy_url
from hermes.ports.plugins import PluginContext, RuntimeTurn
from hermes.ports.runtime import Runtime
from hermes.ports.tool import Tool
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.followups import RemoteFollowups
from hermes.runtimes.proxy.remote_runtime import RemoteRuntime
from hermes.runtimes.proxy.remote_turn import RemoteTurnDeps
from hermes.schema.messages import Message
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
