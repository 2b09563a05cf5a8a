"""The hooks page: programs that run on events; add, accept, revoke and remove them."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

import msgspec
from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.config.editor import change_settings
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.config.sections.execution import ShellHook
from hermes.config.variables import secret_values, secrets_in
from hermes.hooks.shell import HOOK_EVENTS, HookConsents, why_not_runnable
from hermes.kit.redact import Redactor
from hermes.schema.errors import NotFound, UsageError
from hermes.web.context import (
    ProfileWeb,
    Route,
    StoredSettings,
    WebContext,
    json_response,
    read_json,
)
from hermes.web.form_fields import choice, field, form, post_button
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.texts import text

MAX_TIMEOUT = 3600


class HookForm(Struct, frozen=True, kw_only=True):
    event: str
    command: str
    matcher: str = ""
    timeout: str = ""


class HookName(Struct, frozen=True):
    """A configured hook; its command, which may contain a secret, is not sent to the page."""

    id: str


class HookRow(Struct, frozen=True, kw_only=True):
    """`shown` is the command as in the file, with secrets masked; `place` its index in the list."""

    event: str
    index: int
    hook: ShellHook
    shown: str
    accepted: bool
    problem: str

    @property
    def id(self) -> str:
        return sha256(f"{self.event} {self.hook.command}".encode()).hexdigest()[:16]


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile = context.profile(request)
        stored = await profile.stored_settings()
        rows = [_card(one) for one in await run_sync(_read, profile, stored)]
        main = join([
            h("h1", text("tab_hooks")),
            settings_tabs(context.base(request), "hooks"),
            h("p", text("hooks_hint"), class_="hint"),
            h("ul", *rows, class_="cards") if rows else h("p", text("no_hooks"), class_="empty"),
            _new(),
        ])  # fmt: skip
        return await render_page(
            request, context, name="settings", title=text("tab_hooks"), main=main
        )

    async def add(request: web.Request) -> web.Response:
        profile, body = context.profile(request), await read_json(request, HookForm)
        if body.event not in HOOK_EVENTS or not body.command.strip():
            raise UsageError(text("bad_hook"))
        hook = _hook(body)
        await run_sync(lambda: _change(profile, body.event, lambda known: [*known, hook]))
        return json_response({"message": text("saved_restart")})

    async def act(request: web.Request) -> web.Response:
        profile, body = context.profile(request), await read_json(request, HookName)
        rows = await run_sync(_read, profile, await profile.stored_settings())
        row = next((one for one in rows if one.id == body.id), None)
        if row is None:
            raise NotFound(text("no_hook"))
        await run_sync(_act, profile, row, request.match_info["action"])
        return json_response({"message": text("saved_restart")})

    return [
        Route("GET", "/settings/hooks", page),
        Route("POST", "/settings/hooks", add),
        Route("POST", "/settings/hooks/{action}", act),
    ]


def _act(profile: ProfileWeb, row: HookRow, action: str) -> None:
    match action:
        case "accept":
            _consents(profile).grant([(row.event, row.hook.command)], profile.app.clock.now())
        case "revoke":
            _consents(profile).revoke(row.hook.command)
        case "remove":
            after = row.index + 1
            _change(profile, row.event, lambda known: [*known[: row.index], *known[after:]])
        case _:
            raise NotFound(text("http_404"))


def _consents(profile: ProfileWeb) -> HookConsents:
    return HookConsents(profile.app.home.shell_hooks)


def _read(profile: ProfileWeb, stored: StoredSettings) -> list[HookRow]:
    config, consents = stored.loaded.config, _consents(profile)
    written = load_config(profile.app.home, {}).config.hooks
    redactor = Redactor([*secrets_in(stored.loaded.raw), *secret_values(stored.env)])
    return [
        HookRow(
            event=event,
            index=index,
            hook=hook,
            shown=redactor.redact(shown.command),
            accepted=config.hooks_auto_accept or consents.is_granted(event, hook.command),
            problem=redactor.redact(why_not_runnable(hook, stored.env)),
        )
        for event in HOOK_EVENTS
        for index, (hook, shown) in enumerate(
            zip(config.hooks.get(event, ()), written.get(event, ()), strict=True)
        )
    ]


HookEdit = Callable[[Sequence[ShellHook]], Sequence[ShellHook]]


def _hook(body: HookForm) -> ShellHook:
    hook = ShellHook(command=body.command.strip(), matcher=body.matcher.strip())
    timeout = body.timeout.strip()
    if not timeout:
        return hook
    if not timeout.isdecimal() or not 0 < int(timeout) <= MAX_TIMEOUT:
        raise UsageError(text("bad_number"))
    return structs.replace(hook, timeout=int(timeout))


def _change(profile: ProfileWeb, event: str, edit: HookEdit) -> None:
    def decide(config: Config) -> Mapping[str, str | None]:
        hooks = edit(config.hooks.get(event, ()))
        return {f"hooks.{event}": msgspec.json.encode(hooks).decode() if hooks else None}

    change_settings(profile.app.home, {}, decide)  # `${NAME}` stays as it is in the file


def _card(row: HookRow) -> Html:
    body = {"id": row.id}
    state = "hook_accepted" if row.accepted else "hook_waits"
    facts: list[Child] = [
        h("span", row.event, class_="tag"),
        h("span", text(state), class_="tag live" if row.accepted else "tag bad"),
        h("span", text("hook_for", tool=row.hook.matcher)) if row.hook.matcher else None,
        h("span", text("unit_seconds", count=f"{row.hook.timeout:g}")),
    ]
    decide = "revoke" if row.accepted else "accept"
    return h(
        "li",
        h("pre", row.shown, tabindex="0"),
        h("p", *facts, class_="facts"),
        h("p", row.problem, class_="danger") if row.problem else None,
        h("div",
          post_button(f"hook_{decide}", f"/settings/hooks/{decide}", body=body,
                      confirm="" if row.accepted else text("confirm_hook")),
          post_button("delete", "/settings/hooks/remove", body=body, danger=True,
                      confirm=text("confirm_hook_removal")), class_="actions"),
    )  # fmt: skip


def _new() -> Html:
    sent = form(
        "/settings/hooks",
        choice("hook_event", "event", HOOK_EVENTS),
        field("hook_command", "command", required=True, autocomplete="off"),
        field("hook_matcher", "matcher", autocomplete="off"),
        field("hook_timeout", "timeout", "60", inputmode="numeric"),
        button=text("add"),
    )
    return h("details", h("summary", text("new_hook")), sent, class_="panel")
