"""The sessions page: list, search as you type, filter, rename, export, delete, lineage."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta

from aiohttp import web
from msgspec import Struct, structs

from hermes.app.session_documents import PAGE_END, page_start, render_html, render_markdown
from hermes.app.session_export import encode, load_session
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import (
    SearchFilter,
    SearchHit,
    Session,
    SessionChange,
    SessionFilter,
    SessionSummary,
)
from hermes.web.branches import family_list, message_count, read_family
from hermes.web.context import (
    ProfileWeb,
    Route,
    WebContext,
    html_response,
    json_response,
    read_json,
)
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page, title_of
from hermes.web.texts import text
from hermes.web.times import moment

PAGE_SIZE = 50
MAX_HITS = 60
MAX_TITLE = 200
_FORMATS = {"md": "text/markdown", "html": "text/html", "json": "application/json"}


class Rename(Struct, frozen=True):
    title: str


def routes(context: WebContext) -> list[Route]:
    handlers = _SessionHandlers(context)
    return [
        Route("GET", "/sessions", handlers.page),
        Route("GET", "/sessions/list", handlers.fragment),
        Route("GET", "/sessions/{session}/export.{format}", handlers.export),
        Route("POST", "/sessions/{session}/rename", handlers.rename),
        Route("POST", "/sessions/{session}/delete", handlers.delete),
    ]


class _SessionHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        profile = self._context.profile(request)
        stats = await profile.app.store.maintenance.stats()
        sources = [source.name for source in stats.sources]
        main = join([
            h("h1", text("nav_sessions")),
            _search_form(request, sources),
            h("div", await self._list(request, profile), id="list", aria_live="polite"),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="sessions", title=text("nav_sessions"), main=main
        )

    async def fragment(self, request: web.Request) -> web.Response:
        return html_response(await self._list(request, self._context.profile(request)))

    async def _list(self, request: web.Request, profile: ProfileWeb) -> Html:
        query = request.query.get("q", "").strip()
        base = self._context.base(request)
        archive = profile.app.store.archive_for(OWNER)
        session_filter = _filter(request)
        if name := request.query.get("family", ""):
            family = await read_family(archive, await archive.get(name))
            return h("section", family_list(base, family, name), class_="panel")
        if query:
            filters = SearchFilter(
                source=session_filter.source,
                started_after=session_filter.started_after,
                started_before=session_filter.started_before,
            )
            result = await archive.search_by_meaning(query, MAX_HITS, where=filters)
            return _hits(base, result.hits, result.note)
        offset = _number(request.query.get("offset", "0"))
        found = await archive.list(session_filter, PAGE_SIZE + 1, offset)
        parents = await self._parents(profile, found)
        running = profile.live.sessions
        rows = [_row(base, one, parents, is_running=one.session.id in running) for one in found]
        more: Child = None
        if len(found) > PAGE_SIZE:
            address = request.rel_url.update_query(offset=offset + PAGE_SIZE).query_string
            more = h("a", text("older"), href=f"{base}/sessions?{address}", class_="button")
        if not found:
            return h("p", text("no_sessions"), class_="empty")
        return join([h("ul", *rows[:PAGE_SIZE], class_="cards"), more])

    async def _parents(
        self, profile: ProfileWeb, found: Sequence[SessionSummary]
    ) -> Mapping[str, Session]:
        """The sessions that these were branched from, as far as they exist."""
        known = {one.session.id: one.session for one in found}
        archive = profile.app.store.archive_for(OWNER)
        for name in {one.session.parent for one in found if one.session.parent} - set(known):
            try:
                known[name] = await archive.get(name)
            except NotFound:
                continue
        return known

    async def rename(self, request: web.Request) -> web.Response:
        body = await read_json(request, Rename)
        title = body.title.strip()
        if not title or len(title) > MAX_TITLE or not title.isprintable():
            raise UsageError(text("bad_title"))
        profile = self._context.profile(request)
        conversation = await profile.conversations.conversation(request.match_info["session"])
        if title != conversation.session.title:
            await conversation.change(SessionChange(title=title))
        profile.feed.publish("activity", {"session": conversation.session.id, "title": title})
        return json_response({"title": title})

    async def delete(self, request: web.Request) -> web.Response:
        app = self._context.profile(request).app
        session = await app.store.archive_for(OWNER).get(request.match_info["session"])
        async with app.runner.holding(session.id) as lease:
            await app.store.archive_for(OWNER).delete([session.id], lease.fence)
        return json_response({})

    async def export(self, request: web.Request) -> web.Response:
        kind = request.match_info["format"]
        if kind not in _FORMATS:
            raise NotFound(text("bad_request"))
        app = self._context.profile(request).app
        copy = await load_session(app.store, request.match_info["session"])
        files: dict[str, bytes] = {}
        for digest in copy.digests:
            try:
                files[digest] = await app.blobs.read(digest)
            except NotFound:
                continue
        copy = structs.replace(copy, files=files)
        match kind:
            case "md":
                data = _lines(render_markdown(copy))
            case "html":
                data = _lines([*page_start([copy.session]), *render_html(copy), PAGE_END])
            case _:
                data = encode(copy)
        headers = {"Content-Disposition": f'attachment; filename="{copy.session.id}.{kind}"'}
        return web.Response(body=data, content_type=_FORMATS[kind], headers=headers)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _filter(request: web.Request) -> SessionFilter:
    """The source and the days in which a session began."""
    last = _day(request.query.get("to", ""))
    return SessionFilter(
        source=request.query.get("source") or None,
        started_after=_day(request.query.get("from", "")),
        started_before=last + timedelta(days=1) if last else None,
    )


def _day(date_text: str) -> datetime | None:
    """Return the start of a day in this machine's time zone."""
    try:
        return datetime.combine(date.fromisoformat(date_text), time.min).astimezone()
    except (ValueError, OverflowError):
        return None


def _search_form(request: web.Request, sources: Sequence[str]) -> Html:
    chosen = request.query.get("source", "")
    options = [h("option", text("all_sources"), value="")]
    options += [h("option", source, value=source, selected=source == chosen) for source in sources]
    return h(
        "form",
        h("input", type="search", name="q", value=request.query.get("q", ""),
          placeholder=text("search_sessions"), aria_label=text("search_sessions")),
        h("select", *options, name="source", aria_label=text("source")),
        *(h("label", text(f"begun_{name}"),
            h("input", type="date", name=name, value=request.query.get(name, "")), class_="row")
          for name in ("from", "to")),
        class_="row filters",
        role="search",
        data_live="list",
        data_url="sessions/list",
    )  # fmt: skip


def _row(
    base: str, summary: SessionSummary, parents: Mapping[str, Session], *, is_running: bool
) -> Html:
    session = summary.session
    facts: list[Child] = [
        h("span", session.source, class_="tag"),
        moment(summary.last_at),
        message_count(summary.messages),
    ]
    if summary.cost:
        facts.append(f"${summary.cost:.2f}")
    if is_running:
        facts.append(h("span", text("running"), class_="tag live"))
    parent = parents.get(session.parent or "")
    if parent is not None:
        link = h("a", parent.title or parent.id, href=f"{base}/chat/{parent.id}")
        facts.append(h("span", text("branched_from"), " ", link))
    return h(
        "li",
        h("a", title_of(summary), href=f"{base}/chat/{session.id}", class_="title", dir="auto"),
        h("p", *_with_dots(facts), class_="facts"),
        _actions(base, session, title_of(summary)),
        data_row=session.id,
    )


def _with_dots(facts: Sequence[Child]) -> list[Child]:
    """Facts with a space between them; the style puts a dot there."""
    return [fact if isinstance(fact, Html) else h("span", fact) for fact in facts]


def _actions(base: str, session: Session, title: str) -> Html:
    address = f"/sessions/{session.id}"
    exports = [
        h(
            "a",
            kind.upper(),
            href=f"{base}{address}/export.{kind}",
            class_="quiet",
            download=True,
            aria_label=text("export_as", name=title, kind=kind.upper()),
        )
        for kind in _FORMATS
    ]
    return h(
        "div",
        h("button", text("rename"), type="button", class_="quiet", data_action="rename",
          data_url=f"{address}/rename", data_value=session.title),
        h("a", text("lineage"), href=f"{base}/sessions?family={session.id}", class_="quiet"),
        h("span", text("export"), class_="hint"),
        *exports,
        h("button", text("delete"), type="button", class_="quiet danger", data_action="delete",
          data_url=f"{address}/delete", data_confirm=text("confirm_delete", name=title)),
        class_="actions",
    )  # fmt: skip


def _hits(base: str, hits: Sequence[SearchHit], note: str) -> Html:
    if not hits:
        return h("p", text("no_hits"), class_="empty")
    rows = [
        h(
            "li",
            h("a", title_of(hit), href=f"{base}/chat/{hit.session.id}?at={hit.seq}",
              class_="title", dir="auto"),
            h("p", _marked(hit.snippet), dir="auto", class_="snippet"),
            h("p", h("span", hit.session.source, class_="tag"), moment(hit.at), class_="facts"),
            _actions(base, hit.session, title_of(hit)),
        )
        for hit in hits
    ]  # fmt: skip
    return join([h("p", note, class_="hint") if note else None, h("ul", *rows, class_="cards")])


def _marked(snippet: str) -> Html:
    """The snippet with its matches marked."""
    first, *rest = snippet.split(">>>")
    parts: list[Child] = [first]
    for one in rest:
        match, _, after = one.partition("<<<")
        parts += [h("mark", match), after]
    return join(parts)


def _number(digits: str) -> int:
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0
