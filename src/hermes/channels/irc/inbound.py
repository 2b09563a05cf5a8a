"""Turn messages of an IRC network into inbound updates."""

import re
from collections.abc import Collection

from hermes.channels.irc.batches import time_of
from hermes.channels.irc.irc_line import IrcLine, without_format
from hermes.channels.irc.login import LoginResult
from hermes.channels.irc.records import IrcRecords
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Inbound, InboundDetails
from hermes.schema.messages import Text
from hermes.schema.scope import Address

MAX_REMEMBERED = 2_000
REPLY_TAGS = ("+reply", "+draft/reply")
PERSON = "!"
"""Behind the account of a person whose name is also that of a channel."""
_CTCP = "\x01"
_ACTION = f"{_CTCP}ACTION "


class InboundBuilder:
    """Builds updates for the channel `name` on the network of `server`; `rooms` are joined."""

    def __init__(
        self,
        *,
        name: str,
        server: str,
        rooms: Collection[str],
        trust_nicknames: bool,
        records: IrcRecords,
    ) -> None:
        self._name = name
        self._server = server
        self._rooms = rooms
        self._trust_nicknames = trust_nicknames
        self._records = records
        self._own: LruMap[str, bool] = LruMap(MAX_REMEMBERED)
        """Ids of the agent's own messages: a reply to one of them is meant for it."""

    def sent(self, message_id: str) -> None:
        self._own.put(message_id, True)

    def message(self, line: IrcLine, welcome: LoginResult, nick: str) -> Inbound | None:
        """Return the update; None if the message is not meant for people.

        `nick` is the agent's current nickname.
        """
        if line.command == "NICK":
            self._records.remember_nick(line.tags["account"].lower(), line.last)
            return None
        if len(line.params) < 2:
            raise ValueError("A message needs a target and a text.")
        text = _written(line)
        if not text or "!" not in line.source or welcome.fold(line.nick) == welcome.fold(nick):
            return None
        sender = self._sender(line, welcome)
        target = line.param(0).lstrip(welcome.features.get("STATUSMSG", ""))
        direct = not welcome.is_channel(target)
        reply_to = next((line.tags[name] for name in REPLY_TAGS if line.tags.get(name)), None)
        mentioned, text = _without_mention(text, nick)
        message_id = line.tags.get("msgid", "")
        key = message_id or new_id("irc")
        return Inbound(
            f"{self._server}:{key}",
            Address(self._name, self._direct_chat(sender) if direct else welcome.fold(target)),
            sender,
            (Text(text),),
            reply_to=reply_to,
            message=key,
            about=InboundDetails(
                chat_type="dm" if direct else "group",
                chat_name=line.nick if direct else target,
                user_name=line.nick,
                bot="bot" in line.tags,
                mentions=direct or mentioned or bool(reply_to and self._own.get(reply_to)),
            ),
            written_at=time_of(line),
        )

    def _direct_chat(self, sender: str) -> str:
        """As a target of posts, `name` is the channel `#name` if the agent has joined that."""
        return f"{sender}{PERSON}" if f"#{sender}" in self._rooms else sender

    def _sender(self, line: IrcLine, welcome: LoginResult) -> str:
        """Return the account, which the network protects, or otherwise the visible address."""
        if account := line.tags.get("account", "").lower():
            self._records.remember_nick(account, line.nick)
            return account
        return (line.nick if self._trust_nicknames else line.source).lower()


def _written(line: IrcLine) -> str:
    """Return the text without styles; empty for messages between programs (CTCP)."""
    text = line.last
    if text.startswith(_ACTION):
        return f"* {line.nick} {without_format(text.removeprefix(_ACTION).rstrip(_CTCP)).strip()}"
    return "" if text.startswith(_CTCP) else without_format(text).rstrip()


def _without_mention(text: str, nick: str) -> tuple[bool, str]:
    """Return whether the text begins with the agent's nickname, and the text after it."""
    found = re.match(rf"@?{re.escape(nick)}(?:\s*[:,]\s*|\s+|$)", text, re.IGNORECASE)
    if found is None:
        return False, text
    return True, text[found.end() :] or "(no text)"
