"""The people page: pairing requests, everyone who may talk to the agent, and what roles may do."""

from collections.abc import Sequence

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.chat_settings import ChatSettings
from hermes.app.chat_users import (
    ChatUser,
    allow,
    approve,
    chat_platforms,
    list_users,
    remove,
    set_owner,
    set_role_limits,
)
from hermes.config.platforms import facts_of
from hermes.gateway.pairing import Pairing, PairingRequest
from hermes.gateway.platform_settings import WILDCARD, parse_list
from hermes.gateway.roles import RolePermissions
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.form_fields import choice, field, form, post_button
from hermes.web.html import Child, Html, h, join
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.texts import text
from hermes.web.times import moment

MAX_TURNS = 1_000_000


class PersonForm(Struct, frozen=True, kw_only=True):
    platform: str
    user: str = ""
    code: str = ""
    role: Role = Role.MEMBER


class RoleForm(Struct, frozen=True, kw_only=True):
    """Empty numbers mean no limit; empty toolsets mean all that the platform offers."""

    platform: str
    role: Role
    toolsets: str = ""
    turns_per_hour: str = ""
    turns_per_day: str = ""


def routes(context: WebContext) -> list[Route]:
    handlers = _PeopleHandlers(context)
    return [
        Route("GET", "/settings/people", handlers.page),
        Route("POST", "/settings/people/approve", handlers.approve),
        Route("POST", "/settings/people/allow", handlers.allow),
        Route("POST", "/settings/people/remove", handlers.remove),
        Route("POST", "/settings/people/role", handlers.change_role),
        Route("POST", "/settings/people/limits", handlers.change_limits),
    ]


class _PeopleHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def page(self, request: web.Request) -> web.StreamResponse:
        profile, base = self._context.profile(request), self._context.base(request)
        stored = await profile.stored_settings()
        pairing, config = self._pairing(profile), stored.loaded.config
        people = await run_sync(list_users, config, stored.env, pairing)
        waiting = await run_sync(pairing.pending)
        platforms = await run_sync(chat_platforms, config, stored.env, pairing)
        chats = ChatSettings(config)
        main = join([
            h("h1", text("tab_people")),
            settings_tabs(base, "people"),
            h("h2", text("pairing")),
            pairing_requests(waiting, platforms),
            h("h2", text("tab_people")),
            h("ul", *map(_person, people), class_="cards") if people
            else h("p", text("no_people"), class_="empty"),
            _allow_form(platforms) if platforms else None,
            h("h2", text("roles")),
            h("p", text("roles_hint"), class_="hint"),
            *(_roles(platform, chats) for platform in platforms),
        ])  # fmt: skip
        return await render_page(
            request, self._context, name="settings", title=text("tab_people"), main=main
        )

    async def approve(self, request: web.Request) -> web.Response:
        body = await read_json(request, PersonForm)
        pairing = self._pairing(self._context.profile(request))
        person = await run_sync(approve, pairing, body.platform, body.code)
        message = text("person_approved", name=person.name or person.user)
        return json_response({"message": message})

    async def allow(self, request: web.Request) -> web.Response:
        body, profile = await read_json(request, PersonForm), self._context.profile(request)
        stored = await profile.stored_settings()
        await self._check_platform(profile, body.platform)
        await run_sync(allow, profile.app.home, stored.env, body.platform, body.user)
        return json_response({"message": text("saved_restart")})

    async def remove(self, request: web.Request) -> web.Response:
        body, profile = await read_json(request, PersonForm), self._context.profile(request)
        stored = await profile.stored_settings()
        person, pairing = (body.platform, body.user), self._pairing(profile)
        await run_sync(remove, profile.app.home, stored.env, pairing, person)
        stored = await profile.stored_settings()
        left = await run_sync(list_users, stored.loaded.config, stored.env, pairing)
        if person in {(one.platform, one.user) for one in left}:
            raise UsageError(text("still_allowed", name=body.user))
        return json_response({"message": text("saved_restart")})

    async def change_role(self, request: web.Request) -> web.Response:
        body, profile = await read_json(request, PersonForm), self._context.profile(request)
        await self._check_platform(profile, body.platform)
        is_owner = body.role is Role.OWNER

        def change() -> None:
            person = body.platform, body.user
            set_owner(profile.app.home, person, is_owner=is_owner)

        await run_sync(change)
        return json_response({"message": text("saved_restart")})

    async def change_limits(self, request: web.Request) -> web.Response:
        body, profile = await read_json(request, RoleForm), self._context.profile(request)
        await self._check_platform(profile, body.platform)
        limits = {
            "toolsets": list(parse_list(body.toolsets)) or None,
            "turns_per_hour": _number(body.turns_per_hour),
            "turns_per_day": _number(body.turns_per_day),
        }
        home = profile.app.home
        await run_sync(set_role_limits, home, body.platform, body.role, limits)
        return json_response({"message": text("saved_restart")})

    def _pairing(self, profile: ProfileWeb) -> Pairing:
        return Pairing(profile.app.home.pairing, profile.app.clock)

    async def _check_platform(self, profile: ProfileWeb, platform: str) -> None:
        stored = await profile.stored_settings()
        known = await run_sync(
            chat_platforms, stored.loaded.config, stored.env, self._pairing(profile)
        )
        if platform not in known:
            raise UsageError(text("no_channel"))


def _number(digits: str) -> int | None:
    if not digits.strip():
        return None
    if not digits.strip().isdecimal() or int(digits) > MAX_TURNS:
        raise UsageError(text("bad_number"))
    return int(digits)


def pairing_requests(waiting: Sequence[PairingRequest], platforms: Sequence[str]) -> Html:
    """List pairing requests; only the requester knows the code."""
    rows = [
        h(
            "li",
            h("b", one.name or one.user, dir="auto"),
            h("p", h("span", facts_of(one.platform).label, class_="tag"), h("code", one.user),
              moment(one.asked_at), class_="facts"),
        )
        for one in waiting
    ]  # fmt: skip
    if not platforms:
        return h("p", text("no_channels_yet"), class_="empty")
    approving = form(
        "/settings/people/approve",
        choice("channel", "platform", platforms, waiting[0].platform if waiting else ""),
        field("pairing_code", "code", required=True, autocomplete="off", maxlength="20"),
        button=text("approve"),
        class_="inline",
    )
    return join([
        h("ul", *rows, class_="cards") if rows else h("p", text("no_pairing"), class_="empty"),
        h("p", text("pairing_hint"), class_="hint"),
        approving,
    ])  # fmt: skip


def _person(person: ChatUser) -> Html:
    body = {"platform": person.platform, "user": person.user}
    name = person.name or person.user
    facts: list[Child] = [
        h("span", facts_of(person.platform).label, class_="tag"),
        h("span", text(f"role_{person.role.value}"),
          class_="tag live" if person.role is Role.OWNER else "tag"),
        h("code", person.user),
        h("span", text("paired")) if person.is_paired else None,
        moment(person.since) if person.since else None,
    ]  # fmt: skip
    if person.user == WILDCARD:
        return h("li", h("b", text("everybody")), h("p", *facts, class_="facts"),
                 h("p", text("everybody_hint"), class_="hint"))  # fmt: skip
    other = Role.MEMBER if person.role is Role.OWNER else Role.OWNER
    confirm = text("confirm_owner", name=name) if other is Role.OWNER else ""
    url, changed = "/settings/people", {**body, "role": other.value}
    buttons = [
        post_button(f"make_{other.value}", f"{url}/role", body=changed, confirm=confirm),
        post_button("remove_access", f"{url}/remove", body=body, danger=True,
                    confirm=text("confirm_access", name=name)),
    ]  # fmt: skip
    return h(
        "li",
        h("b", name, dir="auto"),
        h("p", *facts, class_="facts"),
        h("div", *buttons, class_="actions"),
    )


def _allow_form(platforms: Sequence[str]) -> Html:
    sent = form(
        "/settings/people/allow",
        h("p", text("allow_hint"), class_="hint"),
        choice("channel", "platform", platforms),
        field("user_id", "user", required=True, autocomplete="off"),
        button=text("allow"),
    )
    return h("details", h("summary", text("allow_person")), sent, class_="panel")


def _roles(platform: str, chats: ChatSettings) -> Html:
    roles = [(role, chats.permissions(platform, role)) for role in Role]
    return h(
        "section",
        h("h3", facts_of(platform).label),
        *(_role(platform, role, permissions) for role, permissions in roles),
        class_="panel",
    )


def _role(platform: str, role: Role, permissions: RolePermissions) -> Html:
    toolsets = ", ".join(permissions.toolsets or ()) or text("all_tools")
    effects = ", ".join(sorted(effect.value for effect in permissions.effects))
    quota = permissions.quota
    hour, day = ("" if one is None else str(one) for one in (quota.per_hour, quota.per_day))
    facts = [
        text("toolsets", names=toolsets),
        text("effects", names=effects),
        text("turn_limits", hour=hour or "∞", day=day or "∞"),
    ]
    editing: Child = None
    if role is not Role.OWNER:
        sent = form(
            "/settings/people/limits",
            h("input", type="hidden", name="platform", value=platform),
            h("input", type="hidden", name="role", value=role.value),
            field("toolsets_field", "toolsets", ", ".join(permissions.toolsets or ())),
            field("turns_per_hour", "turns_per_hour", hour, inputmode="numeric"),
            field("turns_per_day", "turns_per_day", day, inputmode="numeric"),
        )
        editing = h("details", h("summary", text("edit")), sent)
    return h(
        "div",
        h("p", h("b", text(f"role_{role.value}")), *(h("span", one) for one in facts),
          class_="facts"),
        editing,
    )  # fmt: skip
