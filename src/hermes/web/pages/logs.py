"""The logs page: the last records, filtered by level, words and file, and live."""

from aiohttp import web
from anyio.to_thread import run_sync

from hermes.app.log_files import LogFiles, RecordFilter, record_level
from hermes.config.home import Home
from hermes.kit.terminal_text import escape_controls
from hermes.web.context import Route, WebContext, html_response
from hermes.web.html import Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import text

LOGS = ("agent", "errors", "gateway")
LEVELS = ("", "info", "warning", "error")
MAX_RECORDS = 300


def routes(context: WebContext) -> list[Route]:
    async def records(request: web.Request) -> Html:
        home = context.profile(request).app.home
        log, level = request.query.get("log", ""), request.query.get("level", "")
        wanted = RecordFilter(
            level=level if level in LEVELS else "",
            names=(words,) if (words := request.query.get("q", "").strip()) else (),
        )
        found = await run_sync(_last, home, log if log in LOGS else LOGS[0], wanted)
        lines = [h("span", line, class_=level or None) for level, line in found]
        return h("pre", *lines, class_="lines", tabindex="0") if lines else _nothing()

    async def page(request: web.Request) -> web.StreamResponse:
        main = join([
            h("h1", text("nav_logs")),
            _filters(request),
            h("div", await records(request), id="list"),
        ])  # fmt: skip
        return await render_page(
            request, context, name="logs", title=text("nav_logs"), main=main, data_live_list="true"
        )

    async def fragment(request: web.Request) -> web.Response:
        return html_response(await records(request))

    return [Route("GET", "/logs", page), Route("GET", "/logs/list", fragment)]


def _nothing() -> Html:
    return h("p", text("no_hits"), class_="empty")


def _filters(request: web.Request) -> Html:
    def options(names: tuple[str, ...], chosen: str) -> list[Html]:
        return [
            h("option", one or text("all_levels"), value=one, selected=one == chosen)
            for one in names
        ]

    return h(
        "form",
        h("input", type="search", name="q", value=request.query.get("q", ""),
          placeholder=text("filter_logs"), aria_label=text("filter_logs")),
        h("select", *options(LOGS, request.query.get("log", "")), name="log",
          aria_label=text("log_file")),
        h("select", *options(LEVELS, request.query.get("level", "")), name="level",
          aria_label=text("level")),
        h("label", h("input", type="checkbox", data_follow="3000"), " ", text("live"),
          class_="row"),
        class_="row filters",
        data_live="list",
        data_url="logs/list",
    )  # fmt: skip


def _last(home: Home, log: str, wanted: RecordFilter) -> list[tuple[str, str]]:
    """The last records, newest first, with their levels."""
    files = LogFiles(home.logs / f"{log}.log", each_line=log == "gateway")
    try:
        start = files.find_last(MAX_RECORDS, wanted)
        found = filter(wanted, files.records(start)) if start is not None else ()
        shown = [
            (record_level(one), escape_controls(one.decode("utf-8", "replace"))) for one in found
        ]
    finally:
        files.close()
    return shown[-MAX_RECORDS:][::-1]
