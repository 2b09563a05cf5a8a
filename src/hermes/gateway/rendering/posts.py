"""Turn the blocks of a message into the posts of a channel: rendered, cut, with fallbacks."""

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from msgspec import Struct

from hermes.gateway.rendering.dialects import DIALECTS, PLAIN, Dialect
from hermes.gateway.rendering.document import BlockKind, Span, TextUnit, parse_markdown
from hermes.gateway.rendering.length import LENGTH_IN, LengthFunction, count_graphemes
from hermes.gateway.rendering.source import MIN_UNITS, ChunkLimits, split_text
from hermes.kit.graphemes import last_boundary
from hermes.kit.text import one_line
from hermes.ports.channel import (
    Attachment,
    Block,
    ChannelCapabilities,
    Choice,
    Choices,
    Code,
    Markup,
    Outbound,
)
from hermes.schema.messages import Text

_BREAKS = (
    re.compile(r"\n"),
    re.compile(r"[!?\u2026.][\"')\]\u00bb\u2019\u201d]*\s+|[\u3002\uff01\uff1f]"),
    re.compile(r"\s+|[\u3001\uff0c\uff1a\uff1b]"),
)
"""Where text is cut, best first: lines, sentences, words."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Invisible characters that are formatting codes on IRC and break XML and mails."""


class RenderedText(Struct, frozen=True):
    """The text of one post, and the same without markup."""

    text: str
    plain: str


def compose_posts(
    blocks: Sequence[Block], caps: ChannelCapabilities, *, reserved: int = 0
) -> list[Outbound]:
    """Return the posts to send, in order; the same blocks always give the same posts.

    `reserved` units of each post are left free.
    """
    match blocks:
        case (Text(text),):
            source, attachments, choices = [text], list[Attachment](), list[Choice]()
        case _:
            source, attachments, choices = _sorted(blocks)
    sent = [one for one in attachments if _fits(one, caps)]
    notes = [_not_sent(one, caps) for one in attachments if one not in sent]
    as_buttons = 0 < len(choices) <= caps.buttons
    if not as_buttons:
        source += [_numbered(one) for one in blocks if isinstance(one, Choices)]
    markdown = "\n\n".join(filter(str.strip, [*source, *notes]))
    posts = [
        Outbound((Text(one.text),), markup=caps.markup, plain=one.plain)
        for one in render_text(markdown, caps, reserved=reserved)
    ]
    if as_buttons and posts:
        last = posts[-1]
        offered = [one for one in blocks if isinstance(one, Choices)]
        labeled = Choices(
            _labeled(choices, caps.button_label),
            in_text=all(one.in_text for one in offered),
            requester=next((one.requester for one in offered if one.requester), ""),
        )
        posts[-1] = Outbound((*last.blocks, labeled), None, last.markup, last.plain)
    return posts + [Outbound((one,), plain=one.caption) for one in sent]


def render_text(
    markdown: str, caps: ChannelCapabilities, *, reserved: int = 0
) -> list[RenderedText]:
    """Render Markdown into posts that fit; blank text gives none."""
    markdown = _CONTROLS.sub("", markdown)
    units, length = max(caps.max_text - reserved, MIN_UNITS), LENGTH_IN[caps.unit]
    if caps.markup is Markup.MARKDOWN:
        chunks = split_text(markdown, ChunkLimits(units, length))
        return [RenderedText(chunk.text, chunk.text) for chunk in chunks]
    packer = _Packer(DIALECTS[caps.markup], length, units)
    return [one for one in packer.pack(parse_markdown(markdown)) if one.plain.strip()]


def _sorted(blocks: Sequence[Block]) -> tuple[list[str], list[Attachment], list[Choice]]:
    source: list[str] = []
    attachments: list[Attachment] = []
    choices: list[Choice] = []
    for block in blocks:
        match block:
            case Text(text):
                source.append(text)
            case Code(text, language):
                longest = max(map(len, re.findall(r"`+", text)), default=0)
                ticks = "`" * max(3, longest + 1)
                source.append(f"{ticks}{language}\n{text}\n{ticks}")
            case Attachment():
                attachments.append(block)
            case Choices(some):
                choices += some
            case _:
                assert_never(block)
    return source, attachments, choices


def _labeled(choices: Sequence[Choice], limit: int) -> tuple[Choice, ...]:
    """Shorten labels to the limit; those that are then blank or equal get a number."""
    labels = [one_line(one.label, limit) for one in choices]
    return tuple(
        Choice(
            label
            if label and labels.count(label) == 1
            else one_line(f"{number}. {one.label}", limit),
            one.value,
            one.sign,
        )
        for number, (one, label) in enumerate(zip(choices, labels, strict=True), 1)
    )


def _numbered(choices: Choices) -> str:
    lines = [f"{number}. {one.label}" for number, one in enumerate(choices.choices, 1)]
    return "" if choices.in_text else "\n".join(lines)


def _fits(attachment: Attachment, caps: ChannelCapabilities) -> bool:
    return 0 < attachment.size <= caps.media_out.limit_for(attachment.media.media_type)


def _not_sent(attachment: Attachment, caps: ChannelCapabilities) -> str:
    name = one_line(attachment.media.name, 100) or "A file"
    limit = caps.media_out.limit_for(attachment.media.media_type)
    if not limit:
        why = "this platform does not support this type of file"
    elif not attachment.size:
        why = "it is empty"
    else:
        why = f"it has {_size(attachment.size)}, and this platform accepts {_size(limit)}"
    caption = f" {attachment.caption}" if attachment.caption else ""
    return f"`{name.replace('`', chr(39))}` was not sent: {why}.{caption}"


def _size(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 1_000_000 else f"{max(count // 1000, 1)} KB"


class _OpenPost:
    """The units of one post so far, rendered."""

    def __init__(self, dialect: Dialect, length: LengthFunction) -> None:
        self._dialect = dialect
        self._length = length
        self.text = ""
        self.plain = ""
        self._sizes = (0, 0)

    def size_with(self, unit: TextUnit) -> int:
        """The length of the post if the unit were added, with or without markup."""
        text, plain = self._added(unit)
        return max(self._sizes[0] + self._length(text), self._sizes[1] + self._length(plain))

    def add(self, unit: TextUnit) -> None:
        text, plain = self._added(unit)
        self.text += text
        self.plain += plain
        self._sizes = (self._sizes[0] + self._length(text), self._sizes[1] + self._length(plain))

    @property
    def size(self) -> int:
        return max(self._sizes)

    def _added(self, unit: TextUnit) -> tuple[str, str]:
        text, plain = self._dialect.unit(unit), PLAIN.unit(unit)
        if not self._sizes[0]:
            return text, plain
        return self._dialect.gap(unit) + text, PLAIN.gap(unit) + plain


class _Packer:
    """Packs units into posts; a unit is cut only if it does not fit into a post of its own."""

    def __init__(self, dialect: Dialect, length: LengthFunction, room: int) -> None:
        self._dialect = dialect
        self._length = length
        self._room = room
        # A grapheme can have several characters; every other unit has at least one per character.
        self._most = 4 * room if length is count_graphemes else room

    def pack(self, units: Sequence[TextUnit]) -> Iterator[RenderedText]:
        held = self._empty()
        waiting = list(reversed(units))
        while waiting:
            unit = waiting.pop()
            if self._fits(held, unit):
                held.add(unit)
                continue
            alone = self._fits(self._empty(), unit)
            first, rest = None, unit
            if not held.size or not (alone or held.size >= self._room // 2):
                first, rest = self._cut(held, unit)
            if first is not None:
                held.add(first)
            yield RenderedText(held.text, held.plain)
            held = self._empty()
            if rest is not None:
                waiting.append(rest)
        if held.size:
            yield RenderedText(held.text, held.plain)

    def _fits(self, held: _OpenPost, unit: TextUnit) -> bool:
        # The characters are counted first, because rendering a long unit takes time.
        return len(unit.text) <= self._most and held.size_with(unit) <= self._room

    def _empty(self) -> _OpenPost:
        return _OpenPost(self._dialect, self._length)

    def _cut(self, held: _OpenPost, unit: TextUnit) -> tuple[TextUnit | None, TextUnit | None]:
        """Split the unit so that its first part fits after the units of the open post.

        Without a first part, the unit needs a post of its own.
        """
        text = unit.text
        low, high = 0, min(len(text), self._most)
        while low < high:
            middle = (low + high + 1) // 2
            if held.size_with(unit.head(middle)) <= self._room:
                low = middle
            else:
                high = middle - 1
        at = self._border(unit, text, low) if low < len(text) else low
        while at > 0 and held.size_with(unit.head(at)) > self._room:
            at = last_boundary(text, at - 1, 0)
        if at <= 0:
            if held.size:
                return None, unit
            # Not even one character fits together with its markup.
            return _bare(unit, max(low, 1))
        rest = _without_leading_space(unit.tail(at))
        return unit.head(len(text[:at].rstrip()) or at), rest if rest.text.strip() else None

    def _border(self, unit: TextUnit, text: str, fit: int) -> int:
        """Return the best place to cut at or before `fit`, outside links if possible."""
        patterns = _BREAKS[:1] if unit.kind is BlockKind.CODE else _BREAKS
        for pattern in patterns:
            ends = [one.end() for one in pattern.finditer(text, fit // 2, fit + 1)]
            for end in reversed(ends):
                if end <= fit and not _in_link(unit, end):
                    return end
        start = _in_link(unit, fit)
        return last_boundary(text, start or fit, 0) or fit


def _in_link(unit: TextUnit, at: int) -> int:
    """Return where the link around `at` starts, or 0."""
    start = 0
    for span in unit.spans:
        if start < at < start + len(span.text):
            return start if span.url else 0
        start += len(span.text)
    return 0


def _bare(unit: TextUnit, at: int) -> tuple[TextUnit, TextUnit | None]:
    """Cut off text without style, link or list marker, which takes the least room."""
    plain = TextUnit(spans=tuple(Span(one.text) for one in unit.head(at).spans))
    rest = unit.tail(at)
    return plain, rest if rest.text else None


def _without_leading_space(unit: TextUnit) -> TextUnit:
    """Drop white space at a cut; code keeps its indentation."""
    text = unit.text
    kept = text.lstrip("\n" if unit.kind is BlockKind.CODE else None)
    return unit.tail(len(text) - len(kept)) if kept != text else unit
