"""Answer a task that waits for the owner: continue it, accept its result, or send it back."""

from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct

from hermes.kanban import routes as board_routes
from hermes.kanban.answers import WaitingTask
from hermes.kanban.reviews import request_changes
from hermes.kanban.tasks import find_task
from hermes.kanban.undo import remember_change
from hermes.ports.board import BoardRows
from hermes.schema.board import TaskStatus
from hermes.web.context import Route, WebContext, json_response, read_json
from hermes.web.form_fields import labelled
from hermes.web.html import Child, Html, h
from hermes.web.markdown import render
from hermes.web.pages.board import board_name, board_request, board_service
from hermes.web.texts import state_text, text
from hermes.web.waiting_tasks import BoardTasks

AUTHOR = "owner"
"""The author of comments that are written on the page."""


class Answer(Struct, frozen=True, kw_only=True):
    body: str = ""


def routes(context: WebContext) -> list[Route]:
    async def answer(request: web.Request) -> web.Response:
        body = await read_json(request, Answer)
        words = body.body.strip() or text("accepted")
        comment = board_routes.CommentBody(body=words, author=AUTHOR)
        service = board_service(context.profile(request))
        await board_routes.answer(service, board_request(request, comment))
        return json_response({})

    async def send_back(request: web.Request) -> web.Response:
        body = await read_json(request, Answer)
        service, task = board_service(context.profile(request)), request.match_info["task"]

        def work(rows: BoardRows) -> None:
            before = find_task(rows, task)
            request_changes(rows, task, body.body, service.now(), author=AUTHOR)
            remember_change(rows, before, "request-changes", service.now())

        await service.write(board_name(request), work)
        return json_response({})

    return [
        Route("POST", "/board/tasks/{task}/answer", answer),
        Route("POST", "/board/tasks/{task}/return", send_back),
    ]


def waiting_cards(base: str, found: BoardTasks) -> list[Html]:
    """The tasks of a board with what they wait for, each with a form for the answer."""
    return [_card(base, found, task) for task in found.tasks]


def _card(base: str, found: BoardTasks, waiting: WaitingTask) -> Html:
    task, query = waiting.task, f"?{urlencode({'board': found.board.slug})}"
    facts: list[Child] = [
        h("span", state_text(task.status), class_="tag"),
        h("span", task.assignee, dir="auto") if task.assignee else None,
        h("span", text("on_board", name=found.board.name), dir="auto"),
    ]
    return h(
        "li",
        h("a", task.title, href=f"{base}/board/tasks/{task.id}{query}", class_="title", dir="auto"),
        h("p", *facts, class_="facts"),
        answer_form(waiting, query),
        id=f"waiting-{task.id}",
    )


def answer_form(waiting: WaitingTask, query: str) -> Html:
    """Why the task waits, and the answer."""
    task, address = waiting.task, f"/board/tasks/{waiting.task.id}"
    reviews = task.status is TaskStatus.REVIEW
    is_own = task.status is TaskStatus.READY
    label = "review_note" if reviews else "done_note" if is_own else "your_answer"
    send = "accept_result" if reviews else "mark_done" if is_own else "answer_task"
    area = h("textarea", name="body", rows="2", dir="auto", required=not (reviews or is_own))
    back = h("button", text("send_back"), type="submit", data_url=f"{address}/return{query}")
    return h(
        "form",
        h("div", render(waiting.reason), class_="md", dir="auto") if waiting.reason else None,
        labelled(text(label), area),
        h("p", h("button", text(send), type="submit", class_="primary"), back if reviews else None,
          class_="row"),
        data_url=f"{address}/answer{query}",
    )  # fmt: skip
