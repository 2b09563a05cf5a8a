"""The board page: columns of tasks that are moved by dragging or by keyboard, one or several."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import UNSET, Struct, UnsetType

from hermes.kanban import routes as board_routes
from hermes.kanban.boards import BoardInfo
from hermes.kanban.bulk import BulkBody, ChangeBody
from hermes.kanban.reviews import PERSON
from hermes.kanban.service import BoardService
from hermes.ports.board import BoardRows
from hermes.ports.feature import RouteRequest
from hermes.schema.board import Task, TaskFilter, TaskStatus
from hermes.web.context import (
    ProfileWeb,
    Route,
    WebContext,
    html_response,
    json_response,
    read_json,
)
from hermes.web.form_fields import field, form, labelled
from hermes.web.graphs import Node, graph
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import state_text, text

MAX_COLUMN = 50
"""Tasks shown in a column of the board."""
MAX_SINGLE_COLUMN = 1_000
"""Tasks shown when one column is opened by itself."""
MAX_GRAPH = 150
"""Tasks drawn in the graph of dependencies."""
COLUMNS = tuple(one for one in TaskStatus if one is not TaskStatus.ARCHIVED)
OPEN_COLUMNS = frozenset({"todo", "scheduled", "ready", "blocked", "done"})
"""Columns into which a person may move a task; workers reach the others."""
KEEP = "-"
"""Marks a field that a bulk edit leaves unchanged; an empty name means unassigned."""


class NewTask(Struct, frozen=True, kw_only=True):
    title: str
    body: str = ""
    assignee: str = ""


class TaskEdit(Struct, frozen=True, kw_only=True):
    """The fields of one task to change, as a form sends them."""

    title: str | UnsetType = UNSET
    body: str | UnsetType = UNSET
    assignee: str | UnsetType = UNSET
    priority: str = ""
    status: str = KEEP


class BulkEdit(Struct, frozen=True, kw_only=True):
    """The same change for several tasks."""

    ids: list[str]
    status: str = KEEP
    assignee: str = KEEP
    priority: str = ""
    archive: bool = False


class Comment(Struct, frozen=True, kw_only=True):
    body: str


class _Column(Struct, frozen=True):
    status: TaskStatus
    tasks: Sequence[Task]
    count: int


def routes(context: WebContext) -> list[Route]:
    handlers = _BoardHandlers(context)
    return [
        Route("GET", "/board", handlers.page),
        Route("GET", "/board/columns", handlers.columns),
        Route("GET", "/board/graph", handlers.graph),
        Route("POST", "/board/tasks", handlers.create),
        Route("POST", "/board/tasks/bulk", handlers.bulk),
        Route("POST", "/board/tasks/{task}/change", handlers.change),
        Route("POST", "/board/tasks/{task}/comment", handlers.comment),
        Route("POST", "/board/tasks/{task}/archive", handlers.archive),
    ]


def board_service(profile: ProfileWeb) -> BoardService:
    return profile.app.features.get("kanban")


def assignees(service: BoardService) -> Sequence[str]:
    """Whom a task can be assigned to on the page: profiles, and the owner."""
    return [*service.profiles(), PERSON]


def board_request(request: web.Request, body: object = None) -> RouteRequest:
    return RouteRequest(path=dict(request.match_info), query=dict(request.query), body=body)


def board_name(request: web.Request) -> str | None:
    """The board in the address; by default the current one."""
    return request.query.get("board") or None


def board_query(request: web.Request) -> str:
    """Return the query that keeps a page's links on its board."""
    board = board_name(request)
    return f"?{urlencode({'board': board})}" if board else ""


class _BoardHandlers:
    """Uses the functions of the board's API, so that both do the same."""

    def __init__(self, context: WebContext) -> None:
        self._context = context

    def _service(self, request: web.Request) -> BoardService:
        return board_service(self._context.profile(request))

    async def page(self, request: web.Request) -> web.StreamResponse:
        service, base = self._service(request), self._context.base(request)
        people, query = assignees(service), board_query(request)
        boards = await run_sync(service.boards.all)
        new_task = _task_form(people, query)
        main = join([
            h("h1", text("nav_board")),
            _picker(boards, service.boards.choose(board_name(request))),
            _filters(base, _wanted(request.query), people, query),
            h("details", h("summary", text("new_task")), new_task, class_="panel"),
            h("p", text("board_hint"),
              h("span", " ", text("board_hint_mouse"), class_="with-mouse"),
              class_="hint", id="board-hint"),
            h("task-board",
              _bulk_form(people),
              h("div", await self._columns(request), class_="board", id="columns",
                tabindex="0", role="region", aria_label=text("nav_board")),
              data_query=query or None),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="board", title=text("nav_board"), main=main, script="board"
        )

    async def columns(self, request: web.Request) -> web.Response:
        return html_response(await self._columns(request))

    async def _columns(self, request: web.Request) -> Html:
        base, wanted = self._context.base(request), _wanted(request.query)
        service = self._service(request)
        found = await service.read(board_name(request), lambda rows: _columns(rows, wanted))
        query = board_query(request)
        return join(_column(base, one, wanted, query) for one in found)

    async def graph(self, request: web.Request) -> web.StreamResponse:
        service, base = self._service(request), self._context.base(request)
        query = board_query(request)

        def work(rows: BoardRows) -> tuple[Sequence[Task], Sequence[tuple[str, str]]]:
            edges = rows.links()
            ids = {one for pair in edges for one in pair}
            return [task for task in rows.tasks(TaskFilter()) if task.id in ids], edges

        tasks, edges = await service.read(board_name(request), work)
        nodes = [task_node(base, task, query) for task in tasks[:MAX_GRAPH]]
        more = len(tasks) - len(nodes)
        main = join([
            h("p", h("a", text("nav_board"), href=f"{base}/board{query}")),
            h("h1", text("dependencies")),
            h("p", text("graph_hint"), class_="hint"),
            graph(nodes, edges, text("dependencies")) if nodes
            else h("p", text("no_links"), class_="empty"),
            h("p", text("more_tasks", count=str(more)), class_="hint") if more > 0 else None,
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="board", title=text("dependencies"), main=main
        )

    async def create(self, request: web.Request) -> web.Response:
        body = await read_json(request, NewTask)
        task = board_routes.TaskBody(
            title=body.title, body=body.body or None, assignee=body.assignee or None
        )
        await board_routes.add_task(self._service(request), board_request(request, task))
        return json_response({})

    async def bulk(self, request: web.Request) -> web.Response:
        body = await read_json(request, BulkEdit)
        change = BulkBody(
            ids=body.ids,
            status=UNSET if body.status == KEEP else body.status,
            assignee=UNSET if body.assignee == KEEP else body.assignee or None,
            priority=_priority(body.priority),
            archive=body.archive,
        )
        answer = await board_routes.bulk(self._service(request), board_request(request, change))
        results: Sequence[Mapping[str, object]] = answer["results"]  # pyright: ignore[reportAssignmentType]
        errors = [f"{result['id']}: {result['error']}" for result in results if not result["ok"]]
        done = text("bulk_done", count=str(len(results) - len(errors)))
        return json_response({"message": done, "errors": errors})

    async def change(self, request: web.Request) -> web.Response:
        body = await read_json(request, TaskEdit)
        change = ChangeBody(
            title=body.title,
            body=UNSET if body.body is UNSET else body.body or None,
            assignee=UNSET if body.assignee is UNSET else body.assignee or None,
            priority=_priority(body.priority),
            status=UNSET if body.status == KEEP else body.status,
        )
        await board_routes.change_task(self._service(request), board_request(request, change))
        return json_response({})

    async def comment(self, request: web.Request) -> web.Response:
        body = await read_json(request, Comment)
        comment = board_routes.CommentBody(body=body.body, author="owner")
        await board_routes.add_comment(self._service(request), board_request(request, comment))
        return json_response({})

    async def archive(self, request: web.Request) -> web.Response:
        # Not the API's archive route: a change of status can be undone.
        change = ChangeBody(status=TaskStatus.ARCHIVED)
        await board_routes.change_task(self._service(request), board_request(request, change))
        return json_response({})


def _priority(number: str) -> int | UnsetType:
    return int(number) if number.removeprefix("-").isdecimal() and len(number) < 10 else UNSET


class _Wanted(Struct, frozen=True):
    """The board's filter: search words, an assignee, a single column."""

    words: str = ""
    assignee: str = ""
    column: str = ""
    board: str = ""


def _wanted(query: Mapping[str, str]) -> _Wanted:
    names = ("q", "assignee", "column", "board")
    return _Wanted(*(query.get(name, "") for name in names))


def _columns(rows: BoardRows, wanted: _Wanted) -> list[_Column]:
    """Return the columns; without a filter, only visible tasks are read."""
    counts = rows.status_counts()
    limit = MAX_SINGLE_COLUMN if wanted.column else MAX_COLUMN
    found: list[_Column] = []
    for status in TaskStatus:
        if status is TaskStatus.ARCHIVED and wanted.column != status:
            continue
        if wanted.column and wanted.column != status:
            continue
        if not counts[status] and status not in OPEN_COLUMNS:
            continue  # People cannot move tasks there.
        if not wanted.words and not wanted.assignee:
            shown = rows.tasks(TaskFilter(statuses=(status,), limit=limit))
            found.append(_Column(status, shown, counts[status]))
            continue
        every = rows.tasks(TaskFilter(statuses=(status,), assignee=wanted.assignee or None))
        words = wanted.words.lower()
        fits = [one for one in every if words in f"{one.title} {one.body or ''}".lower()]
        found.append(_Column(status, fits[:limit], len(fits)))
    return found


def task_node(base: str, task: Task, query: str, current: str = "") -> Node:
    return Node(
        id=task.id,
        label=task.title,
        note=" · ".join(filter(None, (state_text(task.status), task.assignee))),
        kind=task.status,
        href=f"{base}/board/tasks/{task.id}{query}",
        is_current=task.id == current,
    )


def _picker(boards: Sequence[BoardInfo], chosen: str) -> Html | None:
    """Links to the boards, if there are several."""
    links = [
        h("a", board.name, href=f"?{urlencode({'board': board.slug})}", class_="tag", dir="auto",
          aria_current="true" if board.slug == chosen else None)
        for board in boards
        if not board.archived or board.slug == chosen
    ]  # fmt: skip
    return h("nav", *links, class_="tags", aria_label=text("boards")) if len(links) > 1 else None


def _filters(base: str, wanted: _Wanted, people: Sequence[str], query: str) -> Html:
    options = [h("option", text("everybody"), value="")]
    options += [h("option", person, selected=person == wanted.assignee) for person in people]
    columns = [h("option", text("all_columns"), value="")]
    columns += [_option(one, selected=one == wanted.column) for one in TaskStatus]
    return h(
        "form",
        h("input", type="search", name="q", value=wanted.words,
          placeholder=text("filter_tasks"), aria_label=text("filter_tasks")),
        h("select", *options, name="assignee", aria_label=text("assignee")),
        h("select", *columns, name="column", aria_label=text("column")),
        h("input", type="hidden", name="board", value=wanted.board) if wanted.board else None,
        h("a", text("dependencies"), href=f"{base}/board/graph{query}", class_="button"),
        class_="row filters",
        role="search",
        data_live="columns",
        data_url="board/columns",
    )  # fmt: skip


def _option(column: str, *, selected: bool = False) -> Html:
    return h("option", state_text(column), value=column, selected=selected)


def _bulk_form(assignable: Sequence[str]) -> Html:
    """Shown while tasks are selected."""
    keep = h("option", text("unchanged"), value=KEEP)
    columns = [_option(column) for column in COLUMNS if column in OPEN_COLUMNS]
    people = [h("option", text("nobody"), value=""), *(h("option", one) for one in assignable)]
    return h(
        "form",
        h("b", id="selected", role="status"),
        h("label", text("column"), " ", h("select", keep, *columns, name="status")),
        h("label", text("assignee"), " ", h("select", keep, *people, name="assignee")),
        h("label", text("priority"), " ",
          h("input", name="priority", type="number", placeholder=text("unchanged"))),
        h("label", h("input", type="checkbox", name="archive"), " ", text("archive"), class_="row"),
        h("button", text("apply"), type="submit", class_="primary"),
        h("button", text("deselect"), type="reset"),
        class_="row panel bulk",
        id="bulk",
        hidden=True,
    )  # fmt: skip


def _column(base: str, column: _Column, wanted: _Wanted, query: str) -> Html:
    name, more = column.status, column.count - len(column.tasks)
    filters = {"q": wanted.words, "assignee": wanted.assignee, "board": wanted.board}
    kept = {key: value for key, value in filters.items() if value}
    address = f"{base}/board?{urlencode({**kept, 'column': name})}"
    return h(
        "section",
        h(
            "h2",
            state_text(name),
            " ",
            h("span", f"{column.count:,}", class_="count"),
            id=f"column-{name}",
        ),
        *(_card(base, task, query) for task in column.tasks),
        h("a", text("more_tasks", count=f"{more:,}"), href=address) if more > 0 else None,
        class_="column" if column.count else "column empty-column",
        data_status=name,
        data_open=name in OPEN_COLUMNS,
        aria_labelledby=f"column-{name}",
    )


def _card(base: str, task: Task, query: str) -> Html:
    options = [
        _option(column, selected=column == task.status)
        for column in COLUMNS
        if column in OPEN_COLUMNS or column == task.status
    ]
    select = h("input", type="checkbox", data_select=task.id,
               aria_label=text("select_task", name=task.title))  # fmt: skip
    facts: list[Child] = [
        h("span", task.assignee, class_="tag") if task.assignee else None,
        h("span", text("priority_short", number=str(task.priority))) if task.priority else None,
        h("select", *options, aria_label=text("move_task", name=task.title))
        if task.status is not TaskStatus.ARCHIVED
        else None,
    ]
    return h(
        "article",
        h("div", select,
          h("a", task.title, href=f"{base}/board/tasks/{task.id}{query}", dir="auto"),
          class_="head"),
        h("p", *facts, class_="facts"),
        class_="task",
        draggable="true",
        id=f"task-{task.id}",
        data_task=task.id,
    )  # fmt: skip


def edit_form(task: Task, assignable: Sequence[str], query: str) -> Html:
    """Render the form with everything that a person may change."""
    named = dict.fromkeys([*assignable, *filter(None, [task.assignee])])
    people = [h("option", text("nobody"), value="")]
    people += [h("option", one, selected=one == task.assignee) for one in named]
    columns = [h("option", text("unchanged"), value=KEEP)]
    columns += [
        _option(column) for column in COLUMNS if column in OPEN_COLUMNS and column != task.status
    ]
    words = h("textarea", task.body or "", name="body", rows="5", dir="auto")
    return form(
        f"/board/tasks/{task.id}/change{query}",
        field("task_title", "title", task.title, required=True, dir="auto"),
        labelled(text("task_body"), words),
        labelled(text("assignee"), h("select", *people, name="assignee")),
        field("priority", "priority", str(task.priority), type="number"),
        labelled(text("column"), h("select", *columns, name="status")),
    )


def _task_form(people: Sequence[str], query: str) -> Html:
    options = [h("option", text("nobody"), value=""), *(h("option", person) for person in people)]
    return h(
        "form",
        h("label", text("task_title"), h("input", name="title", required=True, dir="auto")),
        h("label", text("task_body"), h("textarea", name="body", rows="3", dir="auto")),
        h("label", text("assignee"), h("select", *options, name="assignee")),
        h("p", h("button", text("save"), type="submit", class_="primary")),
        data_url=f"/board/tasks{query}",
    )
