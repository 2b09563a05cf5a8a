"""The list of channels with their live state, and a setup page for each."""

import re
from collections.abc import Callable, Mapping
from functools import partial

from aiohttp import web
from anyio.to_thread import run_sync

from hermes.app.channel_setup import check_account, store_account, turn_on
from hermes.app.channels import enabled_platforms
from hermes.app.service.status import GatewayStatus, gateway_status
from hermes.channels import MANIFESTS
from hermes.config.editor import set_variable, unset_variable
from hermes.config.variables import ROOM_LISTS, mask_room_keys
from hermes.gateway.platform_settings import parse_list, platform_variable
from hermes.kit.redact import MASK
from hermes.ports.channel import ChannelManifest, ChannelSetup, SetupQuestion
from hermes.schema.errors import NotFound, UsageError
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.form_fields import form, labelled
from hermes.web.html import Child, Html, h, join
from hermes.web.live_lists import follow_box, live_list, send_changed
from hermes.web.markdown import render
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.texts import state_text, text
from hermes.web.times import moment

ALLOWED_USERS = "ALLOWED_USERS"
_ADDRESS = re.compile(r"https://[\w./#?=&%-]*[\w/]")
"""A URL in a step, which becomes a link."""
SECRET = "secret"  # noqa: S105 - the name of the field


def routes(context: WebContext) -> list[Route]:
    handlers = _ChannelHandlers(context)
    return [
        Route("GET", "/settings/channels", handlers.page),
        Route("GET", "/settings/channels/list", handlers.fragment),
        Route("GET", "/settings/channels/{channel}", handlers.setup_page),
        Route("POST", "/settings/channels/{channel}", handlers.connect),
    ]


class _ChannelHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        follow = follow_box("list", "settings/channels/list")
        main = join([
            h("h1", text("tab_channels")),
            settings_tabs(self._context.base(request), "channels"),
            h("div", h("p", text("channels_hint"), class_="hint"), follow, class_="row spread"),
            live_list("list", await self._list(request)),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="settings", title=text("tab_channels"), main=main
        )

    async def fragment(self, request: web.Request) -> web.Response:
        return await send_changed(self._context, request, lambda: self._list(request))

    async def _list(self, request: web.Request) -> Html:
        base, profile = self._context.base(request), self._context.profile(request)
        status = await run_sync(gateway_status, profile.app.home)
        stored = await profile.stored_settings()
        enabled = enabled_platforms(stored.loaded.config, stored.env)
        names = [*enabled, *(platform for platform in status.platforms if platform not in enabled)]
        redact = profile.app.redactor.redact
        states = {
            name: _state(name, status, redact, is_set_up=name in enabled)
            for name in (*names, *(one for one in MANIFESTS if one not in names))
        }
        rows = [_row(base, name, state) for name, state in states.items()]
        stopped: Child = None
        if status.record is None:
            stopped = h("p", text("gateway_stopped"), " ", h("code", "hermes gateway start"))
        return join([stopped, h("ul", *rows, class_="cards compact")])

    async def setup_page(self, request: web.Request) -> web.StreamResponse:
        base, profile = self._context.base(request), self._context.profile(request)
        manifest, setup = _known(request)
        stored = await profile.stored_settings()
        status = await run_sync(gateway_status, profile.app.home)
        steps = [h("li", render(_ADDRESS.sub(r"<\g<0>>", step))) for step in setup.steps]
        label = manifest.label or manifest.name
        is_set_up = manifest.name in enabled_platforms(stored.loaded.config, stored.env)
        main = join([
            h("h1", label),
            settings_tabs(base, "channels"),
            _state(manifest.name, status, profile.app.redactor.redact, is_set_up=is_set_up),
            h("section", h("h2", text("setup_steps")), h("ol", *steps), class_="panel"),
            _setup_form(manifest, setup, stored.env),
            h("p", h("a", text("all_settings_of", name=label),
                     href=f"{base}/settings?q={manifest.name}")),
        ])  # fmt: skip
        return await render_page(request, self._context, name="settings", title=label, main=main)

    async def connect(self, request: web.Request) -> web.Response:
        """Check the credentials with the platform and store them only if it accepts them."""
        manifest, setup = _known(request)
        profile = self._context.profile(request)
        submitted = await read_json(request, dict[str, str])
        stored = await profile.stored_settings()
        answers = _answers(setup, submitted, stored.env)
        token = submitted.get(SECRET, "").strip()
        if not _is_moved(setup, answers, stored.env):
            token = token or stored.env.get(setup.variable, "")
        if not token and not setup.secret_optional:
            raise UsageError(text("field_missing", name=setup.secret))
        variables = {setup.variable, *(question.variable for question in setup.questions)}
        env = {name: value for name, value in stored.env.items() if name not in variables}
        env |= {name: value for name, value in answers.items() if value}
        found = await check_account(manifest, setup, stored.loaded.config, env, token)
        await run_sync(store_account, profile.app.home, setup, token, answers, found)
        await run_sync(turn_on, profile.app.home, stored.loaded.config, manifest.name)
        await run_sync(_store_users, profile, manifest, submitted.get(ALLOWED_USERS))
        notes = [text("connected_as", name=found.account), *found.notes, text("saved_restart")]
        return json_response({"message": " ".join(notes)})


def _known(request: web.Request) -> tuple[ChannelManifest, ChannelSetup]:
    manifest = MANIFESTS.get(request.match_info["channel"])
    if manifest is None or manifest.setup is None:
        raise NotFound(text("no_channel"))
    return manifest, manifest.setup


def _is_moved(setup: ChannelSetup, answers: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether a non-secret answer, such as an address, differs from the stored one."""
    plain = [question.variable for question in setup.questions if not question.secret]
    return any(answers.get(name, "") != env.get(name, "") for name in plain)


def _answers(
    setup: ChannelSetup, submitted: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """Return what the platform needs besides its token; an empty secret keeps the stored one.

    Optional answers may be empty. If the address or account changes, stored secrets are not reused,
    because they would be sent there.
    """
    typed = {
        question.variable: submitted.get(question.variable, "").strip()
        for question in setup.questions
    }
    unchanged = {name: env[name] for name in typed if typed[name] == _shown(env, name) != ""}
    is_moved = _is_moved(setup, {**typed, **unchanged}, env)
    answers: dict[str, str] = {}
    for question in setup.questions:
        value = typed[question.variable]
        if not is_moved:
            stored = env.get(question.variable, "") if question.secret and not value else value
            value = unchanged.get(question.variable, stored)
        if MASK in value:
            raise UsageError(text("secret_masked"))
        if not value and not question.optional:
            raise UsageError(text("field_missing", name=question.label))
        answers[question.variable] = value
    return answers


def _shown(env: Mapping[str, str], name: str) -> str:
    """The stored value without keys of rooms."""
    value = env.get(name, "")
    return mask_room_keys(value) if name in ROOM_LISTS else value


def _store_users(profile: ProfileWeb, manifest: ChannelManifest, users: str | None) -> None:
    """Store the list of a form that has one; an empty list removes it."""
    if users is None:
        return
    name = platform_variable(manifest.name, ALLOWED_USERS)
    if ids := parse_list(users):
        set_variable(profile.app.home, name, ",".join(ids))
    else:
        unset_variable(profile.app.home, name)


def _row(base: str, name: str, state: Html) -> Html:
    manifest = MANIFESTS.get(name.partition("/")[0])
    label = manifest.label if manifest and manifest.label else name
    link: Child = h("b", label)
    if manifest and manifest.setup:
        address = f"{base}/settings/channels/{manifest.name}"
        link = h("a", label, href=address, class_="title")
    account = name.partition("/")[2]
    return h(
        "li",
        link,
        h("span", f" {account}") if account else None,
        state,
    )


def _state(
    name: str, status: GatewayStatus, redact: Callable[[str], str], *, is_set_up: bool
) -> Html:
    """The state that the gateway reports, or without one, whether the channel is set up."""
    state = status.platforms.get(name) if status.record else None
    if state is None:
        waits = text("channel_ready" if is_set_up else "channel_not_set_up")
        return h("p", h("span", waits, class_="tag"), class_="facts")
    kind = "bad" if state.error_code else "live" if state.state == "connected" else ""
    return h(
        "p",
        h("span", state_text(state.state), class_=f"tag {kind}".strip()),
        moment(state.updated_at) if state.updated_at else None,
        h("span", redact(state.error_message or ""), dir="auto"),
        class_="facts",
    )


def _setup_form(manifest: ChannelManifest, setup: ChannelSetup, env: Mapping[str, str]) -> Html:
    users = platform_variable(manifest.name, ALLOWED_USERS)
    question = partial(_question, env)
    secret = SetupQuestion(
        setup.variable, setup.secret, secret=True, optional=setup.secret_optional
    )
    fields = [
        *(question(one, one.variable) for one in setup.questions),
        question(secret, SECRET),
        labelled(
            text("allowed_users"),
            h("input", name=ALLOWED_USERS, value=env.get(users, ""), autocomplete="off"),
            hint=text("allowed_users_hint", id=setup.user_id),
        ),
    ]
    sent = form(f"/settings/channels/{manifest.name}", *fields, button=text("check_and_save"))
    return h("section", h("h2", text("credentials")), sent, class_="panel")


def _question(env: Mapping[str, str], question: SetupQuestion, name: str) -> Html:
    """A form field. A secret is never sent to the browser, only whether it is set."""
    known = _shown(env, question.variable)
    if question.secret:
        hint = text("secret_set") if known else text("secret_not_set")
        control = h("input", type="password", name=name, placeholder=hint, autocomplete="off")
    else:
        default = "" if "{" in question.default else question.default
        control = h("input", name=name, value=known or default, autocomplete="off")
    optional = text("optional") if question.optional else ""
    return labelled(f"{question.label} ({question.variable})", control, hint=optional)
