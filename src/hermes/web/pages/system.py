"""The system page: the live state, what doctor finds, and who is logged in."""

from aiohttp import web
from msgspec import Struct

from hermes import __version__
from hermes.config.home import Home
from hermes.ports.store import CompleteItem
from hermes.schema.errors import NotFound
from hermes.web.context import Route, WebContext, html_response, json_response, read_json
from hermes.web.doctor import findings_list, run_doctor
from hermes.web.html import h, join
from hermes.web.pages.layout import render_page
from hermes.web.pages.login_list import logins_section
from hermes.web.system_state import MAX_PARKED, system_state
from hermes.web.texts import text


class ItemRequest(Struct, frozen=True, kw_only=True):
    queue: str
    key: str
    discard: bool = False


class DoctorRequest(Struct, frozen=True):
    """`fix` is the id of a problem to fix."""

    fix: str = ""


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        app = context.profile(request).app
        follow = h(
            "form",
            h("label", h("input", type="checkbox", data_follow="3000", checked=True), " ",
              text("live"), class_="row"),
            data_live="state",
            data_url="system/state",
        )  # fmt: skip
        main = join([
            h("div", h("h1", text("nav_system")), follow, class_="row spread"),
            h("div", await system_state(context.profile(request)), id="state"),
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

    async def state(request: web.Request) -> web.Response:
        return html_response(await system_state(context.profile(request)))

    async def doctor(request: web.Request) -> web.Response:
        body = await read_json(request, DoctorRequest)
        return html_response(findings_list(await run_doctor(_home(context, request), body.fix)))

    async def settle(request: web.Request) -> web.Response:
        """Send an item that was given up once more, or discard it."""
        body, app = await read_json(request, ItemRequest), context.profile(request).app
        parked = await app.store.queues.parked(body.queue, MAX_PARKED)
        item = next((one.item for one in parked if one.item.key == body.key), None)
        if item is None:
            raise NotFound(text("no_item"))
        if body.discard:
            await app.store.commit(CompleteItem(item.key))
        else:
            await app.store.queues.retry(item.key, app.clock.now(), text("asked_again"))
            app.bus.wake(item.queue, item.topic)
        return json_response({})

    return [
        Route("GET", "/system", page),
        Route("GET", "/system/state", state),
        Route("POST", "/system/doctor", doctor),
        Route("POST", "/system/items", settle),
    ]


def _home(context: WebContext, request: web.Request) -> Home:
    return context.profile(request).app.home
