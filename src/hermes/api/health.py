"""Whether the server is there and well: for people, probes and monitoring."""

import os
import shutil
from typing import Literal

from aiohttp import web
from msgspec import Struct

from hermes import __version__
from hermes.api.desk import Desk, Route, answer
from hermes.app.build import App
from hermes.app.models import NO_MODEL
from hermes.schema.errors import HermesError

LITTLE_DISK = 100_000_000
"""Bytes; with less than that, the next answers may not be kept."""

State = Literal["ok", "degraded", "draining"]


class Health(Struct, frozen=True):
    status: Literal["ok"]
    platform: str
    version: str


class Check(Struct, frozen=True):
    status: Literal["ok", "failed"]
    detail: str = ""


class Readiness(Struct, frozen=True):
    status: Literal["ready", "not_ready"]
    checks: dict[str, Check]


class DetailedHealth(Struct, frozen=True, kw_only=True):
    status: State
    platform: str
    version: str
    readiness: Readiness
    gateway_state: str
    active_agents: int
    gateway_busy: bool
    gateway_drainable: bool
    profiles: list[str]
    loop_lag_seconds: float
    updated_at: str
    pid: int


def routes(desk: Desk) -> list[Route]:
    async def health(request: web.Request) -> web.Response:
        return answer(Health("ok", "hermes-agent", __version__))

    async def detailed(request: web.Request) -> web.Response:
        return answer(await _detailed(desk, desk.app(request)))

    async def metrics(request: web.Request) -> web.Response:
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=desk.entry.tally.text().encode(), headers=kind)

    there = "Whether somebody is there."
    return [
        Route(method="GET", path=path, handler=health, summary=there, answer=Health, free=True)
        for path in ("/health", "/v1/health")
    ] + [
        Route(
            method="GET",
            path="/health/detailed",
            handler=detailed,
            summary="How the server and what it needs are.",
            answer=DetailedHealth,
        ),
        Route(
            method="GET",
            path="/metrics",
            handler=metrics,
            summary="Numbers as Prometheus text.",
            kind="text/plain",
        ),
    ]


async def _detailed(desk: Desk, app: App) -> DetailedHealth:
    entry = desk.entry
    checks = {"state_db": await _store(app), "model": await _model(app), "disk": _disk(app)}
    checks["config"] = Check("ok", "; ".join(app.warnings))
    well = all(one.status == "ok" for one in checks.values())
    state: State = "ok" if well else "degraded"
    return DetailedHealth(
        status="draining" if entry.draining else state,
        platform="hermes-agent",
        version=__version__,
        readiness=Readiness("ready" if well and not entry.draining else "not_ready", checks),
        gateway_state="draining" if entry.draining else "running",
        active_agents=entry.active,
        gateway_busy=entry.active > 0,
        gateway_drainable=not entry.draining,
        profiles=sorted(desk.apps),
        loop_lag_seconds=round(entry.tally.lag, 4),
        updated_at=desk.clock.now().isoformat(),
        pid=os.getpid(),
    )


async def _store(app: App) -> Check:
    try:
        await app.store.seen_by("owner").latest()
    except HermesError as error:
        return Check("failed", error.sentence)
    return Check("ok")


async def _model(app: App) -> Check:
    nearest = await app.models.nearest()
    return Check("failed" if nearest == NO_MODEL else "ok", nearest)


def _disk(app: App) -> Check:
    free = shutil.disk_usage(app.home.path).free
    return Check("ok" if free > LITTLE_DISK else "failed", f"{free:,} bytes free")
