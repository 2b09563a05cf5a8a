"""The usage page: limits, and tokens, cost and cache hits by day, model, person, job and source."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from aiohttp import web

from hermes.app.build import App
from hermes.cron.operation import CronOperation
from hermes.schema.messages import Usage
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage, SessionFilter, SessionSummary
from hermes.session.spend_guard import EVERYBODY, spent_today
from hermes.web.charts import Bar, bar_chart, meter
from hermes.web.context import Route, WebContext
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import text

DAYS = 30
MAX_SESSIONS = 2_000
MAX_FIRES = 2_000
MAX_PEOPLE = 50


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        app = context.profile(request).app
        archive, now = app.store.archive_for(OWNER), app.clock.now()
        recent = await archive.list(SessionFilter(reviews=True), MAX_SESSIONS)
        first = now - timedelta(days=DAYS)
        recent = [one for one in recent if one.last_at >= first]
        models = await archive.usage(since=first)
        jobs = await _sessions_of_jobs(app)
        main = join([
            h("h1", text("nav_usage")),
            h("p", text("usage_hint", days=str(DAYS)), class_="hint"),
            _figures(recent),
            await _limits(app, recent),
            h("section", h("h2", text("tokens_by_day")), _by_day(recent, now), class_="panel"),
            h("h2", text("by_model")),
            _model_table(models),
            h("h2", text("by_person")),
            _grouped(text("person"), recent, lambda one: one.session.principal),
            h("h2", text("by_job")),
            _grouped(text("job"), recent, lambda one: jobs.get(one.session.id, "")),
            h("h2", text("by_source")),
            _grouped(text("source"), recent, lambda one: one.session.source),
        ])  # fmt: skip
        return await render_page(request, context, name="usage", title=text("nav_usage"), main=main)

    return [Route("GET", "/usage", page)]


def _figures(recent: Sequence[SessionSummary]) -> Html:
    total = sum((one.usage for one in recent), Usage())
    cost = sum(one.cost or 0.0 for one in recent)
    shares = {
        "tokens_in": f"{total.input:,}",
        "tokens_out": f"{total.output:,}",
        "cache_share": _percent(total),
        "cost": f"${cost:,.2f}",
    }
    return h(
        "div",
        *(h("div", h("span", value, class_="figure"), text(name), class_="panel")
          for name, value in shares.items()),
        class_="grid",
    )  # fmt: skip


def _by_day(recent: Sequence[SessionSummary], now: datetime) -> Html:
    days = [(now - timedelta(days=back)).date() for back in reversed(range(DAYS))]
    found: defaultdict[object, Usage] = defaultdict(Usage)
    for one in recent:
        found[one.last_at.date()] += one.usage
    bars = [
        Bar(
            label=f"{day:%d %b}",
            value=found[day].input + found[day].output,
            part=found[day].cache_read,
            title=f"{day:%d %b}: {found[day].input + found[day].output:,}",
        )
        for day in days
    ]
    return bar_chart(bars, text("tokens_by_day"))


def _model_table(models: Sequence[ModelUsage]) -> Html:
    rows = [
        (f"{one.provider}/{one.model}", one.usage, one.cost, one.calls)
        for one in sorted(models, key=lambda one: -one.usage.input)
    ]
    return _table(text("model"), rows)


async def _limits(app: App, recent: Sequence[SessionSummary]) -> Html | None:
    """A bar for each limit of `limits` that is set."""
    limits, bars = app.config.limits, list[Html]()
    if limits.usd_per_day is not None:
        spent = await spent_today(app.store, app.clock, OWNER, EVERYBODY)
        bars.append(_meter(text("limit_day"), spent, limits.usd_per_day))
    if limits.usd_per_session is not None:
        spent = max((one.cost or 0.0 for one in recent), default=0.0)
        bars.append(_meter(text("limit_session"), spent, limits.usd_per_session))
    if limits.usd_per_principal is not None:
        people = sorted({OWNER, *(one.session.principal for one in recent)})[:MAX_PEOPLE]
        for name in people:
            spent = await spent_today(app.store, app.clock, name, name)
            label = text("limit_person", name=name)
            bars.append(_meter(label, spent, limits.usd_per_principal))
    return join([h("h2", text("limits")), h("div", *bars, class_="grid")]) if bars else None


def _meter(label: str, spent: float, limit: float) -> Html:
    return meter(spent, limit, label, text("of", used=f"${spent:,.2f}", limit=f"${limit:,.2f}"))


async def _sessions_of_jobs(app: App) -> Mapping[str, str]:
    """The names of jobs by the sessions of their runs."""
    service = cast("CronOperation", app.features.get("cron")).service
    names = {one.id: one.name or one.id for one in await service.jobs(disabled=True)}
    fires = await service.history(None, MAX_FIRES)
    return {one.session: names.get(one.job, one.job) for one in fires if one.session}


def _grouped(
    label: str, recent: Sequence[SessionSummary], group: Callable[[SessionSummary], str]
) -> Html:
    """A table of sums by the name that a session belongs to; empty names are left out."""
    sums: defaultdict[str, tuple[Usage, float, int]] = defaultdict(lambda: (Usage(), 0.0, 0))
    for one in recent:
        usage, cost, calls = sums[group(one)]
        sums[group(one)] = (usage + one.usage, cost + (one.cost or 0.0), calls + one.model_calls)
    return _table(label, [(name, *values) for name, values in sorted(sums.items()) if name])


def _table(name: str, rows: Iterable[tuple[str, Usage, float | None, int]]) -> Html:
    head = [name, text("calls"), text("tokens_in"), text("tokens_out"), text("cache_share"),
            text("cost")]  # fmt: skip
    body: list[Child] = [
        h(
            "tr",
            h("td", label),
            *(h("td", value, class_="right") for value in (
                f"{calls:,}", f"{usage.input:,}", f"{usage.output:,}", _percent(usage),
                "?" if cost is None else f"${cost:,.2f}",
            )),
        )
        for label, usage, cost, calls in rows
    ]  # fmt: skip
    if not body:
        return h("p", text("no_usage"), class_="empty")
    heads = h("thead", h("tr", *(h("th", one, scope="col") for one in head)))
    return h("div", h("table", heads, h("tbody", *body)), class_="wide", tabindex="0",
             role="region", aria_label=name)  # fmt: skip


def _percent(usage: Usage) -> str:
    return f"{100 * usage.cache_read / usage.input:.0f} %" if usage.input else "?"
