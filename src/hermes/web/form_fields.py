"""Forms and buttons that send one change: the script sends them as JSON and shows the answer."""

from collections.abc import Mapping, Sequence

import msgspec

from hermes.web.html import Attribute, Child, Html, h
from hermes.web.texts import text


def post_button(
    label: str,
    url: str,
    *,
    body: Mapping[str, object] | None = None,
    confirm: str = "",
    danger: bool = False,
    primary: bool = False,
) -> Html:
    """`label` is the key of a text; with `confirm`, the person is asked first."""
    kind = "primary" if primary else "quiet danger" if danger else "quiet"
    return h(
        "button",
        text(label),
        type="button",
        class_=kind,
        data_action="post",
        data_url=url,
        data_body=None if body is None else msgspec.json.encode(body).decode(),
        data_confirm=confirm or None,
    )


def field(label: str, name: str, value: str = "", **attributes: Attribute) -> Html:
    """An input with its label, which is the key of a text."""
    return labelled(text(label), h("input", name=name, value=value, **attributes))


def choice(label: str, name: str, options: Sequence[str], chosen: str = "") -> Html:
    entries = [h("option", option, value=option, selected=option == chosen) for option in options]
    return labelled(text(label), h("select", *entries, name=name))


def labelled(label: str, control: Html, hint: str = "") -> Html:
    return h("label", label, h("span", hint, class_="hint") if hint else None, control)


def form(url: str, *fields: Child, button: str = "", **attributes: Attribute) -> Html:
    save = h("button", button or text("save"), type="submit", class_="primary")
    return h("form", *fields, h("p", save), data_url=url, **attributes)


def text_form(url: str, words: str, *, button: str = "", **hidden: str) -> Html:
    """A form for one text, named `content`, with hidden fields."""
    rows = min(max(words.count("\n") + 2, 3), 24)
    area = h("textarea", words, name="content", rows=rows, dir="auto", aria_label=text("text"))
    fixed = [h("input", type="hidden", name=name, value=value) for name, value in hidden.items()]
    return form(url, area, *fixed, button=button)
