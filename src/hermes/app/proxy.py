"""Run the turns of a profile's chats in another gateway, if configured."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.agent.plan import Plan, RuntimePlan
from hermes.app.planner import StandardPlanner
from hermes.approvals.policy import API_SOURCE
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.approvals import Approvals
from hermes.ports.message_sender import Followups
from hermes.ports.model import Model
from hermes.ports.runtime import Runtime
from hermes.ports.store import Blobs, Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.runner import Planner

if TYPE_CHECKING:
    from hermes.runtimes.proxy.chat_runtime import RemoteGateway
    from hermes.runtimes.proxy.followups import RemoteFollowups

NO_TIMEOUT = 10.0 * 365 * 86_400
"""Seconds; stands for a disabled timeout where a number is required."""
URL_VARIABLE = "GATEWAY_PROXY_URL"
KEY_VARIABLE = "GATEWAY_PROXY_KEY"


def proxy_url(config: Config, env: Mapping[str, str]) -> str | None:
    """The URL of the other gateway; the environment overrides the settings."""
    url = env.get(URL_VARIABLE, "").strip() or config.gateway.proxy_url.strip()
    return url.rstrip("/") or None


def remote_gateway(config: Config, env: Mapping[str, str]) -> "RemoteGateway | None":
    """The other gateway's URL, key and timeouts."""
    if (url := proxy_url(config, env)) is None:
        return None
    from hermes.runtimes.proxy.chat_runtime import RemoteGateway  # noqa: PLC0415 - rarely used

    settings = config.gateway.proxy
    return RemoteGateway(
        url=url.removesuffix("/v1"),
        key=env.get(KEY_VARIABLE, "").strip(),
        connect=settings.connect_timeout or NO_TIMEOUT,
        read=settings.idle_timeout or NO_TIMEOUT,
        reconnect_timeout=settings.link_timeout,
        total=settings.total_timeout,
    )


class ProxyDeps(Struct, frozen=True, kw_only=True):
    """What a turn in the other gateway needs from this profile."""

    blobs: Blobs
    clock: Clock
    store: Store
    followups: Followups
    approvals: Approvals


def build_followups(
    config: Config, env: Mapping[str, str], deps: ProxyDeps
) -> "RemoteFollowups | None":
    """Receives messages that the other gateway sends after a turn; runs with the chats."""
    if (gateway := remote_gateway(config, env)) is None:
        return None
    from hermes.runtimes.proxy.followups import RemoteFollowups  # noqa: PLC0415 - as above

    return RemoteFollowups(gateway, deps.clock, deps.store, deps.followups)


def with_proxy(
    planner: StandardPlanner,
    config: Config,
    env: Mapping[str, str],
    deps: ProxyDeps,
    remote_followups: "RemoteFollowups | None",
) -> Planner:
    """Return the planner, or one that runs the turns of chats in the other gateway."""
    if (gateway := remote_gateway(config, env)) is None:
        return planner
    from hermes.runtimes.proxy.remote_runtime import RemoteRuntime  # noqa: PLC0415 - as above
    from hermes.runtimes.proxy.remote_turn import RemoteTurnDeps  # noqa: PLC0415 - as above

    turn_deps = RemoteTurnDeps(
        remote=gateway,
        blobs=deps.blobs,
        clock=deps.clock,
        approvals=deps.approvals,
        followups=remote_followups,
    )
    return _ProxyPlanner(planner, RemoteRuntime(turn_deps))


class RemoteModels:
    """Model control for chats whose turns another gateway runs: it chooses the model."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def choose(self, name: str, provider: str | None) -> Model:
        raise self._unavailable()

    async def check_name(self, name: str, provider: str | None) -> str:
        raise self._unavailable()

    async def save_default(self, model: Model) -> Sequence[str]:
        raise self._unavailable()

    def current(self, session: Session) -> str:
        return f"chosen by the gateway at {self._url}"

    async def offers(self) -> Sequence[str]:
        raise self._unavailable()

    def _unavailable(self) -> UsageError:
        return UsageError(
            f"The gateway at {self._url} runs the turns of this chat and chooses the model.",
            hint="Change the model there.",
        )


def remote_models(config: Config, env: Mapping[str, str]) -> RemoteModels | None:
    """None if the turns of chats run here."""
    return RemoteModels(url) if (url := proxy_url(config, env)) else None


class _ProxyPlanner:
    """Runs only the turns of chats in the other gateway.

    The terminal and API clients are answered here, even those that accept later messages.
    """

    def __init__(self, local: StandardPlanner, runtime: Runtime) -> None:
        self._local = local
        self._runtime = runtime

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        if scope.address is None or scope.address.channel == API_SOURCE:
            return await self._local.plan(session, scope, history)
        return RuntimePlan(
            scope=scope,
            runtime=self._runtime,
            system=self._local.extra_instructions(session, scope),
            history=history,
            hooks=self._local.hooks,
        )
