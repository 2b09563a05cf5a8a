"""Offer the choices of a question as reactions to its post: Matrix has no buttons."""

from collections.abc import Sequence
from html import escape

import msgspec
from msgspec import Struct, field

from hermes.channels.matrix.objects import Event
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Choices, Outbound

FIELD = "hermes.choices"
NUMBERS = ("1️⃣", "2️⃣", "3️⃣", "4️⃣", "5️⃣")
MAX_CHOICES = len(NUMBERS)
"""Each offered reaction is an event, and homeservers limit these."""
MAX_REMEMBERED = 1_000
_EMOJI_STYLE = "\ufe0f"


class OfferedChoice(Struct, frozen=True):
    """The reaction that stands for a choice, and the value that a press of it reports."""

    sign: str
    value: str


class _Offer(Struct, frozen=True, kw_only=True):
    """The part of a message that names its choices: a later process reads them there."""

    choices: tuple[OfferedChoice, ...] = field(default=(), name=FIELD)


class ChoicePosts:
    """Knows which of our own messages offer choices."""

    def __init__(self) -> None:
        self._offered: LruMap[str, Sequence[OfferedChoice]] = LruMap(MAX_REMEMBERED)

    def remember(self, event: str, offered: Sequence[OfferedChoice]) -> None:
        if offered:
            self._offered.put(event, offered)

    def remember_event(self, own: Event) -> None:
        """Read the choices of a message that an earlier process sent."""
        try:
            self.remember(own.event_id, own.read(_Offer).choices)
        except JSON_ERRORS:
            return

    def value(self, event: str, sign: str) -> str:
        """Return the value of the choice that a reaction stands for; empty if it is none."""
        # Clients differ in whether they ask for the colored form of a character.
        bare = sign.replace(_EMOJI_STYLE, "")
        return next(
            (
                one.value
                for one in self._offered.get(event) or ()
                if one.sign.replace(_EMOJI_STYLE, "") == bare
            ),
            "",
        )


def offered_choices(post: Outbound) -> tuple[OfferedChoice, ...]:
    return tuple(
        OfferedChoice(choice.sign or number, choice.value)
        for choice, number in zip(post.choices, NUMBERS, strict=False)
    )


def choice_content(post: Outbound) -> dict[str, object]:
    """Return the field of a message that names its choices."""
    offered = offered_choices(post)
    return {FIELD: msgspec.to_builtins(offered)} if offered else {}


def legend(post: Outbound) -> list[str]:
    """Say what each reaction means, unless the text has the same numbers."""
    signs = offered_choices(post)
    listed = all(block.in_text for block in post.blocks if isinstance(block, Choices))
    if listed and not any(choice.sign for choice in post.choices):
        return []
    return [f"{one.sign} {choice.label}" for one, choice in zip(signs, post.choices, strict=False)]


def legend_html(lines: Sequence[str]) -> str:
    return f"<p>{'<br>'.join(escape(line, quote=False) for line in lines)}</p>"
