"""The page of one skill: its text to read and edit, its files, and its changes as diffs."""

from functools import partial
from pathlib import Path

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.learning import Learning
from hermes.learning.skills.catalog import Skill
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.editor import SKILL_KIND, Authorship
from hermes.ports.ledger import Author
from hermes.schema.errors import NotFound, UsageError
from hermes.web.context import Route, WebContext, json_response, read_json
from hermes.web.form_fields import post_button, text_form
from hermes.web.html import Child, Html, h, join
from hermes.web.markdown import render
from hermes.web.pages.layout import render_page
from hermes.web.pages.learning import ALL_CHANGES, change_list
from hermes.web.texts import text

MAX_FILES = 200
BY_PERSON = Authorship(author=Author.PERSON)


class SkillForm(Struct, frozen=True):
    content: str = ""


def routes(context: WebContext) -> list[Route]:
    handlers = _SkillHandlers(context)
    return [
        Route("GET", "/learning/skills/{skill}", handlers.page),
        Route("POST", "/learning/skills/{skill}/{action}", handlers.act),
    ]


class _SkillHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        learning = self._context.profile(request).app.learning
        skill = await _find(learning, request)
        source = await run_sync(partial(skill.file.read_text, "utf-8", "replace"))
        body = (await run_sync(learning.skill_catalog.read, skill)).body
        record = await run_sync(learning.usage.get, skill.name)
        log = await learning.ledger.log(SKILL_KIND, ALL_CHANGES)
        main = join([
            h("p", h("a", text("nav_learning"), href=f"{self._context.base(request)}/learning")),
            h("h1", skill.name),
            h("p", skill.head.description, dir="auto"),
            h("p",
              *(h("span", label, class_="tag") for label in record.labels(builtin=skill.builtin)),
              h("code", skill.folder), class_="facts"),
            _actions(skill, source, pinned=record.pinned),
            h("section", await run_sync(render, body), class_="panel md", dir="auto"),
            await run_sync(_files, Path(skill.folder)),
            h("h2", text("changes")),
            change_list([one for one in log if one.change.name == skill.name]),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="learning", title=skill.name, main=main
        )

    async def act(self, request: web.Request) -> web.Response:
        learning = self._context.profile(request).app.learning
        skill = await _find(learning, request)
        body = await read_json(request, SkillForm)
        action = request.match_info["action"]
        try:
            await _act(learning, skill, action, body.content.replace("\r\n", "\n"))
        except InvalidSkill as error:
            raise UsageError(str(error), hint=error.hint) from error
        if action == "archive":
            return json_response({"location": f"{self._context.base(request)}/learning"})
        return json_response({})


async def _act(learning: Learning, skill: Skill, action: str, content: str) -> None:
    match action:
        case "edit":
            await learning.skill_editor.rewrite(skill.name, content, BY_PERSON)
        case "archive":
            await learning.skill_editor.archive(skill.name, BY_PERSON)
        case "pin" | "unpin":
            await run_sync(partial(learning.usage.pin, skill.name, pinned=action == "pin"))
        case _:
            raise NotFound(text("http_404"))


async def _find(learning: Learning, request: web.Request) -> Skill:
    skill = await run_sync(learning.skill_catalog.find, request.match_info["skill"])
    if skill is None:
        raise NotFound(text("no_skill"))
    return skill


def _actions(skill: Skill, source: str, *, pinned: bool) -> Html:
    if not skill.own:
        return h("p", text("skill_read_only"), class_="hint")
    address = f"/learning/skills/{skill.name}"
    return join([
        h("details", h("summary", text("edit")), text_form(f"{address}/edit", source),
          class_="panel"),
        h("div", post_button("unpin" if pinned else "pin",
                             f"{address}/{'unpin' if pinned else 'pin'}"),
          post_button("archive", f"{address}/archive", danger=True,
                      confirm=text("confirm_skill", name=skill.name)), class_="row"),
    ])  # fmt: skip


def _files(folder: Path) -> Child:
    """The other files of the skill; their content stays on the server."""
    files = sorted(one for one in folder.rglob("*") if one.is_file() and one.name != "SKILL.md")
    if not files:
        return None
    names = [h("li", h("code", str(file.relative_to(folder)))) for file in files[:MAX_FILES]]
    return join([h("h2", text("skill_files")), h("ul", *names)])
