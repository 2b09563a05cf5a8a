"""The approvals page: everything that waits for an answer, and saved approvals."""

from contextlib import suppress

from aiohttp import web

from hermes.ports.approval_records import SavedApproval
from hermes.schema.errors import NotFound
from hermes.schema.questions import Question
from hermes.schema.scope import OWNER
from hermes.web import entries
from hermes.web.context import ProfileWeb, Route, WebContext, json_response
from hermes.web.decisions import read_decisions
from hermes.web.html import Child, h, join
from hermes.web.pages.layout import render_page
from hermes.web.pages.learning import proposal_cards
from hermes.web.pages.people import pairing_requests
from hermes.web.pages.task_answer import waiting_cards
from hermes.web.texts import text
from hermes.web.times import moment


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile, base = context.profile(request), context.base(request)
        waiting = await profile.app.approvals.all_pending()
        cards = [await _waiting(profile, base, one.question) for one in waiting]
        decisions = await read_decisions(profile)
        proposals = await proposal_cards(profile, decisions.proposals)
        tasks = [card for board in decisions.boards for card in waiting_cards(base, board)]
        people = decisions.people
        platforms = sorted({person.platform for person in people})
        nothing = not cards and not decisions.count
        saved = [_saved(approval) for approval in await profile.app.approvals.saved_approvals()]
        main = join([
            h("h1", text("nav_approvals")),
            h("p", text("nothing_waits"), class_="empty") if nothing else None,
            h("ul", *cards, class_="cards waiting") if cards else None,
            h("h2", text("proposals")) if proposals else None,
            h("ul", *proposals, class_="cards") if proposals else None,
            h("h2", text("waiting_tasks")) if tasks else None,
            h("ul", *tasks, class_="cards") if tasks else None,
            h("h2", text("pairing")) if people else None,
            pairing_requests(people, platforms) if people else None,
            h("h2", text("saved_approvals")),
            h("ul", *saved, class_="cards") if saved else h("p", text("nothing_saved"),
                                                            class_="empty"),
        ])  # fmt: skip
        return await render_page(
            request, context, name="approvals", title=text("nav_approvals"), main=main
        )

    async def revoke(request: web.Request) -> web.Response:
        await context.profile(request).app.approvals.revoke(request.match_info["approval"])
        return json_response({"message": text("revoked")})

    return [
        Route("GET", "/approvals", page),
        Route("POST", "/approvals/{approval}/revoke", revoke),
    ]


async def _waiting(profile: ProfileWeb, base: str, question: Question) -> Child:
    """A question, where it was asked, and until when it can be answered."""
    title = ""
    with suppress(NotFound):
        title = (await profile.app.store.archive_for(OWNER).get(question.session)).title
    return h(
        "li",
        entries.question_entry(question),
        h("p",
          h("a", text("open_session"), href=f"{base}/chat/{question.session}"),
          h("span", title, dir="auto") if title else None,
          h("span", text("answer_by"), " ", moment(question.until)),
          class_="facts"),
    )  # fmt: skip


def _saved(one: SavedApproval) -> Child:
    facts = [one.tool, str(one.reaching), one.folder, one.session or text("every_session")]
    return h(
        "li",
        h("pre", one.text, tabindex="0"),
        h("p", *(h("span", fact) for fact in facts if fact), class_="facts"),
        h("button", text("revoke"), type="button", class_="quiet danger", data_action="post",
          data_url=f"/approvals/{one.id}/revoke"),
    )  # fmt: skip
