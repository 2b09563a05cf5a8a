"""The profiles page: list, create, copy, rename, delete, and choose the default one."""

from pathlib import Path

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.service.lock import running_gateway
from hermes.config.clone_credentials import profile_credentials
from hermes.config.env import profile_env
from hermes.config.home import DEFAULT_PROFILE, Home, profile_home
from hermes.config.loader import load_config
from hermes.config.profiles import (
    create_profile,
    delete_profile,
    list_profiles,
    rename_profile,
    use_profile,
)
from hermes.schema.errors import HermesError, NotFound, UsageError
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.form_fields import field, form, labelled, post_button
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.server_state import running_server
from hermes.web.texts import text

OPEN = "hermes -p %s dashboard --port 0"
"""This dashboard occupies its port, so the other one uses any free port."""
SHOW_ALL = "hermes config set gateway.multiplex_profiles true"


class ProfileForm(Struct, frozen=True, kw_only=True):
    """`clone` is the profile to copy; `title` is what the dialog to rename sends."""

    name: str = ""
    clone: str = ""
    title: str = ""


class ProfileFacts(Struct, frozen=True, kw_only=True):
    name: str
    path: str
    model: str
    active: bool
    gateway: int | None
    dashboard: str
    """The address of a dashboard that another process serves."""


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile, base = context.profile(request), context.base(request)
        found = await run_sync(_read, profile)
        rows = [_row(one, is_served=one.name in context.profiles) for one in found]
        others = any(one.name not in context.profiles for one in found)
        main = join([
            h("h1", text("tab_profiles")),
            settings_tabs(base, "profiles"),
            h("p", text("profiles_hint"), class_="hint"),
            h("p", text("profiles_not_here"), " ", h("code", SHOW_ALL), class_="hint")
            if others else None,
            h("ul", *rows, class_="cards"),
            _new([one.name for one in found]),
        ])  # fmt: skip
        return await render_page(
            request, context, name="settings", title=text("tab_profiles"), main=main
        )

    async def create(request: web.Request) -> web.Response:
        body, root = await read_json(request, ProfileForm), _root(context, request)
        message = await run_sync(_create, root, body)
        return json_response({"message": message})

    async def act(request: web.Request) -> web.Response:
        body, root = await read_json(request, ProfileForm), _root(context, request)
        name, action = request.match_info["name"], request.match_info["action"]
        if action in {"rename", "delete"} and name in context.profiles:
            raise UsageError(text("profile_served"))
        await run_sync(_act, root, name, action, body.title)
        return json_response({"message": text("js_saved")})

    return [
        Route("GET", "/settings/profiles", page),
        Route("POST", "/settings/profiles", create),
        Route("POST", "/settings/profiles/{name}/{action}", act),
    ]


def _root(context: WebContext, request: web.Request) -> Path:
    return context.profile(request).app.home.root


def _read(profile: ProfileWeb) -> list[ProfileFacts]:
    root = profile.app.home.root
    return [
        ProfileFacts(
            name=one.name,
            path=str(one.path),
            model=_model(profile, home),
            active=one.active,
            gateway=record.pid if record else None,
            dashboard=server.login_page if server else "",
        )
        for one in list_profiles(root)
        for home in [Home(root, one.path, one.name)]
        for record, server in [(running_gateway(home), running_server(home))]
    ]


def _model(profile: ProfileWeb, home: Home) -> str:
    """The chosen model; empty if there is none, or the settings cannot be read."""
    try:
        env = profile_env(home.dotenv, profile.app.env.reread({}))
        return load_config(home, env).config.main_model.default
    except HermesError:
        return ""


def _create(root: Path, body: ProfileForm) -> str:
    source = profile_home(root, body.clone) if body.clone else None
    create_profile(root, body.name.strip(), clone=source)
    if source is None:
        return text("profile_created", name=body.name)
    own = profile_credentials(source.path, everything=False)
    removed = ", ".join(own.removed)
    note = text("profile_not_copied", names=removed) if removed else ""
    return " ".join(filter(None, [text("profile_created", name=body.name), note]))


def _act(root: Path, name: str, action: str, title: str) -> None:
    match action:
        case "use":
            use_profile(root, name)
        case "rename":
            _check_stopped(root, name)
            rename_profile(root, name, title.strip())
        case "delete":
            _check_stopped(root, name)
            delete_profile(root, name)
        case _:
            raise NotFound(text("http_404"))


def _check_stopped(root: Path, name: str) -> None:
    if name == DEFAULT_PROFILE:
        return
    home = profile_home(root, name)
    if running_gateway(home) is not None or running_server(home) is not None:
        raise UsageError(text("profile_served"))


def _row(one: ProfileFacts, *, is_served: bool) -> Html:
    facts: list[Child] = [
        h("span", text("profile_active"), class_="tag live") if one.active else None,
        h("span", text("profile_served_here"), class_="tag") if is_served else None,
        h("span", text("gateway_running", pid=str(one.gateway))) if one.gateway else None,
        h("span", one.model or text("no_model")),
        h("code", one.path),
    ]
    address = f"/settings/profiles/{one.name}"
    page = f"/p/{one.name}/chat/new" if is_served else one.dashboard
    buttons: list[Child] = [
        h("a", text("open"), href=page, class_="quiet") if page else None,
        None if one.active else post_button("profile_use", f"{address}/use", body={}),
    ]
    if one.name != DEFAULT_PROFILE and not page and one.gateway is None:
        buttons += [
            h("button", text("rename"), type="button", class_="quiet", data_action="rename",
              data_url=f"{address}/rename", data_value=one.name, data_label=text("profile_name")),
            post_button("delete", f"{address}/delete", body={}, danger=True,
                        confirm=text("confirm_profile", name=one.name)),
        ]  # fmt: skip
    return h(
        "li",
        h("b", one.name),
        h("p", *facts, class_="facts"),
        None if page else h("p", text("profile_open_with"), " ", h("code", OPEN % one.name)),
        h("div", *buttons, class_="actions"),
        id=f"profile-{one.name}",
    )


def _new(names: list[str]) -> Html:
    options = [h("option", text("profile_empty"), value="")]
    options += [h("option", name, value=name) for name in names]
    sent = form(
        "/settings/profiles",
        field("profile_name", "name", required=True, autocomplete="off", maxlength="64"),
        labelled(text("profile_clone"), h("select", *options, name="clone")),
        button=text("create"),
    )
    return h("details", h("summary", text("new_profile")), sent, class_="panel")
