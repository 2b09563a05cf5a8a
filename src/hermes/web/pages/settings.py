"""The settings page: a form from the typed settings; secrets can be written, never read."""

import re
from collections.abc import Mapping, Sequence

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.config.editor import set_setting, set_variable, unset_setting, unset_variable
from hermes.config.loader import as_yaml, effective_value, printable_settings
from hermes.config.setting_catalog import ANY, Setting, settings
from hermes.config.values import KeyPath, as_list, as_mapping, find_value, format_path
from hermes.config.variables import VARIABLES, is_variable
from hermes.kit.redact import MASK
from hermes.schema.errors import UsageError
from hermes.web.context import ProfileWeb, Route, WebContext, json_response, read_json
from hermes.web.form_fields import field, form, post_button
from hermes.web.html import Child, Html, h, join
from hermes.web.markdown import render
from hermes.web.pages.layout import render_page, settings_tabs
from hermes.web.texts import text

VARIABLES_SECTION = ".env"
GENERAL_SECTION = "general"
MAX_ROWS = 12
OWN_PAGES = {"mcp_servers": "mcp", "hooks": "hooks"}
"""Sections with a page of their own, which also asks for consent."""


class SettingForm(Struct, frozen=True, kw_only=True):
    """`delete` removes a secret; an empty value leaves it as it is."""

    name: str
    value: str = ""
    delete: bool = False


class Choice(Struct, frozen=True, kw_only=True):
    """Which settings to show: those matching words, those of a section, or the changed ones."""

    words: str
    section: str
    changed: object
    """Tables of settings that differ from the defaults."""

    @property
    def title(self) -> str:
        if self.words:
            return text("found_settings")
        return self.section or text("changed_settings")

    def has(self, setting: Setting, key: str, value: object) -> bool:
        if self.words:
            return self.words in f"{key} {setting.description}".lower()
        if self.section:
            return _section(key) == self.section
        # A table under a user-chosen name is changed as a whole.
        is_default = value == setting.default or not (value or setting.default)
        return effective_value(self.changed, key)[0] and not is_default


def routes(context: WebContext) -> list[Route]:
    async def page(request: web.Request) -> web.StreamResponse:
        profile, base = context.profile(request), context.base(request)
        stored = await profile.stored_settings()
        values = await run_sync(_printable, profile)
        choice = Choice(
            words=request.query.get("q", "").strip().lower(),
            section=request.query.get("section", ""),
            changed=await run_sync(lambda: printable_settings(profile.app.home, profile.app.env)),
        )
        shown = _fields(choice, values)
        if choice.words or choice.section == VARIABLES_SECTION:
            shown += _variables(stored.env, choice.words)
        changed = {str(one) for one in as_mapping(choice.changed) or {}}
        main = join([
            h("h1", text("nav_settings")),
            settings_tabs(base),
            h("p", text("settings_hint"), class_="hint"),
            _search(request),
            h("nav", *_links(changed, choice.section), class_="tags", aria_label=text("sections")),
            h("h2", choice.title),
            h("div", *shown, class_="settings", id="list")
            if shown else _nothing(choice),
            _named_tables(base, choice.section),
        ])  # fmt: skip
        return await render_page(
            request, context, name="settings", title=text("nav_settings"), main=main
        )

    async def change(request: web.Request) -> web.Response:
        body = await read_json(request, SettingForm)
        message = await run_sync(_store, context.profile(request), body)
        return json_response({"message": message})

    return [Route("GET", "/settings", page), Route("POST", "/settings", change)]


def _nothing(choice: Choice) -> Html | None:
    if choice.words or not choice.section:
        return h("p", text("no_hits" if choice.words else "no_settings"), class_="empty")
    return None


def _printable(profile: ProfileWeb) -> object:
    return printable_settings(profile.app.home, profile.app.env, everything=True)


def _fields(choice: Choice, values: object) -> list[Html]:
    return [
        _field(setting, key, values)
        for setting in settings()
        for key in _keys(setting, values)
        if choice.has(setting, key, effective_value(values, key)[1])
    ]


def _keys(setting: Setting, values: object) -> list[str]:
    """Yield the setting's key; in a table with user-chosen names, one key per name."""
    if setting.section in OWN_PAGES:
        return []
    paths: list[KeyPath] = [()]
    for step in setting.key.split("."):
        paths = [
            (*path, name)
            for path in paths
            for name in (_names(values, path) if step == ANY else (step,))
        ]
    return [format_path(path) for path in paths]


def _names(values: object, path: KeyPath) -> Sequence[str | int]:
    found = find_value(values, path)[1]
    if (mapping := as_mapping(found)) is not None:
        return [str(one) for one in mapping]
    return range(len(as_list(found) or ()))


def _named_tables(base: str, section: str) -> Html | None:
    """Render the tables with user-chosen names, and a form to add a name."""
    found = [
        setting for setting in settings() if ANY in setting.key and _section(setting.key) == section
    ]
    if not found:
        return None
    if section in OWN_PAGES:
        link = f"{base}/settings/{OWN_PAGES[section]}"
        return h("p", h("a", text(f"tab_{OWN_PAGES[section]}"), href=link, class_="button"))
    known = [h("li", h("code", one.key), " ", h("span", render(one.description), class_="hint"))
             for one in found]  # fmt: skip
    sent = form(
        "/settings",
        field("setting_name", "name", f"{section}.", required=True, autocomplete="off"),
        field("setting_value", "value", required=True, autocomplete="off", data_secret=True),
    )
    return h("details", h("summary", text("new_setting")), h("ul", *known), sent, class_="panel")


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
    notes = [str(warning) for warning in edited.warnings]
    return " ".join([text("saved_restart"), *notes])


def _is_stored_secret(profile: ProfileWeb, name: str) -> bool:
    return _is_masked(effective_value(_printable(profile), name)[1])


def _is_masked(value: object) -> bool:
    """Whether the value contains a secret, which is not sent to the page."""
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
    names = sorted(
        {GENERAL_SECTION, VARIABLES_SECTION, *(_section(setting.key) for setting in settings())}
    )
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


def _section(key: str) -> str:
    """Settings at the root of the file share a section."""
    section, dot, _ = key.partition(".")
    return section.partition("[")[0] if dot else GENERAL_SECTION


def _breakable(key: str) -> Html:
    """The key, whose lines may end after dots and underscores."""
    return join([one, Html("<wbr>")] for one in re.split(r"(?<=[._])", key))


def _field(setting: Setting, key: str, values: object) -> Html:
    """One setting with its description."""
    label = [h("code", _breakable(key)), h("span", render(setting.description), class_="hint")]
    found, value = effective_value(values, key)
    if not found:
        value = setting.default
    if setting.is_secret or _is_masked(value):
        return _form(key, label, _secret(key, is_set=bool(value)), is_set=bool(value))
    return _form(key, label, _control(setting, key, value))


def _control(setting: Setting, key: str, value: object) -> Html:
    shown = (
        "" if value in (None, [], {}, ()) else as_yaml(value) if _is_complex(value) else str(value)
    )
    words = ("true", "false") if isinstance(value, bool) and not setting.words else setting.words
    if words:
        current = shown.lower() if isinstance(value, bool) else shown
        options = [h("option", text("default"), value="")] if current not in words else []
        options += [h("option", word, value=word, selected=word == current) for word in words]
        return h("select", *options, name="value", id=key)
    if "\n" in shown:
        rows = min(shown.count("\n") + 1, MAX_ROWS)
        return h("textarea", shown, name="value", id=key, rows=rows)
    return h("input", name="value", value=shown, id=key, autocomplete="off")


def _secret(name: str, *, is_set: bool) -> Html:
    hint = text("secret_set") if is_set else text("secret_not_set")
    return h("input", type="password", name="value", id=name, autocomplete="off", placeholder=hint)


def _form(name: str, label: list[Html], control: Html, *, is_set: bool = False) -> Html:
    """`is_set` is whether there is a secret that can be deleted."""
    delete: Child = None
    if is_set:
        delete = post_button("delete", "/settings", body={"name": name, "delete": True},
                             confirm=text("confirm_secret", name=name), danger=True)  # fmt: skip
    return h(
        "form",
        h("label", *label, for_=name),
        control,
        h("input", type="hidden", name="name", value=name),
        h("div", h("button", text("save"), type="submit"), delete, class_="row"),
        data_url="/settings",
    )


def _variables(env: Mapping[str, str], wanted: str) -> list[Html]:
    """The variables of `.env`: a value that is set can be replaced, but is never sent."""
    return [
        _form(
            variable.name,
            [h("code", variable.name), h("span", variable.description, class_="hint")],
            _secret(variable.name, is_set=bool(env.get(variable.name))),
            is_set=bool(env.get(variable.name)),
        )
        for variable in VARIABLES.values()
        if wanted in f"{variable.name} {variable.description}".lower()
    ]


def _is_complex(value: object) -> bool:
    return as_mapping(value) is not None or as_list(value) is not None
