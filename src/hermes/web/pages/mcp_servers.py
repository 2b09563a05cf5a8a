"""The MCP page: servers with their live state; add, try, switch off and remove them."""

import shlex
from collections.abc import Mapping, Sequence

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.mcp_settings import McpSettings, ServerRow
from hermes.mcp.servers import ConnectionTest
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.tools import Effect
from hermes.web.context import (
    ProfileWeb,
    Route,
    WebContext,
    html_response,
    json_response,
    read_json,
)
from hermes.web.form_fields import field, form, labelled, post_button
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.texts import text


class ServerForm(Struct, frozen=True, kw_only=True):
    """A server with a command to start, or an address; `secrets` are its variables or headers."""

    name: str = ""
    command: str = ""
    url: str = ""
    secrets: str = ""
    sandbox: bool = False


def routes(context: WebContext) -> list[Route]:
    handlers = _McpHandlers(context)
    return [
        Route("GET", "/settings/mcp", handlers.page),
        Route("POST", "/settings/mcp", handlers.add),
        Route("POST", "/settings/mcp/reload", handlers.reload),
        Route("POST", "/settings/mcp/{name}/test", handlers.test),
        Route("POST", "/settings/mcp/{name}/{action}", handlers.act),
    ]


class _McpHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        profile = self._context.profile(request)
        settings = await _settings(profile)
        rows = await run_sync(settings.rows)
        states = dict(profile.app.servers.states())
        redact = profile.app.redactor.redact
        cards = [_row(row, redact(states.get(row.name, ""))) for row in rows]
        main = join([
            h("h1", text("tab_mcp")),
            settings_tabs(self._context.base(request), "mcp"),
            h("p", text("mcp_hint"), class_="hint"),
            h("ul", *cards, class_="cards") if cards else h("p", text("no_servers"),
                                                            class_="empty"),
            h("p", post_button("mcp_reload", "/settings/mcp/reload", body={},
                               confirm=text("confirm_reload"))) if cards else None,
            _new(),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="settings", title=text("tab_mcp"), main=main
        )

    async def add(self, request: web.Request) -> web.Response:
        body = await read_json(request, ServerForm)
        settings = await _settings(self._context.profile(request))
        name = body.name.strip()
        if name in settings.servers:
            raise UsageError(text("server_exists", name=name))
        edited = await run_sync(settings.add, name, _fields(body))
        notes = [text("server_saved"), *(str(warning) for warning in edited.warnings)]
        return json_response({"message": " ".join(notes)})

    async def act(self, request: web.Request) -> web.Response:
        settings = await _settings(self._context.profile(request))
        name = request.match_info["name"]
        match request.match_info["action"]:
            case "remove":
                await run_sync(settings.remove, name)
            case "enable" | "disable" as action:
                await run_sync(lambda: settings.enable(name, enabled=action == "enable"))
            case _:
                raise NotFound(text("http_404"))
        return json_response({"message": text("server_saved")})

    async def test(self, request: web.Request) -> web.Response:
        settings = await _settings(self._context.profile(request))
        return html_response(_result(await settings.test(request.match_info["name"])))

    async def reload(self, request: web.Request) -> web.Response:
        message = await self._context.profile(request).app.servers.reload()
        return json_response({"message": message})


async def _settings(profile: ProfileWeb) -> McpSettings:
    stored, home = await profile.stored_settings(), profile.app.home
    return McpSettings(home, stored.env, stored.loaded, str(home.path))


def _fields(body: ServerForm) -> Mapping[str, object]:
    """The settings of the server, without what is empty. Raises `UsageError`."""
    try:
        command, *words = shlex.split(body.command) or [""]
    except ValueError as error:
        raise UsageError(text("bad_command", reason=str(error))) from error
    fields: dict[str, object] = {
        "url": body.url.strip(),
        "command": command,
        "args": words,
        "headers" if body.url.strip() else "env": _pairs(body.secrets),
        "sandbox": body.sandbox,
    }
    return {name: value for name, value in fields.items() if value}


def _pairs(text_value: str) -> dict[str, str]:
    pairs = [line.partition("=") for line in text_value.splitlines() if line.strip()]
    if any(not sign or not name.strip() for name, sign, _ in pairs):
        raise UsageError(text("bad_pairs"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _row(server: ServerRow, live: str) -> Html:
    address, is_off = f"/settings/mcp/{server.name}", server.state == "off"
    kind = {"on": "live", "wrong": "bad"}.get(server.state, "")
    facts: list[Child] = [
        h("span", text(f"server_{server.state}"), class_=f"tag {kind}".strip()),
        h("span", live) if live else None,
        h("code", server.where) if server.where else None,
    ]
    toggle = "enable" if is_off else "disable"
    return h(
        "li",
        h("b", server.name),
        h("p", *facts, class_="facts"),
        h("p", server.trouble, class_="danger") if server.trouble else None,
        h("div",
          h("button", text("test"), type="button", class_="quiet", data_action="show",
            data_url=f"{address}/test", aria_controls=f"test-{server.name}"),
          post_button(toggle, f"{address}/{toggle}", body={}),
          post_button("delete", f"{address}/remove", body={}, danger=True,
                      confirm=text("confirm_server", name=server.name)), class_="actions"),
        h("div", id=f"test-{server.name}", aria_live="polite"),
    )  # fmt: skip


def _result(result: ConnectionTest) -> Html:
    """Render what a server offers, or why it could not be reached."""
    if result.error:
        return h("p", h("span", text("failed"), class_="tag bad"), " ", result.error)
    tools = [
        h("li", h("code", tool.name), " ",
          h("span", text("tool_reads" if tool.effect is Effect.READ else "tool_asks"),
            class_="tag"),
          " ", h("span", tool.description, dir="auto"))
        for tool in result.tools
    ]  # fmt: skip
    return join([h("p", result.version), _tool_list(tools)])


def _tool_list(tools: Sequence[Html]) -> Html:
    return h("ul", *tools) if tools else h("p", text("no_tools"), class_="empty")


def _new() -> Html:
    secrets = h("textarea", name="secrets", rows="3", autocomplete="off", spellcheck="false",
                data_secret=True)  # fmt: skip
    sandbox = h("input", type="checkbox", name="sandbox")
    sent = form(
        "/settings/mcp",
        field("server_name", "name", required=True, autocomplete="off", maxlength="32"),
        field("server_command", "command", autocomplete="off"),
        field("server_url", "url", autocomplete="off", inputmode="url"),
        labelled(text("server_secrets"), secrets, hint=text("server_secrets_hint")),
        h("label", sandbox, " ", text("server_sandbox"), class_="row"),
        button=text("add"),
    )
    return h("details", h("summary", text("new_server")), sent, class_="panel")
