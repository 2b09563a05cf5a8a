"""The settings page: a form from the typed settings; secrets can be written, never read."""

import json
from collections.abc import Mapping

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.config.editor import set_setting, set_variable, unset_setting, unset_variable
from hermes.config.loader import as_yaml, effective_value, printable_settings
from hermes.config.setting_catalog import ANY, Setting, settings
from hermes.config.values import as_list, as_mapping
from hermes.config.variables import VARIABLES, is_variable
from hermes.kit.redact import MASK
from hermes.schema.errors import UsageError
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.html import Html, h, join
from hermes.web.markdown import render
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.texts import text

VARIABLES_SECTION = ".env"
GENERAL_SECTION = "general"


class SettingForm(Struct, frozen=True, kw_only=True):
    """`delete` removes a secret; an empty value leaves it as it is."""

    name: str
    value: str = ""
    delete: bool = False


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        app = context.profile(request).app
        stored = await context.profile(request).stored_settings()
        values = await run_sync(lambda: printable_settings(app.home, app.env, everything=True))
        changed = as_mapping(printable_settings(app.home, app.env)) or {}
        wanted, chosen = request.query.get("q", "").lower(), request.query.get("section", "")
        shown = [
            _field(one, values)
            for one in settings()
            if (wanted and wanted in f"{one.key} {one.description}".lower())
            or (not wanted and _section(one) == chosen)
        ]
        if wanted or chosen == VARIABLES_SECTION:
            shown += _variables(stored.env, wanted)
        main = join([
            h("h1", text("nav_settings")),
            settings_tabs(context.base(request)),
            h("p", text("settings_hint"), class_="hint"),
            _search(request),
            h("nav", *_links({str(one) for one in changed}, chosen), class_="tags",
              aria_label=text("sections")),
            h("div", *shown, class_="settings", id="list"),
        ])  # fmt: skip
        return await render_page(
            request, context, name="settings", title=text("nav_settings"), main=main
        )

    async def change(request: web.Request) -> web.Response:
        body = await read_json(request, SettingForm)
        message = await run_sync(_store, context.profile(request), body)
        return json_response({"message": message})

    return [Route("GET", "/settings", page), Route("POST", "/settings", change)]


def _store(profile: ProfileWeb, body: SettingForm) -> str:
    home, env = profile.app.home, profile.app.env
    value = body.value
    if MASK in value:
        raise UsageError(text("secret_masked"))
    if is_variable(body.name):
        if body.delete:
            unset_variable(home, body.name)
        elif value:
            set_variable(home, body.name, value)
        else:
            raise UsageError(text("secret_unchanged"))
        return text("saved_restart")
    if not value.strip():
        if not body.delete and _is_stored_secret(profile, body.name):
            raise UsageError(text("secret_unchanged"))
        unset_setting(home, env, body.name)
        return text("saved_default")
    edited = set_setting(home, env, body.name, value)
    notes = [str(one) for one in edited.warnings]
    return " ".join([text("saved_restart"), *notes])


def _is_stored_secret(profile: ProfileWeb, name: str) -> bool:
    values = printable_settings(profile.app.home, profile.app.env, everything=True)
    return _is_masked(effective_value(values, name)[1])


def _is_masked(value: object) -> bool:
    """Whether the value contains a secret, which the page does not get."""
    return MASK in as_yaml(value)


def _search(request: web.Request) -> Html:
    return h(
        "form",
        h("input", type="search", name="q", value=request.query.get("q", ""),
          placeholder=text("filter_settings"), aria_label=text("filter_settings")),
        h("button", text("filter"), type="submit"),
        class_="row filters",
        role="search",
    )  # fmt: skip


def _links(changed: set[str], chosen: str) -> list[Html]:
    """A link per section; those with changed settings are marked."""
    names = sorted({GENERAL_SECTION, VARIABLES_SECTION, *map(_section, settings())})
    return [
        h(
            "a",
            name,
            href=f"?section={name}",
            class_="tag live" if name in changed else "tag",
            aria_current="true" if name == chosen else None,
        )
        for name in names
    ]


def _section(setting: Setting) -> str:
    """Settings at the root of the file share a section."""
    return setting.section if "." in setting.key else GENERAL_SECTION


def _field(setting: Setting, values: object) -> Html:
    """One setting with its description; a table with names of its own is only shown."""
    label = [h("code", setting.key), h("span", render(setting.description), class_="hint")]
    if ANY in setting.key.split("."):
        return h("div", h("div", *label), h("p", text("table_setting"), class_="hint"))
    found, value = effective_value(values, setting.key)
    control = _control(setting, value if found else setting.default)
    return _form(setting.key, label, control)


def _control(setting: Setting, value: object) -> Html:
    if setting.is_secret or _is_masked(value):
        return _secret(setting.key, is_set=bool(value))
    shown = (
        "" if value in (None, [], {}, ()) else as_yaml(value) if _is_complex(value) else str(value)
    )
    words = ("true", "false") if isinstance(value, bool) and not setting.words else setting.words
    if words:
        current = shown.lower() if isinstance(value, bool) else shown
        options = [h("option", text("default"), value="")] if current not in words else []
        options += [h("option", one, value=one, selected=one == current) for one in words]
        return h("select", *options, name="value", id=setting.key)
    if "\n" in shown:
        return h("textarea", shown, name="value", id=setting.key, rows="3")
    return h("input", name="value", value=shown, id=setting.key, autocomplete="off")


def _secret(name: str, *, is_set: bool) -> Html:
    hint = text("secret_set") if is_set else text("secret_not_set")
    field = h("input", type="password", name="value", id=name, autocomplete="off", placeholder=hint)
    if not is_set:
        return field
    body = json.dumps({"name": name, "delete": True})
    delete = h("button", text("delete"), type="button", class_="quiet danger", data_action="post",
               data_url="/settings", data_body=body,
               data_confirm=text("confirm_secret", name=name))  # fmt: skip
    return join([field, delete])


def _form(name: str, label: list[Html], control: Html) -> Html:
    return h(
        "form",
        h("label", *label, for_=name),
        control,
        h("input", type="hidden", name="name", value=name),
        h("button", text("save"), type="submit"),
        data_url="/settings",
    )


def _variables(env: Mapping[str, str], wanted: str) -> list[Html]:
    """The variables of `.env`: a value that is set can be replaced, but is never sent."""
    return [
        _form(
            one.name,
            [h("code", one.name), h("span", one.description, class_="hint")],
            _secret(one.name, is_set=bool(env.get(one.name))),
        )
        for one in VARIABLES.values()
        if wanted in f"{one.name} {one.description}".lower()
    ]


def _is_complex(value: object) -> bool:
    return as_mapping(value) is not None or as_list(value) is not None
