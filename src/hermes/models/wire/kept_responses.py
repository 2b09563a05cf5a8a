"""Which responses a server still has, so that a conversation goes on from one of them there."""

import re
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

from hermes.schema.messages import Assistant, Message

MOST = 1_000
"""Answers that are remembered; whoever comes back to an older one sends everything."""

_GONE = re.compile(r"previous[_ ]response", re.IGNORECASE)
_NEVER = re.compile(r"zero data retention|not support|unsupported|unknown parameter", re.IGNORECASE)
_NAMED = re.compile(r"resp_[\w-]+")


class _Kept(Struct, frozen=True):
    """`past` stands for all messages up to the answer: the server has these and no others."""

    response: str
    past: bytes


class KeptResponses:
    """By the ids of the answers. Off until somebody says that the server keeps them."""

    def __init__(self, *, on: bool) -> None:
        self.on = on
        self._known: OrderedDict[str, _Kept] = OrderedDict()

    def remember(self, answer: Assistant, asked: Sequence[Message], response: str) -> None:
        if not self.on or not response:
            return
        self._known[answer.id] = _Kept(response, _print([*asked, answer]))
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def place(self, messages: Sequence[Message]) -> tuple[str, int]:
        """The response to go on from and the first message after it; none at all is `("", 0)`."""
        if not self._known:
            return "", 0
        for at in range(len(messages) - 2, -1, -1):
            kept = self._known.get(messages[at].id)
            if kept is not None:
                same = kept.past == _print(messages[: at + 1])
                return (kept.response, at + 1) if same else ("", 0)
        return "", 0

    def learn(self, refusal: str) -> bool:
        """Whether a server complains of a response that it does not have, or never keeps."""
        if not self.on or not _GONE.search(refusal):
            return False
        named = _NAMED.search(refusal)
        gone = [key for key, kept in self._known.items() if named and kept.response == named[0]]
        if _NEVER.search(refusal) or not gone:
            gone = list(self._known)
        for key in gone:
            del self._known[key]
        if _NEVER.search(refusal):
            self.on = False
        return bool(gone)


def _print(messages: Sequence[Message]) -> bytes:
    """Messages are never changed, so their ids say what was said."""
    return sha256("\n".join(message.id for message in messages).encode()).digest()
