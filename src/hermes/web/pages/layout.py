"""The frame of every page: navigation, recent sessions, command palette."""

from collections.abc import Sequence

import msgspec
from aiohttp import web
from anyio.to_thread import run_sync

from hermes import __version__
from hermes.config.profiles import list_profiles
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchHit, SessionFilter, SessionSummary
from hermes.web.context import LOGIN, ProfileWeb, WebContext, html_response
from hermes.web.decisions import read_decisions
from hermes.web.html import Attribute, Child, Html, document, h
from hermes.web.static_files import asset_version
from hermes.web.texts import script_texts, text

MAX_RECENT = 12
NAVIGATION: Sequence[str] = (
    "chat", "sessions", "approvals", "jobs", "board", "logs", "usage", "learning", "settings",
    "system",
)  # fmt: skip
"""The pages in the menu, in order."""
PATHS = {"chat": "/chat/new"}
SETTINGS_PAGES: Sequence[str] = ("channels", "people", "profiles", "mcp", "hooks")
"""The pages below the settings, each at `/settings/NAME`."""


def page_path(name: str) -> str:
    return PATHS.get(name, f"/{name}")


def _settings_links(base: str) -> list[Html]:
    """Return the command palette's entries besides the menu."""
    return [
        h("a", text(f"tab_{page}"), href=f"{base}/settings/{page}", tabindex="-1")
        for page in SETTINGS_PAGES
    ]


def settings_tabs(base: str, current: str = "") -> Html:
    """Links to the settings and the pages below them."""
    links = [
        h(
            "a",
            text(f"tab_{name}") if name else text("nav_settings"),
            href=f"{base}/settings" + (f"/{name}" if name else ""),
            class_="tag",
            aria_current="page" if name == current else None,
        )
        for name in ("", *SETTINGS_PAGES)
    ]
    return h("nav", *links, class_="tags", aria_label=text("settings_pages"))


def icon(name: str) -> Html:
    use = Html(f'<use href="/static/icons.svg#{name}"></use>')
    return h("svg", use, class_="icon", aria_hidden="true", viewBox="0 0 24 24")


def title_of(found: SessionSummary | SearchHit) -> str:
    return found.session.title or found.preview or text("untitled")


async def render_page(
    request: web.Request,
    context: WebContext,
    *,
    name: str,
    title: str,
    main: Child,
    script: str = "page",
    position: str = "",
    **attributes: Attribute,
) -> web.Response:
    """A whole page; `name` is its place in the menu, `position` that of its content in the feed."""
    profile, base = context.profile(request), context.base(request)
    position = position or profile.feed.position
    archive = profile.app.store.archive_for(OWNER)
    recent = await archive.list(SessionFilter(), MAX_RECENT)
    current = str(attributes.get("data_session") or "")
    stored = await run_sync(list_profiles, profile.app.home.root)
    picker = _profile_picker(context, profile, [one.name for one in stored])
    questions = await profile.app.approvals.all_pending()
    menu = _menu(base, name, len(questions) + (await read_decisions(profile)).count)
    body = h(
        "body",
        h("a", text("skip"), href="#main", class_="skip"),
        _sidebar(base, menu, _recent(base, recent, current), _footer(picker)),
        h("main", main, id="main", class_=f"page-{name}", tabindex="-1"),
        h("div", id="toasts", role="status", aria_live="polite"),
        h("command-palette", h("div", *_settings_links(base), hidden=True)),
        data_base=base,
        data_page=name,
        data_version=asset_version(),
        data_position=position,
        data_images=" ".join(request[LOGIN].image_hosts) or None,
        **attributes,
    )
    theme = context.settings.theme if context.settings.theme in {"light", "dark"} else None
    response = html_response(document(title, body, *_head(script), data_theme=theme))
    # Preload the style while the page is still being received.
    response.headers["Link"] = "</static/style.css>; rel=preload; as=style"
    return response


def _head(script: str) -> list[Child]:
    return [
        h("link", rel="manifest", href="/static/manifest.webmanifest"),
        h("script", type="module", src="/static/app.js"),
        h("script", type="module", src="/static/palette.js"),
        h("script", type="module", src=f"/static/{script}.js") if script else None,
        # A data block: it is not run, so it needs no exception in the policy.
        h("script", _script_data(), type="application/json", id="texts"),
    ]


def _script_data() -> Html:
    """Encode data for a script element; `<` is escaped, so that no text can close it."""
    return Html(msgspec.json.encode(script_texts()).decode().replace("<", "\\u003c"))


def _menu(base: str, name: str, pending: int) -> Html:
    badge = h("span", str(pending) if pending else "", class_="badge", id="pending")
    links = [
        h(
            "a",
            icon(one),
            h("span", text(f"nav_{one}")),
            badge if one == "approvals" else None,
            href=base + page_path(one),
            aria_current="page" if one == name else None,
        )
        for one in NAVIGATION
    ]
    return h("nav", *links, aria_label=text("pages"))


def _sidebar(base: str, menu: Html, recent: Html, footer: Html) -> Html:
    return h(
        "header",
        h(
            "div",
            h("button", icon("menu"), type="button", class_="icon-button menu",
              data_action="menu", aria_label=text("menu"), aria_expanded="false"),
            h("a", h("img", src="/static/icon.svg", alt="", width="24", height="24"), "Hermes",
              href=f"{base}/chat/new", class_="brand"),
            h("button", icon("search"), type="button", class_="icon-button", data_action="palette",
              aria_label=text("palette"), title=text("palette_title")),
            class_="top",
        ),
        h(
            "div",
            h("a", icon("plus"), text("new_chat"), href=f"{base}/chat/new", class_="new"),
            menu,
            h("nav", h("h2", text("recent")), recent, aria_label=text("recent"), class_="recent"),
            footer,
            class_="drawer",
        ),
        class_="sidebar",
    )  # fmt: skip


def _recent(base: str, recent: Sequence[SessionSummary], current: str) -> Html:
    rows = [
        h(
            "a",
            title_of(one),
            href=f"{base}/chat/{one.session.id}",
            dir="auto",
            data_recent=one.session.id,
            aria_current="true" if one.session.id == current else None,
        )
        for one in recent
    ]
    return h("div", *rows) if rows else h("p", text("no_sessions"), class_="hint")


def _profile_picker(context: WebContext, profile: ProfileWeb, stored: Sequence[str]) -> Html | None:
    """Render the profile picker; profiles not served here lead to a page with help."""
    served = sorted(context.profiles)
    others = [one for one in stored if one not in context.profiles]
    if len(served) + len(others) < 2:
        return None
    options = [
        h("option", one, value=f"/p/{one}/chat/new", selected=one == profile.name) for one in served
    ]
    options += [
        h("option", text("profile_not_here", name=one), value=f"/settings/profiles#profile-{one}")
        for one in others
    ]
    return h("select", *options, aria_label=text("profile"), data_action="profile",
             autocomplete="off")  # fmt: skip


def _footer(picker: Child) -> Html:
    return h(
        "div",
        picker,
        h("span", __version__, class_="hint"),
        h("button", icon("bell"), type="button", class_="icon-button", data_action="notify",
          aria_label=text("notify"), title=text("notify"), aria_pressed="false", hidden=True),
        h("button", icon("theme"), type="button", class_="icon-button", data_action="theme",
          aria_label=text("theme")),
        h("button", icon("logout"), type="button", class_="icon-button", data_action="logout",
          aria_label=text("logout")),
        class_="foot",
    )  # fmt: skip
