"""Offer the choices of a question as reactions to its post: Matrix has no buttons."""

import logging
from collections.abc import Sequence
from html import escape

import msgspec
from msgspec import Struct, field

from hermes.channels.matrix.objects import Event, Relation
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Choices, Outbound

log = logging.getLogger(__name__)

FIELD = "hermes.choices"
REQUESTER = "hermes.requester"
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
    """The part of a message that names its choices: a later process reads them there.

    `requester` is the only one who may choose by a reaction; empty for everyone.
    """

    choices: tuple[OfferedChoice, ...] = field(default=(), name=FIELD)
    requester: str = field(default="", name=REQUESTER)


class ChoicePosts:
    """Knows which of our own messages offer choices."""

    def __init__(self, *, for_requester: bool) -> None:
        """With `for_requester`, approvals are only for the person whose request they are about."""
        self._for_requester = for_requester
        self._offers: LruMap[tuple[str, str], _Offer] = LruMap(MAX_REMEMBERED)

    def remember(self, room: str, event: str, post: Outbound) -> None:
        offer = _Offer(choices=offered_choices(post), requester=_requester(post))
        self._remember(room, event, offer)

    def remember_event(self, room: str, own: Event) -> None:
        """Read the choices of a message that an earlier process sent."""
        try:
            self._remember(room, own.event_id, own.read(_Offer))
        except JSON_ERRORS:
            return

    def _remember(self, room: str, event: str, offer: _Offer) -> None:
        if offer.choices:
            self._offers.put((room, event), offer)

    def value(self, room: str, reaction: Relation, sender: str) -> str:
        """Return the value of the choice that a reaction stands for; empty if it is none."""
        offer = self._offers.get((room, reaction.event_id)) or _Offer()
        # Clients differ in whether they ask for the colored form of a character.
        bare = reaction.key.replace(_EMOJI_STYLE, "")
        chosen = [one for one in offer.choices if one.sign.replace(_EMOJI_STYLE, "") == bare]
        if not chosen:
            return ""
        if self._for_requester and offer.requester not in {"", sender}:
            log.info("%s may not answer the request of %s", sender, offer.requester)
            return ""
        return chosen[0].value


def offered_choices(post: Outbound) -> tuple[OfferedChoice, ...]:
    return tuple(
        OfferedChoice(choice.sign or number, choice.value)
        for choice, number in zip(post.choices, NUMBERS, strict=False)
    )


def choice_content(post: Outbound) -> dict[str, object]:
    """Return the fields of a message that name its choices and whose request it is about."""
    if not (offered := offered_choices(post)):
        return {}
    requester = _requester(post)
    named = {REQUESTER: requester} if requester else {}
    return {FIELD: msgspec.to_builtins(offered), **named}


def _requester(post: Outbound) -> str:
    found = (block.requester for block in post.blocks if isinstance(block, Choices))
    return next(filter(None, found), "")


def legend(post: Outbound) -> list[str]:
    """Say what each reaction means, unless the text has the same numbers."""
    signs = offered_choices(post)
    listed = all(block.in_text for block in post.blocks if isinstance(block, Choices))
    if listed and not any(choice.sign for choice in post.choices):
        return []
    return [f"{one.sign} {choice.label}" for one, choice in zip(signs, post.choices, strict=False)]


def legend_html(lines: Sequence[str]) -> str:
    return f"<p>{'<br>'.join(escape(line, quote=False) for line in lines)}</p>"
