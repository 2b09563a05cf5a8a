"""The logs page: the last records, filtered by level, words and file, and live."""

from collections.abc import Iterable
from datetime import timedelta

from aiohttp import web
from anyio.to_thread import run_sync

from hermes.app.build import App
from hermes.app.log_files import LogFiles, RecordFilter, record_level
from hermes.kit.terminal_text import escape_controls
from hermes.web.context import Route, WebContext
from hermes.web.html import Html, h, join
from hermes.web.live_lists import live_list, send_changed
from hermes.web.pages.layout import render_page
from hermes.web.texts import text

LOGS = ("agent", "errors", "gateway", "mcp-stderr", "codex")
OUTPUTS = frozenset({"gateway", "mcp-stderr", "codex"})
"""The output of programs: each line is a record."""
PERIODS = {"": None, "1": timedelta(hours=1), "24": timedelta(days=1), "168": timedelta(days=7)}
LEVELS = ("", "info", "warning", "error")
MAX_RECORDS = 300


def routes(context: WebContext) -> list[Route]:
    async def records(request: web.Request) -> Html:
        app = context.profile(request).app
        period = PERIODS.get(request.query.get("hours", ""))
        log, level = request.query.get("log", ""), request.query.get("level", "")
        wanted = RecordFilter(
            level=level if level in LEVELS else "",
            names=(words,) if (words := request.query.get("q", "").strip()) else (),
            since=app.clock.now() - period if period else None,
        )
        found = await run_sync(_last, app, log if log in LOGS else LOGS[0], wanted)
        lines = [h("span", line, class_=level or None) for level, line in found]
        return h("pre", *lines, class_="lines", tabindex="0") if lines else _nothing()

    async def page(request: web.Request) -> web.StreamResponse:
        main = join([
            h("h1", text("nav_logs")),
            _filters(request),
            live_list("list", await records(request)),
        ])  # fmt: skip
        return await render_page(
            request, context, name="logs", title=text("nav_logs"), main=main, data_live_list="true"
        )

    async def fragment(request: web.Request) -> web.Response:
        return await send_changed(context, request, lambda: records(request))

    return [Route("GET", "/logs", page), Route("GET", "/logs/list", fragment)]


def _nothing() -> Html:
    return h("p", text("no_hits"), class_="empty")


def _filters(request: web.Request) -> Html:
    def options(names: Iterable[str], name: str, labels: str = "") -> list[Html]:
        chosen = request.query.get(name, "")
        return [
            h("option", text(f"{labels}{one or 'all'}") if labels else one, value=one,
              selected=one == chosen)
            for one in names
        ]  # fmt: skip

    return h(
        "form",
        h("input", type="search", name="q", value=request.query.get("q", ""),
          placeholder=text("filter_logs"), aria_label=text("filter_logs")),
        h("select", *options(LOGS, "log"), name="log", aria_label=text("log_file")),
        h("select", *options(LEVELS, "level", "level_"), name="level", aria_label=text("level")),
        h("select", *options(PERIODS, "hours", "hours_"), name="hours", aria_label=text("period")),
        h("label", h("input", type="checkbox", data_follow=True), " ", text("live"),
          class_="row"),
        class_="row filters",
        data_live="list",
        data_url="logs/list",
    )  # fmt: skip


def _last(app: App, log: str, wanted: RecordFilter) -> list[tuple[str, str]]:
    """The last records, newest first, with their levels."""
    files = LogFiles(app.home.logs / f"{log}.log", each_line=log in OUTPUTS)
    try:
        start = files.find_last(MAX_RECORDS, wanted)
        found = filter(wanted, files.records(start)) if start is not None else ()
        shown = [
            (
                record_level(one),
                escape_controls(app.redactor.redact(one.decode("utf-8", "replace"))),
            )
            for one in found
        ]
    finally:
        files.close()
    return shown[-MAX_RECORDS:][::-1]
