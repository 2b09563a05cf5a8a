"""Lists that a page follows by long polling: a request is answered when the list changes."""

import hashlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from hermes.web.context import LOGIN, WebContext, html_response
from hermes.web.html import Html, h
from hermes.web.texts import text

HOLD = 40.0
"""Seconds after which a request is answered without a change."""
LOOK_INTERVAL = 2.0


def follow_box(target: str, url: str) -> Html:
    """Render a checked box that keeps the element `target` up to date from `url`."""
    box = h("input", type="checkbox", data_follow=True, checked=True)
    return h("form", h("label", box, " ", text("live"), class_="row"), data_live=target,
             data_url=url)  # fmt: skip


def live_list(target: str, content: Html) -> Html:
    """Render the element that a box updates; its tag identifies the content."""
    return h("div", content, id=target, data_tag=_tag(content))


def _tag(content: Html) -> str:
    return f'"{hashlib.sha256(content.encode(errors="replace")).hexdigest()[:16]}"'


async def send_changed(
    context: WebContext, request: web.Request, render: Callable[[], Awaitable[Html]]
) -> web.Response:
    """Answer with the list once it differs from `If-None-Match`; with 304 after a timeout."""
    known = request.headers.get("If-None-Match")
    end = context.clock.monotonic() + HOLD
    with context.streaming(request[LOGIN]):
        while True:
            page = await render()
            tag = _tag(page)
            if tag != known:
                response = html_response(page)
                response.headers["ETag"] = tag
                return response
            if context.clock.monotonic() >= end:
                return web.Response(status=304, headers={"ETag": tag})
            await context.clock.sleep(LOOK_INTERVAL)
    raise web.HTTPUnauthorized  # the login was revoked meanwhile
