"""The approvals page: everything that waits for an answer, and approvals that were saved."""

from aiohttp import web

from hermes.ports.approval_records import SavedApproval
from hermes.web import entries
from hermes.web.context import Route, WebContext, json_response
from hermes.web.html import Child, h, join
from hermes.web.pages.layout import render_page
from hermes.web.texts import text


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile, base = context.profile(request), context.base(request)
        waiting = await profile.app.approvals.all_pending()
        cards: list[Child] = []
        for one in waiting:
            link = h("a", text("open_session"), href=f"{base}/chat/{one.question.session}")
            cards.append(h("li", entries.question_entry(one.question), link))
        saved = [_saved(one) for one in await profile.app.approvals.saved_approvals()]
        main = join([
            h("h1", text("nav_approvals")),
            h("ul", *cards, class_="cards") if cards else h("p", text("nothing_waits"),
                                                            class_="empty"),
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


def _saved(one: SavedApproval) -> Child:
    facts = [one.tool, str(one.reaching), one.folder, one.session or text("every_session")]
    return h(
        "li",
        h("pre", one.text, tabindex="0"),
        h("p", *(h("span", fact) for fact in facts if fact), class_="facts"),
        h("button", text("revoke"), type="button", class_="quiet danger", data_action="post",
          data_url=f"/approvals/{one.id}/revoke"),
    )  # fmt: skip
