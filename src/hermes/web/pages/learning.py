"""The learning page: memory to edit, skills, proposals to decide, and every change as a diff."""

from collections.abc import Sequence
from functools import partial

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.learning import Learning
from hermes.app.learning_commands import LearningCommands
from hermes.commands.services import SkillSummary
from hermes.learning.diffs import change_text, edit_diff, origin_text, proposal_text
from hermes.learning.memory import (
    InvalidOperation,
    MemoryAction,
    MemoryFile,
    MemoryFull,
    MemoryOperation,
    MemoryRequest,
    MemoryTarget,
)
from hermes.learning.preview import editable_text, proposed_edit, with_text
from hermes.learning.skills.document import InvalidSkill
from hermes.ports.ledger import Author, FileEdit, LedgerEntry, Proposal
from hermes.schema.errors import NotFound, UsageError
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.form_fields import post_button, text_form
from hermes.web.highlight import diff
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import state_text, text
from hermes.web.times import moment

MAX_CHANGES = 50
ALL_CHANGES = 1000


class MemoryForm(Struct, frozen=True, kw_only=True):
    """`old` is the entry to replace or remove; without one, `content` is added."""

    target: MemoryTarget
    old: str = ""
    content: str = ""


class ProposalForm(Struct, frozen=True):
    """`content` replaces the text of a proposal that is approved."""

    content: str | None = None


def routes(context: WebContext) -> list[Route]:
    handlers = _LearningHandlers(context)
    return [
        Route("GET", "/learning", handlers.page),
        Route("POST", "/learning/memory", handlers.change_memory),
        Route("POST", "/learning/{change}/{action}", handlers.act),
    ]


class _LearningHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        profile = self._context.profile(request)
        learning = profile.app.learning
        memories = [await learning.memory_store.read(target) for target in MemoryTarget]
        waiting = await proposal_cards(profile, await learning.ledger.waiting())
        limit = ALL_CHANGES if "all" in request.query else MAX_CHANGES
        changes = await learning.ledger.log(limit=limit)
        more = h("a", text("older_changes"), href="?all=1", class_="button")
        main = join([
            h("h1", text("nav_learning")),
            h("h2", text("proposals")) if waiting else None,
            h("ul", *waiting, class_="cards") if waiting else None,
            h("h2", text("memory")),
            *map(_memory, memories),
            h("h2", text("skills")),
            _skills(self._context.base(request), await _commands(profile).skills()),
            h("h2", text("changes")),
            change_list(changes),
            more if len(changes) == MAX_CHANGES else None,
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="learning", title=text("nav_learning"), main=main
        )

    async def change_memory(self, request: web.Request) -> web.Response:
        body = await read_json(request, MemoryForm)
        content = body.content.replace("\r\n", "\n")
        action: MemoryAction = "add"
        if body.old:
            action = "replace" if content.strip() else "remove"
        operation = MemoryOperation(action=action, content=content, old_text=body.old)
        wanted = MemoryRequest(target=body.target, operations=(operation,), by=Author.PERSON)
        try:
            await self._context.profile(request).app.learning.memory_store.change(wanted)
        except (InvalidOperation, MemoryFull) as error:
            raise UsageError(str(error)) from error
        return json_response({})

    async def act(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        commands, name = _commands(profile), request.match_info["change"]
        match request.match_info["action"]:
            case "accept":
                body = await read_json(request, ProposalForm)
                message = await _accept(profile.app.learning, name, body.content)
            case "reject":
                await commands.reject(name)
                message = text("rejected")
            case "undo":
                message = await commands.undo(name)
            case _:
                raise NotFound(text("http_404"))
        return json_response({"message": message})


async def _accept(learning: Learning, name: str, content: str | None) -> str:
    """Apply a proposal, with the text as the person changed it."""
    proposal = await learning.ledger.proposal(name)
    if content is not None and content != editable_text(proposal):
        proposal = with_text(proposal, content.replace("\r\n", "\n"))
    try:
        await learning.accept(proposal)
    except (InvalidOperation, MemoryFull, InvalidSkill) as error:
        raise UsageError(str(error)) from error
    return text("approved")


def _commands(profile: ProfileWeb) -> LearningCommands:
    app = profile.app
    return LearningCommands(app.home, app.env, app.learning)


async def proposal_cards(profile: ProfileWeb, proposals: Sequence[Proposal]) -> list[Html]:
    """Each proposal as a diff, with buttons that decide it."""
    return [
        _proposal(proposal, await run_sync(_edit_of, profile, proposal)) for proposal in proposals
    ]


def _edit_of(profile: ProfileWeb, proposal: Proposal) -> FileEdit | None:
    learning = profile.app.learning
    home = profile.app.home.path
    return proposed_edit(learning.memory_store, learning.skill_catalog, home, proposal)


def _memory(file: MemoryFile) -> Html:
    """One file with a form for each entry, and one for a new entry."""
    target = file.target.value
    form = partial(text_form, "/learning/memory", target=target)
    entries = [
        h(
            "li",
            h("p", entry, dir="auto", class_="words"),
            h("div",
              h("details", h("summary", text("edit")), form(entry, old=entry)),
              post_button("delete", "/learning/memory", body={"target": target, "old": entry},
                          confirm=text("confirm_entry"), danger=True),
              class_="row"),
            id=f"{target}-{index}",
        )
        for index, entry in enumerate(file.entries)
    ]  # fmt: skip
    return h(
        "section",
        h("h3", file.target.file, " ", h("span", file.usage, class_="hint")),
        h("ul", *entries, class_="plain") if entries else h("p", text("nothing_yet")),
        h("details", h("summary", text("new_entry")), form(""), id=f"{target}-new"),
        class_="panel",
    )


def _skills(base: str, skills: Sequence[SkillSummary]) -> Html:
    if not skills:
        return h("p", text("nothing_yet"), class_="empty")
    cards = [
        h(
            "li",
            h("a", skill.name, href=f"{base}/learning/skills/{skill.name}", class_="title"),
            h("p", h("span", skill.category, class_="tag"),
              *(h("span", mark, class_="tag") for mark in skill.marks), class_="facts"),
            h("p", skill.description, dir="auto"),
        )
        for skill in skills
    ]  # fmt: skip
    return h("ul", *cards, class_="cards compact")


def _proposal(proposal: Proposal, edit: FileEdit | None) -> Html:
    address = f"/learning/{proposal.id}"
    words = editable_text(proposal)
    shown = diff("\n".join(edit_diff(edit))) if edit else proposal_text(proposal)
    origin = origin_text(proposal.origin)
    editing: Child = None
    if words is not None:
        form = text_form(f"{address}/accept", words, button=text("learning_accept_edited"))
        editing = h("details", h("summary", text("learning_edit")), form)
    return h(
        "li",
        h("b", f"{proposal.kind}: {proposal.summary}", dir="auto"),
        h("p", h("span", str(proposal.by), class_="tag"), moment(proposal.at),
          h("span", proposal.why, dir="auto") if proposal.why else None,
          h("span", origin) if origin else None, class_="facts"),
        h("pre", shown, class_="diff", tabindex="0"),
        h("div", post_button("learning_accept", f"{address}/accept", primary=True),
          post_button("learning_reject", f"{address}/reject"), class_="row"),
        editing,
        id=proposal.id,
    )  # fmt: skip


def change_list(changes: Sequence[LedgerEntry]) -> Html:
    """Newest first, each as a diff; what is in effect can be undone."""
    if not changes:
        return h("p", text("nothing_yet"), class_="empty")
    return h("ul", *map(_change, reversed(changes)), class_="cards")


def _change(entry: LedgerEntry) -> Html:
    change, undoable = entry.change, entry.state == "applied"
    facts: list[Child] = [
        h("span", change.kind, class_="tag"),
        h("span", str(change.by)),
        moment(change.at),
        h("span", state_text(entry.state)) if not undoable else None,
    ]
    return h(
        "li",
        h("b", change.summary, dir="auto"),
        h("p", *facts, class_="facts"),
        h("details", h("summary", text("diff")),
          h("pre", diff(change_text(change)), class_="diff", tabindex="0")),
        post_button("learning_undo", f"/learning/{change.id}/undo") if undoable else None,
        id=change.id,
    )  # fmt: skip
