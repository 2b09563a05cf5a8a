"""Health, readiness and metrics endpoints."""

import os
import shutil
from typing import Literal

import msgspec
from aiohttp import web
from msgspec import Struct, structs

from hermes import __version__
from hermes.api.context import KEY_PROFILE, ApiContext, Route, json_response, request_profile
from hermes.api.turn_gate import SOURCE
from hermes.app.build import App
from hermes.app.models import NO_MODEL
from hermes.config.variables import proxy_url
from hermes.gateway.messages import INBOX, outbox_name
from hermes.plugins.registry import CODEX_RUNTIME
from hermes.schema.errors import HermesError

MIN_FREE_DISK = 100_000_000
"""Bytes; with less free space, answers may not be stored."""

HealthState = Literal["ok", "degraded", "draining"]


class Health(Struct, frozen=True):
    status: Literal["ok"]
    platform: str
    version: str


HEALTHY = Health("ok", "hermes-agent", __version__)
HEALTH_PATHS = ("/health", "/v1/health")
"""Answered without a key, even when the server is full."""


class Check(Struct, frozen=True):
    status: Literal["ok", "failed"]
    detail: str = ""


class Readiness(Struct, frozen=True):
    status: Literal["ready", "not_ready"]
    checks: dict[str, Check]


class PlatformHealth(Struct, frozen=True, kw_only=True):
    """One channel of the gateway, or this server itself."""

    state: str
    error_code: str | None = None
    error_message: str | None = None
    updated_at: str | None = None


class GatewayHealth(Struct, frozen=True, kw_only=True):
    """Status reported by the gateway. Platforms of other profiles are named `PROFILE/NAME`."""

    gateway_state: str = "running"
    exit_reason: str | None = None
    active_agents: int = 0
    platforms: dict[str, PlatformHealth] = {}

    def for_profile(self, profile: str) -> "GatewayHealth":
        """Return only this profile's platforms."""
        prefix = f"{profile}/"
        platforms = {
            name.removeprefix(prefix): platform
            for name, platform in self.platforms.items()
            if name.startswith(prefix)
        }
        return structs.replace(self, platforms=platforms)


class DetailedHealth(Struct, frozen=True, kw_only=True):
    status: HealthState
    platform: str
    version: str
    readiness: Readiness
    gateway_state: str
    platforms: dict[str, PlatformHealth]
    active_agents: int
    gateway_busy: bool
    gateway_drainable: bool
    exit_reason: str | None
    profiles: list[str]
    loop_lag_seconds: float
    updated_at: str
    pid: int


def routes(context: ApiContext) -> list[Route]:
    async def health(request: web.Request) -> web.Response:
        if "profile" in request.match_info:
            context.app(request)
        return json_response(HEALTHY)

    async def detailed(request: web.Request) -> web.Response:
        return json_response(
            await _detailed(context, context.app(request), request.get(KEY_PROFILE, ""))
        )

    async def metrics(request: web.Request) -> web.Response:
        context.app(request)
        text = context.turn_gate.metrics.text(request_profile(request))
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text.encode(), headers=headers)

    health_routes = [
        Route("GET", path, health, "Health check.", answer=Health, public=True)
        for path in HEALTH_PATHS
    ]
    return [
        *health_routes,
        Route(
            "GET",
            "/health/detailed",
            detailed,
            "Health of the server and its dependencies.",
            answer=DetailedHealth,
        ),
        Route(
            "GET",
            "/metrics",
            metrics,
            "Metrics in Prometheus text format.",
            content_type="text/plain",
        ),
    ]


async def _detailed(context: ApiContext, app: App, only: str) -> DetailedHealth:
    """Collect the health report; `only` restricts it to the profile whose own key was given."""
    turn_gate, gateway = context.turn_gate, _gateway_health(context)
    gateway = gateway.for_profile(only) if only else gateway
    draining = turn_gate.draining or gateway.gateway_state == "draining"
    free_disk = shutil.disk_usage(app.home.path).free
    checks = {
        "state_db": await _check_store(app),
        "model": await _check_model(app),
        "disk": Check("ok" if free_disk > MIN_FREE_DISK else "failed", f"{free_disk:,} bytes free"),
        "config": Check("ok", "; ".join(app.warnings)),
        "gateway": _check_gateway(gateway),
        "background_queues": await _check_queues(app, gateway),
    }
    healthy = all(check.status == "ok" for check in checks.values())
    state: HealthState = "ok" if healthy else "degraded"
    return DetailedHealth(
        status="draining" if draining else state,
        platform="hermes-agent",
        version=__version__,
        readiness=Readiness("ready" if healthy and not draining else "not_ready", checks),
        gateway_state="draining" if draining else gateway.gateway_state,
        platforms=gateway.platforms,
        active_agents=gateway.active_agents,
        gateway_busy=gateway.active_agents > 0,
        gateway_drainable=not draining,
        exit_reason=gateway.exit_reason,
        profiles=[only] if only else sorted(context.apps),
        loop_lag_seconds=round(turn_gate.metrics.lag, 4),
        updated_at=context.clock.now().isoformat(),
        pid=os.getpid(),
    )


def _gateway_health(context: ApiContext) -> GatewayHealth:
    if context.status is None:
        return GatewayHealth(active_agents=context.turn_gate.metrics.active)
    return msgspec.json.decode(context.status(), type=GatewayHealth)


def _check_gateway(gateway: GatewayHealth) -> Check:
    """Report channels that fail until someone intervenes, not those that are retrying."""
    fatal = [
        f"{name}: {platform.error_message or platform.error_code or 'failed'}"
        for name, platform in gateway.platforms.items()
        if platform.state == "fatal"
    ]
    return Check("failed" if fatal else "ok", "; ".join(fatal))


async def _check_queues(app: App, gateway: GatewayHealth) -> Check:
    queues = app.store.queues
    channels = {SOURCE, *(name.rpartition("/")[2] for name in gateway.platforms)}
    try:
        inbox = len(await queues.topics(INBOX))
        outboxes = [len(await queues.topics(outbox_name(name))) for name in channels]
    except HermesError as error:
        return Check("failed", error.sentence)
    return Check("ok", f"sessions to wake: {inbox}, delivery targets: {sum(outboxes)}")


async def _check_store(app: App) -> Check:
    try:
        await app.store.archive_for("owner").latest()
    except HermesError as error:
        return Check("failed", error.sentence)
    return Check("ok")


async def _check_model(app: App) -> Check:
    nearest = await app.models.describe_default()
    if nearest == NO_MODEL and proxy_url(app.config, app.env) is not None:
        return Check("ok", "none here; chat turns run on another gateway")
    if nearest == NO_MODEL and app.config.main_model.openai_runtime == CODEX_RUNTIME:
        return Check("ok", "none here; chat turns run in codex")
    return Check("failed" if nearest == NO_MODEL else "ok", nearest)
