"""The hooks page: programs that run on events; add, accept, revoke and remove them."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.config.editor import change_settings
from hermes.config.schema import Config
from hermes.config.sections.execution import ShellHook
from hermes.hooks.shell import HOOK_EVENTS, HookConsents, configured_hooks, why_not_runnable
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


class HookRow(Struct, frozen=True, kw_only=True):
    event: str
    hook: ShellHook
    accepted: bool
    trouble: str


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

    async def act(request: web.Request) -> web.Response:
        profile, body = context.profile(request), await read_json(request, HookForm)
        if body.event not in HOOK_EVENTS or not body.command.strip():
            raise UsageError(text("bad_hook"))
        actions: dict[str, Callable[[], object]] = {
            "add": lambda: _change(profile, *_added(body)),
            "remove": lambda: _change(profile, *_removed(body)),
            "accept": lambda: _consents(profile).grant(
                [(body.event, body.command)], profile.app.clock.now()
            ),
            "revoke": lambda: _consents(profile).revoke(body.command),
        }
        action = actions.get(request.match_info["action"])
        if action is None:
            raise NotFound(text("http_404"))
        await run_sync(action)
        return json_response({"message": text("saved_restart")})

    return [
        Route("GET", "/settings/hooks", page),
        Route("POST", "/settings/hooks/{action}", act),
    ]


def _consents(profile: ProfileWeb) -> HookConsents:
    return HookConsents(profile.app.home.shell_hooks)


def _read(profile: ProfileWeb, stored: StoredSettings) -> list[HookRow]:
    config, consents = stored.loaded.config, _consents(profile)
    return [
        HookRow(
            event=event,
            hook=hook,
            accepted=config.hooks_auto_accept or consents.is_granted(event, hook.command),
            trouble=why_not_runnable(hook, stored.env),
        )
        for event, hook in configured_hooks(config.hooks)
    ]


HookEdit = Callable[[Sequence[ShellHook]], Sequence[ShellHook]]


def _added(body: HookForm) -> tuple[str, HookEdit]:
    given = body.timeout.strip()
    if given and (not given.isdecimal() or not 0 < int(given) <= MAX_TIMEOUT):
        raise UsageError(text("bad_number"))
    hook = ShellHook(command=body.command.strip(), matcher=body.matcher.strip())
    if given:
        hook = msgspec.structs.replace(hook, timeout=int(given))
    return body.event, lambda known: [*known, hook]


def _removed(body: HookForm) -> tuple[str, HookEdit]:
    return body.event, lambda known: [one for one in known if one.command != body.command]


def _change(profile: ProfileWeb, event: str, edit: HookEdit) -> None:
    def decide(config: Config) -> Mapping[str, str | None]:
        hooks = edit(config.hooks.get(event, ()))
        return {f"hooks.{event}": msgspec.json.encode(hooks).decode() if hooks else None}

    change_settings(profile.app.home, {}, decide)  # `${NAME}` stays as it is in the file


def _card(row: HookRow) -> Html:
    body = {"event": row.event, "command": row.hook.command}
    state = "hook_accepted" if row.accepted else "hook_waits"
    facts: list[Child] = [
        h("span", row.event, class_="tag"),
        h("span", text(state), class_="tag live" if row.accepted else "tag bad"),
        h("span", text("hook_for", tool=row.hook.matcher)) if row.hook.matcher else None,
        h("span", f"{row.hook.timeout:g} s"),
    ]
    decide = "revoke" if row.accepted else "accept"
    return h(
        "li",
        h("pre", row.hook.command, tabindex="0"),
        h("p", *facts, class_="facts"),
        h("p", row.trouble, class_="danger") if row.trouble else None,
        h("div",
          post_button(f"hook_{decide}", f"/settings/hooks/{decide}", body=body,
                      confirm="" if row.accepted else text("confirm_hook")),
          post_button("delete", "/settings/hooks/remove", body=body, danger=True,
                      confirm=text("confirm_hook_removal")), class_="actions"),
    )  # fmt: skip


def _new() -> Html:
    sent = form(
        "/settings/hooks/add",
        choice("hook_event", "event", HOOK_EVENTS),
        field("hook_command", "command", required=True, autocomplete="off"),
        field("hook_matcher", "matcher", autocomplete="off"),
        field("hook_timeout", "timeout", "60", inputmode="numeric"),
        button=text("add"),
    )
    return h("details", h("summary", text("new_hook")), sent, class_="panel")
