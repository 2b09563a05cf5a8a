"""The system page: the live state, what doctor finds, and who is logged in."""

from aiohttp import web
from msgspec import Struct

from hermes import __version__
from hermes.ports.store import CompleteItem
from hermes.schema.errors import NotFound
from hermes.web.context import Route, WebContext, html_response, json_response, read_json
from hermes.web.doctor import findings_list, run_doctor
from hermes.web.html import h, join
from hermes.web.live_lists import follow_box, live_list, send_changed
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
    handlers = _SystemHandlers(context)
    return [
        Route("GET", "/system", handlers.page),
        Route("GET", "/system/state", handlers.state),
        Route("POST", "/system/doctor", handlers.doctor),
        Route("POST", "/system/items", handlers.settle),
    ]


class _SystemHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        app = self._context.profile(request).app
        state = await system_state(self._context.profile(request))
        main = join([
            h("div", h("h1", text("nav_system")), follow_box("state", "system/state"),
              class_="row spread"),
            live_list("state", state),
            h("h2", text("doctor")),
            h("button", text("doctor_check"), type="button", id="doctor", data_action="doctor"),
            h("div", h("p", text("doctor_hint"), class_="hint"), id="findings", aria_live="polite"),
            logins_section(self._context, request),
            h("p", f"Hermes {__version__} · {app.store.maintenance.driver} · {app.home.path}",
              class_="hint"),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="system", title=text("nav_system"), main=main
        )

    async def state(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        return await send_changed(self._context, request, lambda: system_state(profile))

    async def doctor(self, request: web.Request) -> web.Response:
        body, profile = await read_json(request, DoctorRequest), self._context.profile(request)
        findings = await run_doctor(profile.app.home, body.fix)
        redact = profile.app.redactor.redact
        return html_response(findings_list(self._context.base(request), findings, redact))

    async def settle(self, request: web.Request) -> web.Response:
        """Send an item that was given up again, or discard it."""
        body, app = await read_json(request, ItemRequest), self._context.profile(request).app
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
