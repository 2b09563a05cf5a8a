"""The page of a task: runs with their cost, a live log, comments, and what it depends on."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.service import TaskDetails, task_details
from hermes.kanban.tasks import find_task
from hermes.kanban.worker import Worker
from hermes.kit.terminal_text import escape_controls
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskRun, TaskStatus
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.web import entries
from hermes.web.context import ProfileWeb, Route, WebContext
from hermes.web.graphs import graph, related
from hermes.web.html import Child, Html, h, join
from hermes.web.live_lists import live_list, send_changed
from hermes.web.markdown import PARSERS, render
from hermes.web.pages.board import (
    board_name,
    board_query,
    board_service,
    edit_form,
    task_node,
)
from hermes.web.pages.chat import file_handler
from hermes.web.pages.layout import render_page
from hermes.web.texts import state_text, text
from hermes.web.times import moment

MAX_GRAPH = 40
MAX_LOG_BYTES = 20_000
MAX_MESSAGES = 20
MAX_MESSAGE_BYTES = 200_000


class _Found(Struct, frozen=True):
    details: TaskDetails
    near: Sequence[Task]
    edges: Sequence[tuple[str, str]]


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile, base = context.profile(request), context.base(request)
        service, query = board_service(profile), board_query(request)
        found = await service.read(
            board_name(request), lambda rows: _find(rows, request.match_info["task"])
        )
        board = service.boards.choose(board_name(request))
        sessions = {run.id: await _session(profile, board, run) for run in found.details.runs}
        main = join([
            *_head(base, found.details, query),
            h("details", h("summary", text("edit")),
              edit_form(found.details.task, service.profiles(), query), class_="panel", id="edit"),
            _dependencies(base, found, query),
            _runs(base, found.details.runs, sessions),
            await _log_section(profile, board, found.details),
            *_comments(found.details, query),
        ])  # fmt: skip
        title = found.details.task.title
        return await render_page(request, context, name="board", title=title, main=main)

    async def log(request: web.Request) -> web.Response:
        profile = context.profile(request)
        service = board_service(profile)

        async def current() -> Html:
            found = await service.read(
                board_name(request), lambda rows: _find(rows, request.match_info["task"])
            )
            board = service.boards.choose(board_name(request))
            return await _log(profile, board, found.details)

        return await send_changed(context, request, current)

    return [
        Route("GET", "/board/tasks/{task}", page),
        Route("GET", "/board/tasks/{task}/log", log),
        # The addresses of files in a log are relative, as in a conversation.
        Route("GET", "/board/tasks/files/{digest}", file_handler(context)),
    ]


def _find(rows: BoardRows, name: str) -> _Found:
    details = task_details(rows, find_task(rows, name))
    edges = rows.links()
    ids = related(details.task.id, edges, MAX_GRAPH)
    return _Found(details, [task for one in ids if (task := rows.task(one))], edges)


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
        h("span", text("created"), " ", _when(task.created_at)),
    ]
    return [
        h("p", h("a", text("nav_board"), href=f"{base}/board{query}")),
        h("h1", task.title, dir="auto"),
        h("p", *facts, class_="facts"),
        h("div", render(task.body), class_="md panel", dir="auto") if task.body else None,
        h("h2", text("result")) if task.result else None,
        h("div", render(task.result), class_="md panel", dir="auto") if task.result else None,
    ]


def _dependencies(base: str, found: _Found, query: str) -> Html | None:
    if len(found.near) < 2:
        return None
    current = found.details.task.id
    nodes = [task_node(base, one, query, current) for one in found.near]
    return join([
        h("h2", text("dependencies")),
        graph(nodes, found.edges, text("dependencies")),
    ])  # fmt: skip


def _runs(base: str, runs: Sequence[TaskRun], sessions: "dict[int, Session | None]") -> Html | None:
    rows: list[Child] = []
    for run in reversed(runs):
        session, cost = sessions[run.id], (run.metadata or {}).get("cost_usd")
        facts: list[Child] = [
            h("span", state_text(run.outcome or run.status), class_="tag"),
            h("span", run.profile or ""),
            _when(run.started_at),
            h("span", _took(run)) if run.ended_at else None,
            h("span", f"${cost:,.4f}") if isinstance(cost, int | float) else None,
            h("a", text("open_session"), href=f"{base}/chat/{session.id}") if session else None,
        ]
        words = run.summary or run.error or ""
        rows.append(
            h("li", h("p", *facts, class_="facts"), h("p", words, dir="auto") if words else None)
        )
    return join([h("h2", text("runs")), h("ul", *rows, class_="cards")]) if rows else None


def _took(run: TaskRun) -> str:
    seconds = (run.ended_at or run.started_at) - run.started_at
    if seconds < 120:
        return text("unit_seconds", count=str(seconds))
    return text("unit_minutes", count=f"{seconds / 60:.0f}")


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
        h("li", h("p", h("b", one.author), " ", _when(one.created_at), class_="facts"),
          h("div", render(one.body), class_="md", dir="auto"))
        for one in details.comments
    ]  # fmt: skip
    address = f"/board/tasks/{details.task.id}"
    return [
        h("h2", text("comments")),
        h("ul", *comments, class_="cards"),
        h("form", h("label", text("new_comment"), h("textarea", name="body", rows="3", dir="auto")),
          h("p", h("button", text("send"), type="submit", class_="primary")),
          data_url=f"{address}/comment{query}"),
        h("button", text("archive"), type="button", class_="danger", data_action="post",
          data_url=f"{address}/archive{query}", data_confirm=text("confirm_archive")),
    ]  # fmt: skip


def _when(seconds: int | None) -> Child:
    return moment(datetime.fromtimestamp(seconds, UTC)) if seconds else ""
