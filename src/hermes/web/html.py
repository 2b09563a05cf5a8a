"""Build HTML from elements; text is always escaped."""

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})

Attribute: TypeAlias = str | int | float | bool | None


class Html(str):
    """Markup made by this module; everything else is text."""

    __slots__ = ()


Child: TypeAlias = "str | Html | Iterable[Child] | None"


def h(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """One element. `class_` is `class`, other underscores become hyphens.

    An attribute that is None or False is left out; True has no value.
    """
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    parts.append(">")
    if tag in _VOID:
        return Html("".join(parts))
    parts.append(join(children))
    parts.append(f"</{tag}>")
    return Html("".join(parts))


def join(children: Iterable[Child]) -> Html:
    """Join elements and texts; None is left out."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(escape(child, quote=False))
        else:
            parts.append(join(child))
    return Html("".join(parts))


def document(title: str, body: Html, *more: Child, **attributes: Attribute) -> Html:
    """Return a whole page with our style and icon; `more` are additional elements of its head."""
    head = [
        Html('<meta charset="utf-8">'),
        h("title", f"{title} · Hermes"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("link", rel="stylesheet", href="/static/style.css"),
        h("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        *more,
    ]
    page = h("html", h("head", *head), body, lang="en", **attributes)
    return Html(f"<!doctype html>{page}")
