"""Read the part of CommonMark that answers use, independent of the parser that Hermes uses.

Blocks come first: fences, indented code, quotations, items of lists, headings and paragraphs, with
paragraphs that go on lazily. In text there are escapes, code, links, images and emphasis.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r"( {0,3})([-+*]|\d{1,9}[.)])(?: {1,4}(?=\S)|$| (?= {4}))")
_UNDERLINE = re.compile(r" {0,3}(?:-+|=+)[ \t]*")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})")
_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)(?P<code>(?:(?!(?P=ticks)).|(?P=ticks)`+)*?[^`])(?P=ticks)(?!`)"
    r"|!?\[(?P<label>(?:\\.|[^\[\]\\])*)\]\((?P<url>[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)"
    r"|<(?P<auto>(?:https?|mailto):[^\s<>]*)>|(?P<bare>https?://[^\s<]+)"
    r"|(?<![*\w])(?P<sign>\*\*|\*|__|_|~~)(?=\S)(?P<inner>(?:\\.|[^\\])+?)(?<=\S)(?P=sign)(?![*\w])",
    re.DOTALL,
)


class Shown(Struct):
    """What people see: the text, that between fences, and styles with the text of each."""

    text: str = ""
    code: str = ""
    styles: list[tuple[str, str]] = []

    def add(self, text: str) -> None:
        self.text += f"{text}\n"


def read_commonmark(source: str) -> Shown:
    """Return what a client shows."""
    shown = Shown()
    _blocks(re.split(r"\r\n|\r|\n", source), shown)
    return shown


def _blocks(lines: Sequence[str], shown: Shown) -> None:
    place = 0
    while place < len(lines):
        line = lines[place].expandtabs(4)
        if not line.strip():
            place += 1
        elif fence := _FENCE.fullmatch(line):
            place = _fence(lines, place, fence[1], shown)
        elif line.startswith("    "):
            place = _indented(lines, place, shown)
        elif _RULE.fullmatch(line):
            shown.styles.append(("rule", ""))
            place += 1
        elif _QUOTE.match(line):
            place = _quote(lines, place, shown)
        elif item := _ITEM.match(line):
            place = _item(lines, place, item, shown)
        elif heading := _HEADING.match(line):
            shown.styles.append(("heading", ""))
            shown.add(_inline(line[heading.end() :], shown))
            place += 1
        else:
            end = _paragraph_end(lines, place)
            text = "\n".join(one.strip() for one in lines[place:end])
            if end < len(lines) and _UNDERLINE.fullmatch(lines[end]):
                shown.styles.append(("heading", ""))
                end += 1
            shown.add(_inline(text, shown))
            place = end


def _fence(lines: Sequence[str], place: int, mark: str, shown: Shown) -> int:
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*")
    end = place + 1
    while end < len(lines) and not closing.fullmatch(lines[end]):
        end += 1
    text = "\n".join(lines[place + 1 : end])
    shown.code += f"{text}\n"
    shown.add(text)
    return end + 1


def _indented(lines: Sequence[str], place: int, shown: Shown) -> int:
    end = place
    while end < len(lines) and (lines[end].startswith(("    ", "\t")) or not lines[end].strip()):
        end += 1
    shown.styles.append(("indented", ""))
    shown.add("\n".join(one.expandtabs(4)[4:] for one in lines[place:end]))
    return end


def _quote(lines: Sequence[str], place: int, shown: Shown) -> int:
    inner: list[str] = []
    end = place
    while end < len(lines):
        if found := _QUOTE.match(lines[end]):
            inner.append(lines[end][found.end() :])
        elif _goes_on(lines[end], inner):
            inner.append(lines[end])
        else:
            break
        end += 1
    shown.styles.append(("quote", ""))
    _blocks(inner, shown)
    return end


def _item(lines: Sequence[str], place: int, item: re.Match[str], shown: Shown) -> int:
    width = item.end() if lines[place][item.end() :].strip() else len(item[1] + item[2]) + 1
    inner = [lines[place].expandtabs(4)[width:]]
    end = place + 1
    while end < len(lines):
        line = lines[end]
        if not line.strip() or line.startswith(" " * width):
            inner.append(line[width:])
        elif _goes_on(line, inner):
            inner.append(line)
        else:
            break
        end += 1
    shown.styles.append(("item", ""))
    number = item[2].rstrip(".)")
    shown.add(number if number.isdecimal() else "•")
    _blocks(inner, shown)
    return end


def _goes_on(line: str, before: Sequence[str]) -> bool:
    """Whether a line without the sign of a quotation or list still belongs to its paragraph."""
    return bool(line.strip()) and _in_paragraph(before) and not _begins_block(line)


def _in_paragraph(lines: Sequence[str]) -> bool:
    if not lines or not lines[-1].strip():
        return False
    return _count_open_fences(lines) == 0 and not _FENCE.fullmatch(lines[-1])


def _count_open_fences(lines: Sequence[str]) -> int:
    return sum(bool(_FENCE.fullmatch(one)) for one in lines) % 2


def _begins_block(line: str) -> bool:
    return any(one.match(line) for one in (_FENCE, _QUOTE, _HEADING, _UNDERLINE)) or bool(
        _RULE.fullmatch(line) or ((item := _ITEM.match(line)) and line[item.end() :].strip())
    )


def _paragraph_end(lines: Sequence[str], place: int) -> int:
    end = place + 1
    while end < len(lines) and lines[end].strip() and not _begins_block(lines[end]):
        end += 1
    return end


def _inline(text: str, shown: Shown) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["escaped"]:
            return found["escaped"]
        if found["ticks"]:
            shown.styles.append(("code", found["code"]))
            return found["code"]
        if found["url"] is not None:
            shown.styles.append(("link", found["url"]))
            return _inline(found["label"], shown)
        if address := found["auto"] or found["bare"]:
            return address
        shown.styles.append((found["sign"], found["inner"]))
        return _inline(found["inner"], shown)

    return _INLINE.sub(replace, text)
