"""Write blocks of styled text in the markup of a platform."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape as escape_html
from typing import Protocol

from msgspec import Struct

from hermes.gateway.rendering.document import BlockKind, Span, Style, TextUnit
from hermes.ports.channel import Markup

_NO_STYLES: Mapping[Style, tuple[str, str]] = {}
_INDENT = "  "
_LINES = re.compile(r"(\n)")
_FENCE, _FENCE_IN_CODE = "```", "'''"


class Dialect(Protocol):
    def unit(self, unit: TextUnit) -> str:
        """Render one unit, complete in itself."""
        ...

    def gap(self, unit: TextUnit) -> str:
        """Return what stands between the unit and the one before it."""
        ...


def _same(text: str) -> str:
    return text


def _always(before: str, after: str) -> bool:
    return True


def _between_words(before: str, after: str) -> bool:
    """Whether markup would touch a word or other markup, where some platforms show it as text."""
    return not any(one.isalnum() or one in {*"*_~`"} for one in (before, after))


def _after_space(before: str, after: str) -> bool:
    return not before or before.isspace()


def _code_only(code: str, language: str) -> str:
    return code


def _label_and_url(label: str, url: str) -> str:
    return f"{label} ({url})"


class LineDialect(Struct, frozen=True, kw_only=True):
    """A dialect of marked lines: quotes and list items begin with a marker.

    Styles never span lines, because most platforms end them there.
    """

    styles: Mapping[Style, tuple[str, str]] = _NO_STYLES
    takes_style: Callable[[str, str], bool] = _always  # given the characters around the text
    escape: Callable[[str], str] = _same
    escape_code: Callable[[str], str] = _same
    link: Callable[[str, str], str] = _label_and_url
    heading: tuple[str, str] = ("", "")
    code_block: Callable[[str, str], str] = _code_only
    quote: tuple[str, str] = ("> ", "")
    quote_lines: bool = True  # the marker precedes each line
    quote_code: bool = True  # blocks of code in quotes are quoted, too
    indent_code: bool = True  # blocks of code in lists are indented like text
    bullet: str = "•"
    rule: str = "———"

    def unit(self, unit: TextUnit) -> str:
        match unit.kind:
            case BlockKind.RULE:
                body = self.rule
            case BlockKind.CODE:
                body = self.code_block(unit.text, unit.language)
            case BlockKind.HEADING:
                inner = self._spans(unit.spans, outer=Style.BOLD)
                body = f"{self.heading[0]}{inner}{self.heading[1]}" if inner else ""
            case BlockKind.TEXT:
                body = self._spans(unit.spans)
        quoted = unit.kind is not BlockKind.CODE or self.quote_code
        return self._quoted(self._in_list(body, unit), unit.quote if quoted else 0)

    def gap(self, unit: TextUnit) -> str:
        return "\n" if unit.close else "\n\n"

    def _in_list(self, body: str, unit: TextUnit) -> str:
        if not unit.marker:
            return body
        marker = self.bullet if unit.marker == "•" else unit.marker.strip()
        indent = _INDENT * unit.depth
        if unit.kind is BlockKind.CODE and not self.indent_code:
            return f"{indent}{marker}\n{body}" if marker else body
        if not marker:
            return "\n".join(f"{indent}{_INDENT}{line}" for line in body.split("\n"))
        first, *rest = body.split("\n")
        return "\n".join(
            [f"{indent}{marker} {first}", *(f"{indent}{_INDENT}{one}" for one in rest)]
        )

    def _quoted(self, body: str, depth: int) -> str:
        if not depth:
            return body
        sign, end = self.quote
        if not self.quote_lines:
            return f"{sign}{body}{end}"
        return "\n".join(f"{sign * depth}{line}" for line in body.split("\n"))

    def _spans(self, spans: Sequence[Span], outer: Style | None = None) -> str:
        pieces = [*_by_line(spans)]
        rendered = ""
        for place, span in enumerate(pieces):
            styled = self.takes_style(*_neighbors(pieces, place))
            text = self._span(span, outer, styled=styled)
            # Where two styles meet, their markers would be misread.
            rendered += f"\u200b{text}" if rendered[-1:] == text[:1] == "*" else text
        return rendered

    def _span(self, span: Span, outer: Style | None, *, styled: bool) -> str:
        text, code = span.text, Style.CODE in span.styles
        if text == "\n":
            return text
        if not styled:
            span = Span(text, (), span.url)
        if span.url:
            label = text.strip() or span.url
            if label in (span.url, span.url.removeprefix("mailto:")):
                return self.escape(label)
            return self.link(self._styled(label, span, outer, code=code), span.url)
        return self._styled(text, span, outer, code=code)

    def _styled(self, text: str, span: Span, outer: Style | None, *, code: bool) -> str:
        bare = text.strip()
        if not bare:
            return text
        before, _, after = text.partition(bare)
        out = self.escape_code(bare) if code else self.escape(bare)
        for style in reversed(span.styles):
            opener, closer = self.styles.get(style, ("", ""))
            if style is Style.CODE and "`" in opener and "`" in out:
                out = self.escape(bare)
            elif style is not outer or not self.heading[0]:
                out = f"{opener}{out}{closer}"
        return f"{before}{out}{after}"


def _neighbors(spans: Sequence[Span], place: int) -> tuple[str, str]:
    """The characters around a span, or around its text if it begins or ends with space."""
    text = spans[place].text
    before = spans[place - 1].text[-1:] if place else ""
    after = spans[place + 1].text[:1] if place + 1 < len(spans) else ""
    return (
        text[:1] if text[:1].isspace() else before,
        text[-1:] if text[-1:].isspace() else after,
    )


def _by_line(spans: Sequence[Span]) -> Iterator[Span]:
    """Split spans at line ends."""
    for span in spans:
        for text in _LINES.split(span.text):
            if text:
                yield Span(text, span.styles, span.url)


class HtmlDialect(Struct, frozen=True):
    """HTML with block elements, as in Matrix."""

    def unit(self, unit: TextUnit) -> str:
        body = self._body(unit)
        if unit.marker.strip():
            number = unit.marker.rstrip(".")
            tag, start = ("ul", "") if number == "•" else ("ol", f' start="{number}"')
            body = f"<{tag}{start}><li>{body}</li></{tag}>"
        elif unit.marker:
            body = f"<ul>{body}</ul>"
        body = "<ul>" * unit.depth + body + "</ul>" * unit.depth
        return "<blockquote>" * unit.quote + body + "</blockquote>" * unit.quote

    def gap(self, unit: TextUnit) -> str:
        return ""

    def _body(self, unit: TextUnit) -> str:
        match unit.kind:
            case BlockKind.RULE:
                return "<hr>"
            case BlockKind.CODE:
                name = escape_html(unit.language)
                attribute = f' class="language-{name}"' if name else ""
                return f"<pre><code{attribute}>{escape_html(unit.text, quote=False)}</code></pre>"
            case BlockKind.HEADING:
                return f"<h{unit.level}>{self._spans(unit.spans)}</h{unit.level}>"
            case BlockKind.TEXT:
                inner = self._spans(unit.spans)
                return inner if unit.marker else f"<p>{inner}</p>"

    def _spans(self, spans: Sequence[Span]) -> str:
        return "".join(map(self._span, spans))

    def _span(self, span: Span) -> str:
        out = escape_html(span.text, quote=False).replace("\n", "<br>")
        for style in reversed(span.styles):
            tag = _HTML_TAGS[style]
            out = f"<{tag}>{out}</{tag}>"
        return f'<a href="{escape_html(span.url)}">{out}</a>' if span.url else out


_HTML_TAGS = {
    Style.BOLD: "strong",
    Style.ITALIC: "em",
    Style.STRIKE: "del",
    Style.CODE: "code",
}


def _escape_tags(text: str) -> str:
    return escape_html(text, quote=False)


def _anchor(label: str, url: str) -> str:
    return f'<a href="{escape_html(url)}">{label}</a>'


def _telegram_code(code: str, language: str) -> str:
    if not language:
        return f"<pre>{_escape_tags(code)}</pre>"
    name = escape_html(language)
    return f'<pre><code class="language-{name}">{_escape_tags(code)}</code></pre>'


def _fenced(code: str, language: str) -> str:
    """For platforms with fences of exactly three ticks: one in the code must not end the block."""
    body = code.replace(_FENCE, _FENCE_IN_CODE)
    return f"{_FENCE}\n{body}\n{_FENCE}"


def _escape_slack(text: str) -> str:
    return _broken_fences(_escape_tags(text))


def _slack_code(code: str, language: str) -> str:
    return _fenced(_escape_tags(code), language)


def _broken_fences(text: str) -> str:
    """Insert invisible spaces, so that ticks in the text neither begin nor end a code block."""
    return re.sub(r"`(?=``)", "`\u200b", text)


def _discord_code(code: str, language: str) -> str:
    body = _broken_fences(code)
    name = language if re.fullmatch(r"[\w+#.-]+", language) else ""
    return f"```{name}\n{body}\n```"


def _slack_link(label: str, url: str) -> str:
    target = _escape_tags(url).replace("|", "%7C")
    return f"<{target}|{label}>".replace("\n", " ")


_DISCORD_SPECIAL = re.compile(
    r"(https?://\S+)|\\|\*|`|(?<![^\W_])_|_(?![^\W_])|~~|\|\||(?<=\])\(|^(?:#{1,3}|>|-|\+)(?=\s)"
    r"|^\d+(?=\.\s)",
    re.MULTILINE,
)


def _escape_discord(text: str) -> str:
    """Escape Discord's markup characters, except within URLs."""

    def escaped(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        if found[0][0].isdecimal():
            return f"{found[0]}\\"
        return "".join(f"\\{character}" for character in found[0])

    return _DISCORD_SPECIAL.sub(escaped, text)


def _discord_link(label: str, url: str) -> str:
    target = url.replace("(", "%28").replace(")", "%29")
    return f"[{label}]({target})"


_TELEGRAM = LineDialect(
    styles={
        Style.BOLD: ("<b>", "</b>"),
        Style.ITALIC: ("<i>", "</i>"),
        Style.STRIKE: ("<s>", "</s>"),
        Style.CODE: ("<code>", "</code>"),
    },
    escape=_escape_tags,
    escape_code=_escape_tags,
    link=_anchor,
    heading=("<b>", "</b>"),
    code_block=_telegram_code,
    quote=("<blockquote>", "</blockquote>"),
    quote_lines=False,
)
_DISCORD = LineDialect(
    styles={
        Style.BOLD: ("**", "**"),
        Style.ITALIC: ("*", "*"),
        Style.STRIKE: ("~~", "~~"),
        Style.CODE: ("`", "`"),
    },
    escape=_escape_discord,
    link=_discord_link,
    heading=("**", "**"),
    code_block=_discord_code,
    bullet="-",
)
_MARKS = {
    Style.BOLD: ("*", "*"),
    Style.ITALIC: ("_", "_"),
    Style.STRIKE: ("~", "~"),
    Style.CODE: ("`", "`"),
}
_SLACK = LineDialect(
    styles=_MARKS,
    takes_style=_between_words,
    escape=_escape_slack,
    escape_code=_escape_tags,
    link=_slack_link,
    heading=("*", "*"),
    code_block=_slack_code,
    # Slack would show the markers in the code.
    quote_code=False,
)
_WHATSAPP = LineDialect(
    styles=_MARKS,
    takes_style=_between_words,
    escape=_broken_fences,
    heading=("*", "*"),
    code_block=_fenced,
    bullet="-",
)
_XMPP = LineDialect(
    styles=_MARKS,
    takes_style=_after_space,
    escape=_broken_fences,
    heading=("*", "*"),
    code_block=_fenced,
    indent_code=False,  # a fence only counts at the start of a line
)
_IRC = LineDialect(
    styles={
        Style.BOLD: ("\x02", "\x02"),
        Style.ITALIC: ("\x1d", "\x1d"),
        Style.STRIKE: ("\x1e", "\x1e"),
        Style.CODE: ("\x11", "\x11"),
    },
    heading=("\x02", "\x02"),
    bullet="*",
    rule="---",
)
PLAIN = LineDialect()
DIALECTS: Mapping[Markup, Dialect] = {
    Markup.PLAIN: PLAIN,
    Markup.DISCORD: _DISCORD,
    Markup.TELEGRAM: _TELEGRAM,
    Markup.SLACK: _SLACK,
    Markup.WHATSAPP: _WHATSAPP,
    Markup.XMPP: _XMPP,
    Markup.IRC: _IRC,
    Markup.HTML: HtmlDialect(),
}
"""Dialects by markup; Markdown itself is not rendered but split as it was written."""
