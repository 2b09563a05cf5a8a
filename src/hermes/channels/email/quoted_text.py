"""Separate what the sender wrote from what the mail quotes, forwards or signs."""

import re

from msgspec import Struct

from hermes.kit.html_text import html_text

_QUOTE = re.compile(r"\s*>")
_SIGNATURE = "-- "
_ATTRIBUTION = re.compile(
    r"(On|Am|Le|El|Il|Op|Em|Den|W dniu)\b.{3,300}"
    r"(wrote|schrieb.*|a écrit|escribió|ha scritto|schreef.*|escreveu|skrev.*|napisał\(a\))\s?:",
    re.DOTALL,
)
_ORIGINAL = re.compile(
    r"\s*(-{2,}\s*(Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original|"
    r"Forwarded message|Weitergeleitete Nachricht|Forwarded by)\b.*|"
    r"Begin forwarded message:|Anfang der weitergeleiteten Nachricht:)\s*",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s*_{20,}\s*")
_HEADER_LINE = re.compile(r"\s*\*?(From|Von|De|Da)\s?:\*?\s+\S", re.IGNORECASE)
_NEXT_HEADER = re.compile(
    r"\s*\*?(Sent|Date|To|Gesendet|Datum|An|Envoyé|Enviado|Inviato)\s?:\*?\s", re.IGNORECASE
)
_SUBJECT_LINE = re.compile(
    r"\s*\*?(Subject|Betreff|Objet|Asunto|Oggetto|Assunto|Onderwerp)\s?:\*?\s", re.IGNORECASE
)
MAX_HEADER_LINES = 6
MAX_ATTRIBUTION = 600
# Neither pattern looks beyond the next tag: a mail may consist of unclosed tags.
_BLOCKQUOTE = re.compile(r"<(/?)blockquote\b[^<>]*>", re.IGNORECASE)
_QUOTE_MARK = re.compile(
    r"<[a-z]+\b[^<>]{0,400}?(?:class|id)\s*=\s*[\"']?"
    r"(?:gmail_quote|gmail_attr|moz-cite-prefix|yahoo_quoted|divRplyFwdMsg|appendonsend|"
    r"protonmail_quote|x_divRplyFwdMsg)\b",
    re.IGNORECASE,
)


class SplitText(Struct, frozen=True):
    """`written` is the sender's own text; `quoted` is what others wrote.

    `follows`: some of the text is below a quotation, and may be an answer to it.
    """

    written: str
    quoted: str
    follows: bool = False


def split_plain(text: str) -> SplitText:
    """Split plain text: lines with `>`, and all after the header of a quoted mail, are quoted.

    A signature is left out, but not what is quoted below it.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    written: list[str] = []
    quoted: list[str] = []
    place, is_signature, follows = 0, False, False
    while place < len(lines):
        line = lines[place]
        is_signature = is_signature or line == _SIGNATURE
        if _is_rest_quoted(lines, place):
            quoted += [_unquoted(line) for line in lines[place:]]
            break
        if length := _attribution_length(lines, place):
            place += length
            continue
        if _QUOTE.match(line):
            quoted.append(_unquoted(line))
        elif not is_signature:
            written.append(line)
            follows = follows or bool(quoted and line.strip())
        place += 1
    return SplitText(_tidy(written), _tidy(quoted), follows)


def split_html(html: str) -> SplitText:
    """Split HTML: everything in `blockquote`, and after a mail program's quote mark, is quoted."""
    mark = _QUOTE_MARK.search(html)
    own, rest = (html[: mark.start()], html[mark.start() :]) if mark else (html, "")
    outside: list[str] = []
    inside: list[str] = []
    depth = start = 0
    for tag in _BLOCKQUOTE.finditer(own):
        (inside if depth else outside).append(own[start : tag.start()])
        depth = max(0, depth - 1) if tag[1] else depth + 1
        start = tag.end()
    (inside if depth else outside).append(own[start:])
    follows = any(html_text(part).strip() for part in outside[1:])
    if mark and not html_text("".join(outside)).strip():
        # The answer is below the quotation.
        outside = [_BLOCKQUOTE.split(rest)[-1]]
        rest = rest[: -len(outside[0])] if outside[0] else rest
        follows = True
    split = split_plain(html_text("<br>".join(outside)))
    quoted = [split.quoted, html_text("<br>".join([*inside, rest]))]
    return SplitText(split.written, "\n\n".join(filter(None, quoted)), follows or split.follows)


def _is_rest_quoted(lines: list[str], place: int) -> bool:
    """Whether a whole mail follows, as Outlook and forwarding insert it."""
    line = lines[place]
    if _ORIGINAL.fullmatch(line):
        return True
    following = lines[place + 1 : place + 1 + MAX_HEADER_LINES]
    if _RULE.fullmatch(line):
        return bool(_HEADER_LINE.match(next(filter(str.strip, following), "")))
    return (
        bool(_HEADER_LINE.match(line))
        and "@" in line
        and any(map(_NEXT_HEADER.match, following))
        and any(map(_SUBJECT_LINE.match, following))
    )


def _attribution_length(lines: list[str], place: int) -> int:
    """Return how many lines introduce a quotation (“… wrote:”); mail programs wrap them."""
    for length in range(1, 4):
        part = "\n".join(lines[place : place + length]).strip()
        if len(part) > MAX_ATTRIBUTION:
            break
        following = [line for line in lines[place + length : place + length + 2] if line.strip()]
        is_end = place + length >= len(lines) or not following
        if _ATTRIBUTION.fullmatch(part) and (is_end or _QUOTE.match(following[0])):
            return length
    return 0


def _unquoted(line: str) -> str:
    return re.sub(r"^(\s*> ?)+", "", line)


def _tidy(lines: list[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip()
