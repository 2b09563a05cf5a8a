"""The state of a profile for the system page: figures, gateway, workers and queues."""

from collections.abc import Callable, Mapping, Sequence

from anyio.to_thread import run_sync

from hermes.app.service.status import GatewayStatus, PlatformState, gateway_status
from hermes.ports.ownership import WorkerInfo
from hermes.ports.store import ParkedItem, QueueCounts
from hermes.web.context import ProfileWeb
from hermes.web.form_fields import post_button
from hermes.web.html import Child, Html, h, join
from hermes.web.markdown import render
from hermes.web.texts import state_text, text
from hermes.web.times import moment

MEGABYTE = 1_000_000
MAX_PARKED = 100
"""Items shown per queue that were given up."""


async def system_state(profile: ProfileWeb) -> Html:
    app, redact = profile.app, profile.app.redactor.redact
    stats = await app.store.maintenance.stats()
    status = await run_sync(gateway_status, app.home)
    queues = await app.store.queues.counts()
    parked = [
        one
        for queue in queues
        if queue.parked
        for one in await app.store.queues.parked(queue.queue, MAX_PARKED)
    ]
    figures = {
        "sessions": f"{stats.sessions:,}",
        "running_turns": str(len(profile.live.sessions)),
        "waiting_items": str(stats.waiting),
        "parked_items": str(stats.parked),
        "store_size": text("unit_megabytes", count=f"{stats.size / MEGABYTE:,.1f}"),
    }
    warnings = [h("li", render(redact(warning)), class_="entry error") for warning in app.warnings]
    return join([
        h("ul", *warnings, class_="cards") if warnings else None,
        h("div", *(
            h("div", h("span", value, class_="figure"), text(name), class_="panel")
            for name, value in figures.items()
        ), class_="grid"),
        h("h2", text("gateway")),
        _gateway(status, redact),
        h("h2", text("workers")),
        _workers(await app.store.workers.list(), app.store.workers.own),
        h("h2", text("queues")),
        _queues(queues),
        h("ul", *(_parked(one, redact) for one in parked), class_="cards") if parked else None,
    ])  # fmt: skip


def _gateway(status: GatewayStatus, redact: Callable[[str], str]) -> Html:
    if status.record is None:
        return h("p", text("gateway_stopped"), " ", h("code", "hermes gateway start"))
    since = moment(status.since) if status.since else None
    head = h("p", text("gateway_running", pid=str(status.record.pid)), " ", since)
    return h("div", head, _platforms(status.platforms, redact))


def _platforms(platforms: Mapping[str, PlatformState], redact: Callable[[str], str]) -> Html:
    rows = [
        h(
            "li",
            h("b", name),
            h("p", h("span", state_text(one.state), class_="tag bad" if one.error_code else "tag"),
              redact(one.error_message or ""), class_="facts"),
        )
        for name, one in sorted(platforms.items())
    ]  # fmt: skip
    return h("ul", *rows, class_="cards")


def _workers(workers: Sequence[WorkerInfo], own: str) -> Html:
    if not workers:
        return h("p", text("no_workers"), class_="empty")
    rows = [_worker(worker, is_own=worker.id == own) for worker in workers]
    return h("ul", *rows, class_="cards")


def _worker(worker: WorkerInfo, *, is_own: bool) -> Html:
    facts: list[Child] = [
        h("span", text("this_process"), class_="tag live") if is_own else None,
        h("span", text("since"), " ", moment(worker.started_at)),
        h("span", text("worker_sessions", count=str(worker.sessions))),
        *(h("code", claim) for claim in worker.claims),
    ]
    name = text("worker_name", pid=str(worker.pid), host=worker.host)
    return h("li", h("b", name), h("p", *facts, class_="facts"))


def _queues(queues: Sequence[QueueCounts]) -> Html:
    if not queues:
        return h("p", text("no_items"), class_="empty")
    heads = [text(name) for name in ("queue", "queue_waiting", "queue_claimed", "queue_parked")]
    rows = [
        h("tr", h("td", queue.queue), *(h("td", str(count), class_="right")
                                      for count in (queue.waiting, queue.claimed, queue.parked)))
        for queue in queues
    ]  # fmt: skip
    head = h("thead", h("tr", h("th", heads[0], scope="col"), *(
        h("th", one, scope="col", class_="right") for one in heads[1:]
    )))  # fmt: skip
    return h("div", h("table", head, h("tbody", *rows)), class_="wide", tabindex="0",
             role="region", aria_label=text("queues"))  # fmt: skip


def _parked(parked: ParkedItem, redact: Callable[[str], str]) -> Html:
    """Render an item that was given up, without its content, which may be private."""
    item, reason = parked.item, parked.reason
    body = {"queue": item.queue, "key": item.key}
    return h(
        "li",
        h("b", item.topic),
        h("p", h("span", item.queue, class_="tag bad"), h("span", redact(reason), dir="auto"),
          h("span", text("attempts", count=str(item.attempts))), class_="facts"),
        h("div",
          post_button("try_again", "/system/items", body=body),
          post_button("discard", "/system/items", body={**body, "discard": True},
                      confirm=text("confirm_discard"), danger=True), class_="actions"),
    )  # fmt: skip
