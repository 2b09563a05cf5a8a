"""The jobs page: next fires, history, run now, pause, create, edit and delete."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.cron.operation import CronOperation
from hermes.kit.terminal_text import escape_controls
from hermes.ports.jobs import Fire, Job
from hermes.schema.errors import NotFound
from hermes.web.charts import Tick, Track, timeline
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.html import Child, Html, h, join
from hermes.web.job_form import JobForm, job_change, job_form
from hermes.web.markdown import PARSERS, render
from hermes.web.pages.layout import render_page
from hermes.web.texts import state_text, text
from hermes.web.times import duration, moment

MAX_FIRES = 30
MAX_UPCOMING = 3
MAX_TIMELINE = 300
"""Fires of a job on the timeline."""
MAX_TRACKS = 30
HORIZONS = (24, 7 * 24, 28 * 24)
"""Hours that the timeline may show."""
TICKS = 4


def routes(context: WebContext) -> list[Route]:
    handlers = _JobHandlers(context)
    return [
        Route("GET", "/jobs", handlers.page),
        Route("POST", "/jobs", handlers.create),
        Route("POST", "/jobs/{job}/change", handlers.change),
        Route("POST", "/jobs/{job}/{action}", handlers.act),
    ]


def _cron(profile: ProfileWeb) -> CronOperation:
    return profile.app.features.get("cron")


class _JobHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        cron, base = _cron(self._context.profile(request)), self._context.base(request)
        jobs = await cron.service.jobs(disabled=True)
        chosen = request.query.get("job", "")
        fires = await cron.service.history(chosen or None, MAX_FIRES)
        now = self._context.clock.now()
        # The next runs of many jobs and the output of past ones take time.
        main = await run_sync(
            lambda: _content(base, cron, jobs, _History(fires, chosen), now), limiter=PARSERS
        )
        return await render_page(
            request, self._context, name="jobs", title=text("nav_jobs"), main=main
        )

    async def create(self, request: web.Request) -> web.Response:
        body = await read_json(request, JobForm)
        await _cron(self._context.profile(request)).service.create(job_change(body, None))
        return json_response({})

    async def change(self, request: web.Request) -> web.Response:
        body = await read_json(request, JobForm)
        service = _cron(self._context.profile(request)).service
        job = await service.find(request.match_info["job"])
        await service.update(job.id, job_change(body, job))
        return json_response({})

    async def act(self, request: web.Request) -> web.Response:
        service = _cron(self._context.profile(request)).service
        actions: dict[str, Callable[[str], Awaitable[object]]] = {
            "run": service.trigger,
            "pause": service.pause,
            "resume": service.resume,
            "delete": service.remove,
        }
        action = actions.get(request.match_info["action"])
        if action is None:
            raise NotFound(text("http_404"))
        await action(request.match_info["job"])
        is_manual = request.match_info["action"] == "run"
        return json_response({"message": text("run_requested")} if is_manual else {})


class _History(Struct, frozen=True):
    """The last fires, of the chosen job if there is one."""

    fires: Sequence[Fire]
    chosen: str


def _content(
    base: str, cron: CronOperation, jobs: Sequence[Job], history: _History, now: datetime
) -> Html:
    names, chosen = {job.id: job.name or job.id for job in jobs}, history.chosen
    warning = cron.not_serving()
    rows = [_job(base, job, cron) for job in jobs]
    return join([
        h("h1", text("nav_jobs")),
        h("p", warning, class_="entry error", role="alert") if warning and jobs else None,
        _timeline(jobs, cron, now),
        h("ul", *rows, class_="cards") if rows else h("p", text("no_jobs"), class_="empty"),
        h("details", h("summary", text("new_job")), job_form("/jobs"), class_="panel"),
        h("h2", text("history_of", name=names.get(chosen, chosen)) if chosen
          else text("history"), id="history", dir="auto"),
        h("p", h("a", text("all_jobs"), href=f"{base}/jobs#history")) if chosen else None,
        _history(base, history.fires, names),
    ])  # fmt: skip


def _timeline(jobs: Sequence[Job], cron: CronOperation, now: datetime) -> Html | None:
    """Draw the next fires of all jobs, far enough to show one per job, at most a month."""
    fires = {
        one.id: cron.service.upcoming(one, MAX_TIMELINE) for one in jobs if one.enabled
    }  # fmt: skip
    known = [job for job in jobs if fires.get(job.id)][:MAX_TRACKS]
    if not known:
        return None
    latest = max(fires[job.id][0] for job in known)
    hours = next(
        (horizon for horizon in HORIZONS if latest <= now + timedelta(hours=horizon)), HORIZONS[-1]
    )
    tracks = [
        Track(
            label=job.name or job.id,
            marks=[
                (share, f"{job.name or job.id}: {at:%a %d %b %H:%M %Z}")
                for at in fires[job.id]
                if 0 <= (share := (at - now) / timedelta(hours=hours)) <= 1
            ],
        )
        for job in known
    ]
    distances = [hours * part / TICKS for part in range(TICKS + 1)]
    ticks = [Tick(_ahead(distance), now + timedelta(hours=distance)) for distance in distances]
    drawn = timeline(tracks, ticks, text("next_fires"))
    return h("section", h("h2", text("next_fires")), drawn, class_="panel")


def _ahead(hours: float) -> str:
    if not hours:
        return text("now")
    if hours < 48:
        return text("in_hours", count=f"{hours:.0f}")
    return text("in_days", count=f"{hours / 24:.0f}")


def _job(base: str, job: Job, cron: CronOperation) -> Html:
    upcoming = cron.service.upcoming(job, MAX_UPCOMING) if job.enabled else []
    state = h("span", state_text(job.state), class_="tag" if job.enabled else "tag bad")
    facts: list[Child] = [state, h("span", job.schedule_display)]
    if upcoming:
        times = [join([" · " if index else " ", moment(at)]) for index, at in enumerate(upcoming)]
        facts.append(h("span", text("next"), *times))
    facts += [
        h("span", text("delivers_to", target=job.deliver)) if job.deliver != "local" else None,
        h("span", job.model) if job.model else None,
    ]
    if job.last_error:
        facts.append(h("span", job.last_error, class_="danger"))
    address = f"/jobs/{job.id}"
    toggle = "pause" if job.enabled else "resume"
    actions = [("run", ""), (toggle, ""), ("delete", text("confirm_job", name=job.name or job.id))]
    buttons = [
        h("button", text(f"job_{name}"), type="button", data_action="post",
          class_="quiet danger" if name == "delete" else "quiet", data_url=f"{address}/{name}",
          data_confirm=confirm or None)
        for name, confirm in actions
    ]  # fmt: skip
    return h(
        "li",
        h("b", job.name or job.id, dir="auto"),
        h("p", *facts, class_="facts"),
        h("p", job.prompt or job.script or "", dir="auto"),
        h(
            "div",
            *buttons,
            h("a", text("history"), href=f"{base}/jobs?job={job.id}#history", class_="quiet"),
            h(
                "details",
                h("summary", text("edit"), class_="quiet"),
                job_form(f"{address}/change", job),
            ),
            class_="actions",
        ),
        id=f"job-{job.id}",
    )


def _history(base: str, fires: Sequence[Fire], names: dict[str, str]) -> Html:
    if not fires:
        return h("p", text("no_fires"), class_="empty")
    rows = [
        h(
            "tr",
            h("td", names.get(fire.job, fire.job), dir="auto"),
            h("td", moment(fire.at)),
            h("td", h("span", state_text(fire.state), class_=_tag(fire)), " ", fire.reason,
              _output(fire)),
            h("td", _took(fire)),
            h("td", h("a", text("open_session"), href=f"{base}/chat/{fire.session}")
              if fire.session else ""),
        )
        for fire in fires
    ]  # fmt: skip
    names_of_columns = ("job", "fire_at", "fire_state", "fire_took", "session")
    head = h("thead", h("tr", *(h("th", text(column), scope="col") for column in names_of_columns)))
    return h("div", h("table", head, h("tbody", *rows)), class_="wide", tabindex="0", role="region",
             aria_label=text("history"))  # fmt: skip


def _output(fire: Fire) -> Html | None:
    if not fire.output:
        return None
    # The answer of a model, or what a script has printed.
    shown = (
        h("div", render(fire.output), class_="md", dir="auto")
        if fire.session
        else h("pre", escape_controls(fire.output), tabindex="0")
    )
    where = h("p", h("code", fire.file), class_="hint") if fire.file else None
    return h("details", h("summary", text("output")), shown, where,
             id=f"output-{fire.job}-{fire.at.timestamp():.0f}")  # fmt: skip


def _took(fire: Fire) -> str:
    if fire.started_at is None or fire.ended_at is None:
        return ""
    return duration((fire.ended_at - fire.started_at).total_seconds())


def _tag(fire: Fire) -> str:
    return "tag bad" if fire.state.value in {"failed", "unknown", "missed"} else "tag"
