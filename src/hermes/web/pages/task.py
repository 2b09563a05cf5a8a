"""The page of a task: runs with their cost, a live log, comments, files, and what it waits for."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.kanban import routes as board_routes
from hermes.kanban.answers import WaitingTask, waiting_task
from hermes.kanban.service import BoardService, TaskDetails, task_details
from hermes.kanban.task_routes import ReasonBody
from hermes.kanban.tasks import find_task
from hermes.kanban.undo import can_undo
from hermes.kanban.worker import Worker
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import one_line
from hermes.ports.board import BoardRows
from hermes.ports.feature import RouteRequest
from hermes.schema.board import Task, TaskEvent, TaskFilter, TaskRun, TaskStatus
from hermes.schema.errors import NotFound
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.web import entries
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.form_fields import form, labelled, post_button
from hermes.web.graphs import graph, related
from hermes.web.html import Child, Html, h, join
from hermes.web.live_lists import live_list, send_changed
from hermes.web.markdown import PARSERS, render
from hermes.web.pages.board import (
    assignees,
    board_name,
    board_query,
    board_request,
    board_service,
    edit_form,
    task_node,
)
from hermes.web.pages.chat import file_handler
from hermes.web.pages.layout import render_page
from hermes.web.pages.task_answer import answer_form
from hermes.web.pages.task_files import files_section
from hermes.web.texts import state_text, text
from hermes.web.times import duration, moment

MAX_GRAPH = 40
MAX_LOG_BYTES = 20_000
MAX_MESSAGES = 20
MAX_MESSAGE_BYTES = 200_000
MAX_EVENT = 200
EVENT_FACTS = (
    "status", "assignee", "author", "title", "priority", "reason", "error", "summary", "filename",
    "parent", "child", "reviewer", "by",
)  # fmt: skip
"""What is shown of an event."""
MAX_CHOICES = 200
"""Tasks that are offered as what this one waits for."""
ACTIONS: Mapping[str, Callable[[BoardService, RouteRequest], Awaitable[object]]] = {
    "reclaim": board_routes.reclaim,
    "undo": board_routes.undo,
    "specify": board_routes.plan_task,
    "decompose": board_routes.split_task,
}


class ParentForm(Struct, frozen=True, kw_only=True):
    """A task that this one waits for, or no longer does."""

    parent: str
    waits: bool = True


class _Found(Struct, frozen=True):
    """`near` is connected with the task, `others` could be; `waiting` if the owner has to act."""

    details: TaskDetails
    near: Sequence[Task]
    edges: Sequence[tuple[str, str]]
    others: Sequence[Task]
    waiting: WaitingTask | None
    is_undoable: bool


def routes(context: WebContext) -> list[Route]:
    handlers = _TaskHandlers(context)
    return [
        Route("GET", "/board/tasks/{task}", handlers.page),
        Route("POST", "/board/tasks/{task}/links", handlers.link),
        Route("POST", "/board/tasks/{task}/do/{action}", handlers.act),
        Route("GET", "/board/tasks/{task}/log", handlers.log),
        # The addresses of files in a log are relative, as in a conversation.
        Route("GET", "/board/tasks/files/{digest}", file_handler(context)),
    ]


class _TaskHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        profile, base = self._context.profile(request), self._context.base(request)
        service, query = board_service(profile), board_query(request)
        found = await service.read(
            board_name(request), lambda rows: _find(rows, request.match_info["task"])
        )
        details = found.details
        board = service.boards.choose(board_name(request))
        sessions = {run.id: await _session(profile, board, run) for run in details.runs}
        main = join([
            *await run_sync(_head, base, details, query, limiter=PARSERS),
            _waiting(found.waiting, query),
            _buttons(found, query),
            h("details", h("summary", text("edit")),
              edit_form(details.task, assignees(service), query), class_="panel", id="edit"),
            _dependencies(base, found, query),
            _runs(base, details.runs, sessions),
            await _log_section(profile, board, details),
            *await run_sync(_comments, details, query, limiter=PARSERS),
            files_section(base, details.task.id, details.attachments, query),
            _history(details.events),
        ])  # fmt: skip
        title = details.task.title
        return await render_page(request, self._context, name="board", title=title, main=main)

    async def log(self, request: web.Request) -> web.Response:
        profile, task = self._context.profile(request), request.match_info["task"]
        service = board_service(profile)

        async def current() -> Html:
            details = await service.read(
                board_name(request), lambda rows: task_details(rows, find_task(rows, task))
            )
            return await _log(profile, service.boards.choose(board_name(request)), details)

        return await send_changed(self._context, request, current)

    async def act(self, request: web.Request) -> web.Response:
        action = ACTIONS.get(request.match_info["action"])
        if action is None:
            raise NotFound(text("http_404"))
        service = board_service(self._context.profile(request))
        await action(service, board_request(request, ReasonBody()))
        return json_response({})

    async def link(self, request: web.Request) -> web.Response:
        body = await read_json(request, ParentForm)
        service = board_service(self._context.profile(request))
        pair = {"parent_id": body.parent, "child_id": request.match_info["task"]}
        request_body = board_request(request, board_routes.LinkBody(**pair))
        if body.waits:
            await board_routes.add_link(service, request_body)
        else:
            query = {**request_body.query, **pair}
            await board_routes.remove_link(service, structs.replace(request_body, query=query))
        return json_response({})


def _find(rows: BoardRows, name: str) -> _Found:
    details = task_details(rows, find_task(rows, name))
    edges = rows.links()
    ids = related(details.task.id, edges, MAX_GRAPH)
    related_tasks = [task for id_ in ids if (task := rows.task(id_))]
    tied = {details.task.id, *details.parents}
    others = [one for one in rows.tasks(TaskFilter(limit=MAX_CHOICES)) if one.id not in tied]
    return _Found(
        details, related_tasks, edges, others, waiting_task(rows, details.task),
        can_undo(rows, details.task.id),
    )  # fmt: skip


async def _session(profile: ProfileWeb, board: str, run: TaskRun) -> Session | None:
    """The session of a run, if this profile worked on it."""
    worker = Worker(board, run.task_id, run.id)
    archive = profile.app.store.archive_for(OWNER)
    return await archive.by_key(worker.session_key(run.profile or profile.name))


def _head(base: str, details: TaskDetails, query: str) -> list[Child]:
    task, cost = details.task, details.cost
    facts: list[Child] = [
        h(
            "span",
            state_text(task.status),
            class_="tag live" if task.status is TaskStatus.RUNNING else "tag",
        ),
        h("span", task.assignee or text("nobody")),
        h("span", text("priority_short", number=str(task.priority))) if task.priority else None,
        h("span", text("task_cost", dollars=f"{cost:,.4f}")) if cost is not None else None,
        h("span", text("created"), " ", _moment(task.created_at)),
    ]
    return [
        h("p", h("a", text("nav_board"), href=f"{base}/board{query}")),
        h("h1", task.title, dir="auto"),
        h("p", *facts, class_="facts"),
        h("div", render(task.body), class_="md panel", dir="auto") if task.body else None,
        h("h2", text("result")) if task.result else None,
        h("div", render(task.result), class_="md panel", dir="auto") if task.result else None,
    ]


def _waiting(waiting: WaitingTask | None, query: str) -> Html | None:
    if waiting is None:
        return None
    state = waiting.task.status
    title = text("waits_review" if state is TaskStatus.REVIEW else "waits_for_you")
    return h(
        "section", h("h2", title), answer_form(waiting, query), class_="question", id="waiting"
    )


def _buttons(found: _Found, query: str) -> Html:
    """What can be done with the task as it is now."""
    task, address = found.details.task, f"/board/tasks/{found.details.task.id}"
    names = {
        "reclaim": task.status is TaskStatus.RUNNING,
        "specify": task.status is TaskStatus.TRIAGE,
        "decompose": task.status is TaskStatus.TRIAGE,
        "undo": found.is_undoable and task.status is not TaskStatus.RUNNING,
    }
    buttons = [
        post_button(f"task_{name}", f"{address}/do/{name}{query}",
                    confirm=text("confirm_reclaim") if name == "reclaim" else "")
        for name, is_possible in names.items()
        if is_possible
    ]  # fmt: skip
    if task.status is not TaskStatus.ARCHIVED:
        confirm = text("confirm_archive")
        url = f"{address}/archive{query}"
        buttons.append(post_button("archive", url, confirm=confirm, danger=True))
    return h("div", *buttons, class_="actions", id="task-actions")


def _dependencies(base: str, found: _Found, query: str) -> Html:
    task = found.details.task
    nodes = [task_node(base, one, query, task.id) for one in found.near]
    address = f"/board/tasks/{task.id}/links{query}"
    titles = {one.id: one.title for one in found.near}
    waits = [
        h("li", h("span", titles.get(parent, parent), dir="auto"),
          post_button("remove", address, body={"parent": parent, "waits": False}, danger=True))
        for parent in found.details.parents
    ]  # fmt: skip
    options = [h("option", one.title, value=one.id) for one in found.others]
    select = h("select", *options, name="parent")
    adding = form(address, labelled(text("waits_for"), select), button=text("add"))
    return join([
        h("h2", text("dependencies")),
        graph(nodes, found.edges, text("dependencies")) if len(nodes) > 1 else None,
        h("details", h("summary", text("change_dependencies")),
          h("ul", *waits, class_="plain") if waits else None,
          adding if options else None, class_="panel", id="links"),
    ])  # fmt: skip


def _runs(base: str, runs: Sequence[TaskRun], sessions: "dict[int, Session | None]") -> Html | None:
    rows: list[Child] = []
    for run in reversed(runs):
        session, cost = sessions[run.id], (run.metadata or {}).get("cost_usd")
        facts: list[Child] = [
            h("span", state_text(run.outcome or run.status), class_="tag"),
            h("span", run.profile or ""),
            _moment(run.started_at),
            h("span", duration(run.ended_at - run.started_at)) if run.ended_at else None,
            h("span", f"${cost:,.4f}") if isinstance(cost, int | float) else None,
            h("a", text("open_session"), href=f"{base}/chat/{session.id}") if session else None,
        ]
        words = run.summary or run.error or ""
        rows.append(
            h("li", h("p", *facts, class_="facts"), h("p", words, dir="auto") if words else None)
        )
    return join([h("h2", text("runs")), h("ul", *rows, class_="cards")]) if rows else None


async def _log_section(profile: ProfileWeb, board: str, details: TaskDetails) -> Html | None:
    """Render what the worker is doing, reloaded while it runs; none for a task without runs."""
    if not details.runs:
        return None
    running = details.task.status is TaskStatus.RUNNING
    follow = h(
        "form",
        h("label", h("input", type="checkbox", data_follow=True, checked=running), " ",
          text("live"), class_="row"),
        h("input", type="hidden", name="board", value=board),
        data_live="task-log",
        data_url=f"board/tasks/{details.task.id}/log",
    )  # fmt: skip
    return join([
        h("div", h("h2", text("task_log")), follow, class_="row heading"),
        live_list("task-log", await _log(profile, board, details)),
    ])  # fmt: skip


async def _log(profile: ProfileWeb, board: str, details: TaskDetails) -> Html:
    """The log file of a worker process, or the last messages of a worker in the gateway."""
    run = details.runs[-1] if details.runs else None
    session = await _session(profile, board, run) if run else None
    if session is not None:
        archive = profile.app.store.archive_for(OWNER)
        tail = await archive.tail(session.id, MAX_MESSAGES, MAX_MESSAGE_BYTES)
        live = profile.live.get(session.id)
        progress = dict(live.progress) if live else None
        rest = live.entries() if live else []
        shown = await run_sync(entries.transcript, tail.rows, progress, limiter=PARSERS)
        return h("div", *shown, *rest, class_="panel log")
    folder = board_service(profile).boards.paths(board).logs
    words = await run_sync(_read_end, folder / f"{details.task.id}.log")
    return h("pre", words, class_="lines", tabindex="0") if words else _nothing()


def _nothing() -> Html:
    return h("p", text("no_log"), class_="empty")


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - MAX_LOG_BYTES, 0))
            return escape_controls(file.read(MAX_LOG_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""


def _comments(details: TaskDetails, query: str) -> list[Child]:
    comments = [
        h("li", h("p", h("b", comment.author), " ", _moment(comment.created_at), class_="facts"),
          h("div", render(comment.body), class_="md", dir="auto"))
        for comment in details.comments
    ]  # fmt: skip
    address = f"/board/tasks/{details.task.id}"
    return [
        h("h2", text("comments")),
        h("ul", *comments, class_="cards"),
        h("form", h("label", text("new_comment"), h("textarea", name="body", rows="3", dir="auto")),
          h("p", h("button", text("send"), type="submit", class_="primary")),
          data_url=f"{address}/comment{query}"),
    ]  # fmt: skip


def _history(events: Sequence[TaskEvent]) -> Html:
    rows = [
        h("li", _moment(event.created_at), " ", h("b", event.kind.replace("_", " ")), " ",
          h("span", _event_facts(event), dir="auto"))
        for event in reversed(events)
    ]  # fmt: skip
    summary = h("summary", text("task_events", count=str(len(rows))))
    return h("details", summary, h("ul", *rows, class_="plain"), class_="panel", id="events")


def _event_facts(event: TaskEvent) -> str:
    """The values of an event; of a change by hand, the new ones."""
    payload = event.payload or {}
    after = payload.get("after")
    values = msgspec.convert(after, dict[str, object]) if isinstance(after, dict) else payload
    shown = [f"{name}: {values[name]}" for name in EVENT_FACTS if values.get(name)]
    return one_line(", ".join(shown), MAX_EVENT)


def _moment(seconds: int | None) -> Child:
    return moment(datetime.fromtimestamp(seconds, UTC)) if seconds else ""
