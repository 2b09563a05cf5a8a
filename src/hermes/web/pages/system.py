"""The system page: gateway, platforms, queues, what doctor finds, and who is logged in."""

from collections.abc import Mapping

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes import __version__
from hermes.app.service.status import GatewayStatus, PlatformState, gateway_status
from hermes.config.home import Home
from hermes.web.context import Route, WebContext, html_response, read_json
from hermes.web.doctor import findings_list, run_doctor
from hermes.web.html import Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.pages.login_list import logins_section
from hermes.web.texts import text
from hermes.web.times import moment

MEGABYTE = 1_000_000


class DoctorRequest(Struct, frozen=True):
    """`fix` is the id of a problem to fix."""

    fix: str = ""


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile = context.profile(request)
        app = profile.app
        stats = await app.store.maintenance.stats()
        status = await run_sync(gateway_status, app.home)
        figures = {
            "sessions": f"{stats.sessions:,}",
            "running_turns": str(len(profile.live.sessions)),
            "waiting_items": str(stats.waiting),
            "parked_items": str(stats.parked),
            "store_size": f"{stats.size / MEGABYTE:,.1f} MB",
        }
        warnings = [h("li", one, class_="entry error") for one in app.warnings]
        main = join([
            h("h1", text("nav_system")),
            h("ul", *warnings, class_="cards") if warnings else None,
            h("div", *(
                h("div", h("span", value, class_="figure"), text(name), class_="panel")
                for name, value in figures.items()
            ), class_="grid"),
            h("h2", text("gateway")),
            _gateway(status),
            h("h2", text("doctor")),
            h("button", text("doctor_check"), type="button", id="doctor", data_action="doctor"),
            h("div", h("p", text("doctor_hint"), class_="hint"), id="findings", aria_live="polite"),
            logins_section(context, request),
            h("p", f"Hermes {__version__} · {app.store.maintenance.driver} · {app.home.path}",
              class_="hint"),
        ])  # fmt: skip
        return await render_page(
            request, context, name="system", title=text("nav_system"), main=main
        )

    async def doctor(request: web.Request) -> web.Response:
        body = await read_json(request, DoctorRequest)
        return html_response(findings_list(await run_doctor(_home(context, request), body.fix)))

    return [Route("GET", "/system", page), Route("POST", "/system/doctor", doctor)]


def _home(context: WebContext, request: web.Request) -> Home:
    return context.profile(request).app.home


def _gateway(status: GatewayStatus) -> Html:
    if status.record is None:
        return h("p", text("gateway_stopped"), " ", h("code", "hermes gateway start"))
    since = moment(status.since) if status.since else None
    head = h("p", text("gateway_running", pid=str(status.record.pid)), " ", since)
    return h("div", head, _platforms(status.platforms))


def _platforms(platforms: Mapping[str, PlatformState]) -> Html:
    rows = [
        h(
            "li",
            h("b", name),
            h("p", h("span", one.state, class_="tag bad" if one.error_code else "tag"),
              one.error_message or "", class_="facts"),
        )
        for name, one in sorted(platforms.items())
    ]  # fmt: skip
    return h("ul", *rows, class_="cards")
