"""The files of a task: listed, added, downloaded and removed."""

from collections.abc import Sequence

from aiohttp import web

from hermes.kanban.attachments import MAX_ATTACHMENT, attach_bytes
from hermes.kanban.task_routes import delete_file, download_file
from hermes.schema.board import Attachment
from hermes.web.context import Route, WebContext, download_response, json_response, read_body
from hermes.web.form_fields import post_button
from hermes.web.html import Html, h, join
from hermes.web.pages.board import board_name, board_request, board_service
from hermes.web.texts import text

_ONE = "/board/tasks/{task}/files/{attachment}"


def routes(context: WebContext) -> list[Route]:
    async def upload(request: web.Request) -> web.Response:
        data = await read_body(request, min(context.settings.max_upload, MAX_ATTACHMENT))
        service = board_service(context.profile(request))
        name = request.query.get("name", "") or "file"
        task = request.match_info["task"]
        await attach_bytes(service, board_name(request), task, name, data, author="owner")
        return json_response({"message": text("file_added", name=name)})

    async def download(request: web.Request) -> web.Response:
        service = board_service(context.profile(request))
        found = await download_file(service, board_request(request))
        return download_response(found.name, found.data)

    async def delete(request: web.Request) -> web.Response:
        service = board_service(context.profile(request))
        await delete_file(service, board_request(request))
        return json_response({})

    return [
        Route("POST", "/board/tasks/{task}/files", upload),
        Route("GET", _ONE, download),
        Route("POST", f"{_ONE}/delete", delete),
    ]


def files_section(base: str, task: str, files: Sequence[Attachment], query: str) -> Html:
    rows = [_row(base, task, file, query) for file in files]
    picker = h(
        "label",
        text("add_file"),
        h("input", type="file", data_upload=f"/board/tasks/{task}/files{query}"),
    )
    return join([
        h("h2", text("files")),
        h("ul", *rows, class_="cards") if rows else None,
        picker,
    ])  # fmt: skip


def _row(base: str, task: str, file: Attachment, query: str) -> Html:
    address = f"/board/tasks/{task}/files/{file.id}"
    confirm = text("confirm_file", name=file.filename)
    size = text("unit_kilobytes", count=f"{max(file.size / 1000, 0.1):,.1f}")
    return h(
        "li",
        h("a", file.filename, href=f"{base}{address}{query}", download=file.filename, dir="auto"),
        h("p", h("span", size), h("span", file.uploaded_by or ""), class_="facts"),
        post_button("delete", f"{address}/delete{query}", confirm=confirm, danger=True),
    )
