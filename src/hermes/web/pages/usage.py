"""The usage page: limits, and tokens, cost and cache hits by day, model, person, job and source."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import cast

from aiohttp import web
from msgspec import Struct

from hermes.app.build import App
from hermes.cron.operation import CronOperation
from hermes.schema.messages import Usage
from hermes.schema.scope import OWNER
from hermes.schema.sessions import DailyUsage, SessionFilter
from hermes.session.spend_guard import EVERYBODY, spent_today
from hermes.web.charts import Bar, bar_chart, meter, ranking
from hermes.web.context import Route, WebContext
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import text

PERIODS = (7, 30, 90, 365)
DAYS = 30
MAX_ROWS = 50_000
MAX_SESSIONS = 2_000
MAX_PEOPLE = 50
MAX_BARS = 12


class Total(Struct, kw_only=True):
    """The sum of some rows; `cost` includes rows with a known price."""

    usage: Usage = Usage()
    cost: float = 0.0
    calls: int = 0
    unpriced: bool = False

    def add(self, row: DailyUsage) -> None:
        self.usage += row.usage
        self.cost += row.cost or 0.0
        self.calls += row.calls
        self.unpriced = self.unpriced or row.cost is None

    @property
    def tokens(self) -> int:
        return self.usage.input + self.usage.output

    @property
    def price(self) -> str:
        if self.unpriced and not self.cost:
            return "?"
        return f"${self.cost:,.2f}" + (" + ?" if self.unpriced else "")


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        app = context.profile(request).app
        days_text = request.query.get("days", "")
        days = int(days_text) if days_text in map(str, PERIODS) else DAYS
        today = app.clock.now().date()
        first = today - timedelta(days=days - 1)
        rows = await app.store.archive_for(OWNER).usage_by_day(first, MAX_ROWS)
        jobs = await _sessions_of_jobs(app, first)
        groups: dict[str, Callable[[DailyUsage], str]] = {
            "model": lambda one: f"{one.provider}/{one.model}",
            "person": lambda one: one.principal,
            "job": lambda one: jobs.get(one.session, ""),
            "source": lambda one: one.source,
        }
        charts = [
            _by_day(rows, [first + timedelta(days=one) for one in range(days)]),
            *(_grouped(name, rows, group) for name, group in groups.items()),
        ]
        main = join([
            h("h1", text("nav_usage")),
            _periods(days),
            _figures(rows),
            await _limits(app, rows),
            *(charts if rows else [h("p", text("no_usage"), class_="empty")]),
        ])  # fmt: skip
        return await render_page(request, context, name="usage", title=text("nav_usage"), main=main)

    return [Route("GET", "/usage", page)]


def _periods(chosen: int) -> Html:
    links = [
        h("a", text("last_days", days=str(period)), href=f"?days={period}", class_="tag",
          aria_current="true" if period == chosen else None)
        for period in PERIODS
    ]  # fmt: skip
    return h("nav", *links, class_="tags", aria_label=text("period"))


def _totals(rows: Sequence[DailyUsage], group: Callable[[DailyUsage], str]) -> dict[str, Total]:
    """Return sums by name, largest first, without unnamed rows."""
    found: defaultdict[str, Total] = defaultdict(Total)
    for row in rows:
        if name := group(row):
            found[name].add(row)
    return dict(sorted(found.items(), key=lambda one: -one[1].tokens))


def _figures(rows: Sequence[DailyUsage]) -> Html:
    total = _totals(rows, lambda _: "all").get("all", Total())
    shares = {
        "tokens_in": f"{total.usage.input:,}",
        "tokens_out": f"{total.usage.output:,}",
        "cache_share": _percent(total.usage),
        "cost": total.price,
    }
    return h(
        "div",
        *(h("div", h("span", value, class_="figure"), text(name), class_="panel")
          for name, value in shares.items()),
        class_="grid",
    )  # fmt: skip


def _by_day(rows: Sequence[DailyUsage], days: Sequence[date]) -> Html:
    found = _totals(rows, lambda one: one.day.isoformat())
    totals = [(f"{day:%d %b}", found.get(day.isoformat(), Total())) for day in days]
    tokens = [
        Bar(label=label, value=one.tokens, part=one.usage.cache_read,
            title=text("day_tokens", day=label, tokens=f"{one.tokens:,}",
                       share=_percent(one.usage)))
        for label, one in totals
    ]  # fmt: skip
    costs = [Bar(label=day, value=one.cost, title=f"{day}: {one.price}") for day, one in totals]
    parts = [h("h2", text("tokens_by_day")), bar_chart(tokens, text("tokens_by_day"), _amount)]
    if any(token.part for token in tokens):
        swatch = h("span", class_="swatch", aria_hidden="true")
        parts.append(h("p", swatch, text("cached_hint"), class_="hint"))
    if any(cost.value for cost in costs):
        chart = bar_chart(costs, text("cost_by_day"), _price)
        parts += [h("h2", text("cost_by_day")), chart]
    return h("section", *parts, class_="panel")


def _grouped(name: str, rows: Sequence[DailyUsage], group: Callable[[DailyUsage], str]) -> Html:
    """Render a chart and a table of sums by group."""
    title, totals = text(f"by_{name}"), _totals(rows, group)
    if not totals:
        return join([h("h2", title), h("p", text("no_usage"), class_="empty")])
    bars = [
        Bar(label=label, value=one.tokens, part=one.usage.cache_read,
            title=f"{one.tokens:,} · {one.price}")
        for label, one in [*totals.items()][:MAX_BARS]
    ]  # fmt: skip
    chart = h("section", ranking(bars, title), class_="panel")
    return join([h("h2", title), chart, _table(text(name), totals)])


def _amount(tokens: float) -> str:
    """A short number: 1.5k, 20M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:g}{unit}"
    return f"{tokens:g}"


def _price(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 0.01 or not cost else f"${cost:.1g}"


async def _limits(app: App, rows: Sequence[DailyUsage]) -> Html | None:
    """A bar for each limit of `limits` that is set."""
    limits, bars = app.config.limits, list[Html]()
    if limits.usd_per_day is not None:
        spent = await spent_today(app.store, app.clock, OWNER, EVERYBODY)
        bars.append(_meter(text("limit_day"), spent, limits.usd_per_day))
    if limits.usd_per_session is not None:
        recent = await app.store.archive_for(OWNER).list(SessionFilter(reviews=True), MAX_SESSIONS)
        spent = max((one.cost or 0.0 for one in recent), default=0.0)
        bars.append(_meter(text("limit_session"), spent, limits.usd_per_session))
    if limits.usd_per_principal is not None:
        people = sorted({OWNER, *(row.principal for row in rows)})[:MAX_PEOPLE]
        for name in people:
            spent = await spent_today(app.store, app.clock, name, name)
            label = text("limit_person", name=name)
            bars.append(_meter(label, spent, limits.usd_per_principal))
    return join([h("h2", text("limits")), h("div", *bars, class_="grid")]) if bars else None


def _meter(label: str, spent: float, limit: float) -> Html:
    return meter(spent, limit, label, text("of", used=f"${spent:,.2f}", limit=f"${limit:,.2f}"))


async def _sessions_of_jobs(app: App, first: date) -> Mapping[str, str]:
    """Return job names by the sessions of their runs, including runs that began the day before."""
    service = cast("CronOperation", app.features.get("cron")).service
    names = {one.id: one.name or one.id for one in await service.jobs(disabled=True)}
    since = datetime.combine(first - timedelta(days=1), time.min, UTC)
    found = await app.store.jobs.sessions(since)
    return {session: names.get(job, job) for session, job in found.items()}


def _table(name: str, totals: Mapping[str, Total]) -> Html:
    head = [name, text("calls"), text("tokens_in"), text("tokens_out"), text("cache_share"),
            text("cost")]  # fmt: skip
    body: list[Child] = [
        h(
            "tr",
            h("td", label),
            *(h("td", value, class_="right") for value in (
                f"{one.calls:,}", f"{one.usage.input:,}", f"{one.usage.output:,}",
                _percent(one.usage), one.price,
            )),
        )
        for label, one in totals.items()
    ]  # fmt: skip
    heads = h("thead", h("tr", h("th", head[0], scope="col"), *(
        h("th", one, scope="col", class_="right") for one in head[1:]
    )))  # fmt: skip
    return h("div", h("table", heads, h("tbody", *body)), class_="wide", tabindex="0",
             role="region", aria_label=name)  # fmt: skip


def _percent(usage: Usage) -> str:
    return f"{100 * usage.cache_read / usage.input:.0f} %" if usage.input else "?"
