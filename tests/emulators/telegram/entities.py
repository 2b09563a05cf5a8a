"""Parse the HTML of the Bot API as its documentation describes it."""

import re
from html import unescape

from msgspec import Struct

_TAG = re.compile(
    r"<(/?)([A-Za-z][\w-]*)((?:\s+[\w-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?)*)\s*>"
)
_NAMED = re.compile(r"&(lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);")
_TYPES = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline",
    "ins": "underline", "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough",
    "tg-spoiler": "spoiler", "span": "spoiler", "a": "text_link", "code": "code", "pre": "pre",
    "blockquote": "blockquote", "tg-emoji": "custom_emoji",
}  # fmt: skip
_COMMAND = re.compile(r"(?<![\w/])/\w{1,32}(?:@\w{3,32})?")
_MENTION = re.compile(r"(?<![\w@])@\w{4,32}")


class EntityError(ValueError):
    """The markup cannot be parsed."""


class Entity(Struct, frozen=True, omit_defaults=True):
    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def parse_html(markup: str) -> tuple[str, list[Entity]]:
    """Return the text without tags and its entities. Raises `EntityError`."""
    text, place = "", 0
    opened: list[tuple[str, int, str]] = []
    entities: list[Entity] = []
    while place < len(markup):
        if markup[place] != "<":
            end = markup.find("<", place)
            end = len(markup) if end < 0 else end
            text += _NAMED.sub(lambda found: unescape(found[0]), markup[place:end])
            place = end
            continue
        found = _TAG.match(markup, place)
        offset = len(markup[:place].encode())
        name = found[2].lower() if found else ""
        if found is None or name not in _TYPES:
            shown = re.match(r"</?([^\s>]*)", markup[place:])
            raise EntityError(
                f'Unsupported start tag "{shown[1] if shown else ""}" at byte offset {offset}'
            )
        place = found.end()
        if not found[1]:
            if name == "span" and "tg-spoiler" not in found[3]:
                raise EntityError(
                    f'Tag "span" must have class "tg-spoiler" at byte offset {offset}'
                )
            opened.append((name, utf16_length(text), found[3]))
            continue
        if not opened or opened[-1][0] != name:
            raise EntityError(f"Unmatched end tag at byte offset {offset}")
        entities += _entity(*opened.pop(), utf16_length(text))
    if opened:
        raise EntityError(f'Can\'t find end tag corresponding to start tag "{opened[-1][0]}"')
    return text, sorted(entities, key=lambda one: (one.offset, -one.length))


def _entity(name: str, start: int, attributes: str, end: int) -> list[Entity]:
    if end == start:
        return []
    url = re.search(r"href\s*=\s*[\"']?([^\"'>\s]*)", attributes)
    if name == "a" and (url is None or not re.match(r"(https?|tg|mailto|tel|ftp):", url[1])):
        return []
    language = re.search(r"language-([^\"'\s>]+)", attributes)
    return [
        Entity(
            _TYPES[name],
            start,
            end - start,
            unescape(url[1]) if name == "a" and url else "",
            language[1] if language else "",
        )
    ]


def found_entities(text: str) -> list[Entity]:
    """Commands and mentions, which the server finds in any text."""
    entities: list[Entity] = []
    for kind, pattern in (("bot_command", _COMMAND), ("mention", _MENTION)):
        for found in pattern.finditer(text):
            start = utf16_length(text[: found.start()])
            entities.append(Entity(kind, start, utf16_length(found[0])))
    return sorted(entities, key=lambda one: one.offset)
