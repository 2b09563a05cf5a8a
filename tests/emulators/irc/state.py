"""What an emulated IRC network knows: accounts, channels, and every message."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import anyio
from msgspec import Struct

from hermes.channels.irc.irc_line import IrcLine

CAPABILITIES: Mapping[str, str] = {
    "message-tags": "", "server-time": "", "echo-message": "", "labeled-response": "",
    "batch": "", "account-tag": "", "sasl": "PLAIN,EXTERNAL", "draft/chathistory": "",
    "draft/multiline": "max-bytes=4096,max-lines=24",
}  # fmt: skip


class EmulatedMessage(Struct, frozen=True, kw_only=True):
    """A message; `tags` are those of its sender."""

    id: str
    at: datetime
    source: str
    target: str
    text: str
    account: str = ""
    tags: Mapping[str, str] = {}

    def line(self, text: str, more: Mapping[str, str]) -> IrcLine:
        time = self.at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        account = {"account": self.account} if self.account else {}
        tags = {"time": time, "msgid": self.id, **account, **self.tags, **more}
        return IrcLine("PRIVMSG", (self.target, text), self.source, tags)


class EmulatedIrc:
    """`passwords` are those of accounts, `keys` those of channels.

    `nickserv` is how to reach NickServ: by the `command`, as an `operator` by messages, or empty;
    an `impostor` is a user who took the name. `refusal` is the numeric with which every message is
    refused. A `deaf` server reads, but says nothing; a `closed` one ends every new connection.
    """

    def __init__(
        self,
        passwords: Mapping[str, str],
        capabilities: Mapping[str, str] = CAPABILITIES,
        *,
        server_password: str = "",
        certificate_account: str = "",
    ) -> None:
        self.passwords = passwords
        self.capabilities = capabilities
        self.server_password = server_password
        self.certificate_account = certificate_account
        self.keys: dict[str, str] = {}
        self.messages: list[EmulatedMessage] = []
        self.taken: set[str] = set()
        self.commands: list[str] = []
        self.nickserv: Literal["command", "operator", "impostor", ""] = "command"
        self.refusal = ""
        self.deaf = False
        self.closed = False
        self.connections = 0
        self.changed = anyio.Event()

    def add(
        self,
        source: str,
        target: str,
        text: str,
        account: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> EmulatedMessage:
        message = EmulatedMessage(
            id=f"m{len(self.messages) + 1}",
            at=datetime.now(UTC),
            source=source,
            target=target,
            text=text,
            account=account,
            tags=tags or {},
        )
        self.messages.append(message)
        self.notify()
        return message

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()
