"""The learning page: memory, skills, proposals to decide, and every change as a diff."""

from aiohttp import web

from hermes.app.learning_commands import LearningCommands
from hermes.learning.diffs import change_text, proposal_text
from hermes.learning.memory import MemoryTarget
from hermes.ports.ledger import LedgerEntry, Proposal
from hermes.schema.errors import NotFound
from hermes.web.context import ProfileWeb, Route, WebContext, json_response
from hermes.web.highlight import diff
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import text
from hermes.web.times import moment

MAX_CHANGES = 50


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile = context.profile(request)
        learning = profile.app.learning
        memories = [await learning.memory_store.read(target) for target in MemoryTarget]
        waiting = await learning.ledger.waiting()
        changes = await learning.ledger.log(limit=MAX_CHANGES)
        skills = await _commands(profile).skills()
        main = join([
            h("h1", text("nav_learning")),
            h("h2", text("proposals")) if waiting else None,
            h("ul", *map(_proposal, waiting), class_="cards"),
            h("h2", text("memory")),
            *(
                h("section", h("h3", one.target.file, " ", h("span", one.usage, class_="hint")),
                  h("ul", *(h("li", entry, dir="auto") for entry in one.entries))
                  if one.entries else h("p", text("nothing_yet"), class_="empty"), class_="panel")
                for one in memories
            ),
            h("h2", text("skills")),
            h("ul", *(h("li", h("b", one.name), h("p", one.description)) for one in skills),
              class_="cards") if skills else h("p", text("nothing_yet"), class_="empty"),
            h("h2", text("changes")),
            h("ul", *(_change(one) for one in reversed(changes)), class_="cards")
            if changes else h("p", text("nothing_yet"), class_="empty"),
        ])  # fmt: skip
        return await render_page(
            request, context, name="learning", title=text("nav_learning"), main=main
        )

    async def act(request: web.Request) -> web.Response:
        commands = _commands(context.profile(request))
        name = request.match_info["change"]
        match request.match_info["action"]:
            case "accept":
                message = " ".join(await commands.accept(name))
            case "reject":
                await commands.reject(name)
                message = text("rejected")
            case "undo":
                message = await commands.undo(name)
            case _:
                raise NotFound(text("http_404"))
        return json_response({"message": message})

    return [
        Route("GET", "/learning", page),
        Route("POST", "/learning/{change}/{action}", act),
    ]


def _commands(profile: ProfileWeb) -> LearningCommands:
    app = profile.app
    return LearningCommands(app.home, app.env, app.learning)


def _proposal(proposal: Proposal) -> Html:
    address = f"/learning/{proposal.id}"
    return h(
        "li",
        h("b", proposal.summary, dir="auto"),
        h("pre", proposal_text(proposal), tabindex="0"),
        h("div", _button("accept", address), _button("reject", address), class_="row"),
    )


def _change(entry: LedgerEntry) -> Html:
    change, undoable = entry.change, entry.state == "applied"
    facts: list[Child] = [
        h("span", change.kind, class_="tag"),
        h("span", str(change.by)),
        moment(change.at),
        h("span", entry.state.value) if not undoable else None,
    ]
    return h(
        "li",
        h("b", change.summary, dir="auto"),
        h("p", *facts, class_="facts"),
        h("details", h("summary", text("diff")),
          h("pre", diff(change_text(change)), class_="diff", tabindex="0")),
        _button("undo", f"/learning/{change.id}") if undoable else None,
    )  # fmt: skip


def _button(action: str, address: str) -> Html:
    return h(
        "button",
        text(f"learning_{action}"),
        type="button",
        data_action="post",
        data_url=f"{address}/{action}",
        class_="quiet" if action == "undo" else None,
    )
