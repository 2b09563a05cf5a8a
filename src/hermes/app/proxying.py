"""Whether the turns of a profile's chats are run by another gateway, and by which."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hermes.agent.plan import Entrusted, Plan
from hermes.app.planner import StandardPlanner
from hermes.config.schema import Config
from hermes.ports.runtime import Runtime
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.runner import Planner

if TYPE_CHECKING:
    from hermes.runtimes.proxy.runtime import Far

URL = "GATEWAY_PROXY_URL"
KEY = "GATEWAY_PROXY_KEY"


def proxy_url(config: Config, env: Mapping[str, str]) -> str | None:
    """The address of the other gateway; the environment goes before the settings."""
    given = env.get(URL, "").strip() or config.gateway.proxy_url.strip()
    return given.rstrip("/") or None


def far_gateway(config: Config, env: Mapping[str, str]) -> "Far | None":
    """Where it is, and how to be let in there."""
    url = proxy_url(config, env)
    if url is None:
        return None
    from hermes.runtimes.proxy.runtime import Far  # noqa: PLC0415 - most homes have no proxy

    return Far(url=url.removesuffix("/v1"), key=env.get(KEY, "").strip())


def proxied(planner: StandardPlanner, config: Config, env: Mapping[str, str]) -> Planner:
    """The planner as it is, or one that entrusts the turns of chats to the other gateway."""
    far = far_gateway(config, env)
    if far is None:
        return planner
    from hermes.runtimes.proxy.runtime import ProxyRuntime  # noqa: PLC0415 - as above

    return _ProxyPlanner(planner, ProxyRuntime(far))


class _ProxyPlanner:
    """Only what comes from a chat goes away: who sits at this machine talks to this one."""

    def __init__(self, here: StandardPlanner, runtime: Runtime) -> None:
        self._here = here
        self._runtime = runtime

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | Entrusted:
        if scope.address is None:
            return await self._here.plan(session, scope, history)
        return Entrusted(
            scope=scope,
            runtime=self._runtime,
            system=self._here.told_here(session, scope),
            history=history,
        )
