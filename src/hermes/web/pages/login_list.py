"""The list of logins and passkeys, with buttons to revoke and remove them."""

import msgspec
from aiohttp import web

from hermes.web.browser_names import browser_name
from hermes.web.context import LOGIN, WebContext
from hermes.web.html import Child, Html, h, join
from hermes.web.logins import Passkey, WebLogin
from hermes.web.pages.login import request_host
from hermes.web.passkeys import are_available, install_package, is_name
from hermes.web.texts import text
from hermes.web.times import moment


def logins_section(context: WebContext, request: web.Request) -> Html:
    """Who is logged in, and the passkeys."""
    passkeys = context.logins.passkeys()
    names = {passkey.id: passkey.name for passkey in passkeys}
    own = request[LOGIN].id
    logins = [
        _login(session, names, own=session.id == own) for session in context.logins.sessions()
    ]
    return join(
        [
            h("h2", text("logins")),
            h("ul", *logins, class_="cards", id="logins"),
            h("h2", text("passkeys")),
            h("ul", *map(_passkey, passkeys), class_="cards", id="passkeys")
            if passkeys
            else h("p", text("no_passkeys"), class_="hint"),
            _add_button(request_host(request)),
        ]
    )


def _add_button(host: str) -> Html:
    if not is_name(host):
        return h("p", text("passkey_name_only"), class_="hint")
    if not are_available():
        return h("p", text("passkey_package", command=install_package()), class_="hint")
    return h("button", text("add_passkey"), type="button", data_action="add-passkey")


def _login(login: WebLogin, passkeys: dict[str, str], *, own: bool) -> Html:
    proof = login.proof
    who = passkeys.get(proof.who, "") if proof.method == "passkey" else proof.who
    method = f"{text(f'method_{proof.method}')} {who}" if proof.method else ""
    facts: list[Child] = [
        h("span", login.address),
        h("span", method.strip()) if method else None,
        h("span", text("since"), " ", moment(login.created)),
        h("span", text("last_seen"), " ", moment(login.seen)),
        h("span", text("this_browser"), class_="tag live") if own else None,
    ]
    revoke = h("button", text("revoke"), type="button", class_="quiet danger", data_action="post",
               data_url="/logins/revoke", data_body=_id_body(login.id))  # fmt: skip
    return h(
        "li",
        h("b", browser_name(login.agent) or text("unknown_browser"), title=login.agent),
        h("p", *facts, class_="facts"),
        None if own else revoke,
    )


def _passkey(passkey: Passkey) -> Html:
    remove = h("button", text("remove"), type="button", class_="quiet danger", data_action="post",
               data_url="/passkeys/remove", data_body=_id_body(passkey.id),
               data_confirm=text("confirm_passkey", name=passkey.name))  # fmt: skip
    facts = [h("span", passkey.host), h("span", text("since"), " ", moment(passkey.created))]
    return h("li", h("b", passkey.name), h("p", *facts, class_="facts"), remove)


def _id_body(identity: str) -> str:
    return msgspec.json.encode({"id": identity}).decode()
