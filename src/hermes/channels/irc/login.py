"""Log in to an IRC server: capabilities, SASL or NickServ, and nickname."""

import base64
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from hermes.channels.irc.connection import IrcConnection, deadline
from hermes.channels.irc.irc_line import MAX_LINE, IrcLine, fold_case
from hermes.channels.irc.nickserv import LoginRefused, NickServ
from hermes.ports.channel import Offline

LOGIN_SECONDS = 40.0
MAX_NICKS = 6
SASL_CHUNK = 400
WANTED = (
    "message-tags", "server-time", "echo-message", "labeled-response", "batch", "account-tag",
    "sasl", "draft/chathistory", "chathistory", "draft/multiline",
    "multiline", "cap-notify",
)  # fmt: skip
"""Capabilities to request if the server has them."""
_NICK_TAKEN = frozenset({"433", "436", "437"})
_SASL_ENDS = frozenset({"902", "904", "905", "906", "908"})
Features: TypeAlias = Mapping[str, str]


class IrcLogin(Struct, frozen=True, kw_only=True):
    """Who logs in; `mechanism` is the SASL mechanism, empty without an account."""

    nickname: str
    server_password: str = ""
    mechanism: str = ""
    username: str = ""
    password: str = ""


class LoginResult(Struct, frozen=True, kw_only=True):
    """The outcome of a login.

    `source` is how others see the agent, `account` its account if it is logged in.
    """

    nick: str
    source: str
    account: str
    capabilities: Features
    features: Features

    def has(self, capability: str) -> bool:
        return capability in self.capabilities

    def capability_name(self, name: str) -> str:
        """Return the server's name for a capability that may be a draft; empty if it has none."""
        return next((spelling for spelling in (name, f"draft/{name}") if self.has(spelling)), "")

    def fold(self, name: str) -> str:
        return fold_case(name, self.features.get("CASEMAPPING", "rfc1459"))

    def is_channel(self, target: str) -> bool:
        return target[:1] in (self.features.get("CHANTYPES") or "#&") and bool(target)

    @property
    def line_limit(self) -> int:
        limit = self.features.get("LINELEN", "")
        return max(int(limit), MAX_LINE) if limit.isdecimal() else MAX_LINE


class LoginDialog:
    """Runs the login on a new connection; used once."""

    def __init__(self, connection: IrcConnection, login: IrcLogin) -> None:
        self._connection = connection
        self._login = login
        self._offered: dict[str, str] = {}
        self._enabled: dict[str, str] = {}
        self._features: dict[str, str] = {}
        self._nick = login.nickname
        self._account = ""
        self._refusals = 0

    async def run(self) -> LoginResult:
        """Raises `LoginRefused`, or `Offline` if the server is gone."""
        login, write = self._login, self._connection.write
        with deadline(LOGIN_SECONDS):
            await write("CAP", "LS", "302")
            if login.server_password:
                await write("PASS", login.server_password)
            await write("NICK", self._nick)
            await write("USER", _user_name(login.nickname), "0", "*", login.nickname)
            await self._until_welcome()
            await write("USERHOST", self._nick)
            source = await self._until_source()
        if login.password and not self._account:
            services = NickServ(self._next, self._connection.write, lambda: bool(self._account))
            await services.identify(login.username, login.password)
        return LoginResult(
            nick=self._nick,
            source=source,
            account=self._account,
            capabilities=self._enabled,
            features=self._features,
        )

    async def _until_welcome(self) -> None:
        while True:
            line = await self._next()
            match line.command:
                case "001":
                    self._nick = line.param(0)
                    return
                case "CAP":
                    await self._handle_capabilities(line)
                case "AUTHENTICATE":
                    await self._answer_challenge(line.last)
                case "903":
                    await self._connection.write("CAP", "END")
                case "432":
                    raise LoginRefused(
                        f"The IRC server does not allow the nickname {self._nick}.",
                        hint="Choose another one: IRC_NICKNAME.",
                    )
                case "464" | "465":
                    raise LoginRefused(
                        f"The IRC server refuses the login: {line.last}",
                        hint="Check IRC_SERVER_PASSWORD.",
                    )
                case command if command in _NICK_TAKEN:
                    await self._try_another_nick()
                case command if command in _SASL_ENDS:
                    raise LoginRefused(
                        f"The IRC server does not accept the login of {self._login.username}: "
                        f"{line.last}",
                        hint="Check IRC_SASL_USERNAME and IRC_NICKSERV_PASSWORD.",
                    )
                case _:
                    pass

    async def _until_source(self) -> str:
        """Read the server's capabilities until it reports how others see the agent."""
        while True:
            line = await self._next()
            if line.command == "302":
                user = line.last.strip().partition("=")[2][1:]
                return f"{self._nick}!{user}" if "@" in user else self._nick

    async def _next(self) -> IrcLine:
        line = await self._connection.read()
        match line.command:
            case "PING":
                await self._connection.write("PONG", line.last)
            case "ERROR":
                raise Offline(f"The IRC server ended the connection: {line.last}")
            case "005":
                for feature in line.params[1:-1]:
                    name, _, value = feature.partition("=")
                    self._features[name] = value
            case "900":
                self._account = line.param(2)
            case _:
                pass
        return line

    async def _handle_capabilities(self, line: IrcLine) -> None:
        match line.param(1).upper():
            case "LS":
                for capability in line.last.split():
                    name, _, value = capability.partition("=")
                    self._offered[name] = value
                if line.param(2) != "*":
                    await self._request()
            case "ACK":
                self._enabled |= {
                    name: self._offered.get(name, "")
                    for name in line.last.split()
                    if not name.startswith("-")
                }
                await self._begin_sasl()
            case "NAK":
                await self._connection.write("CAP", "END")
            case _:
                pass

    async def _request(self) -> None:
        wanted = [name for name in WANTED if name in self._offered]
        if not self._login.mechanism and "sasl" in wanted:
            wanted.remove("sasl")
        if wanted:
            await self._connection.write("CAP", "REQ", " ".join(wanted))
        else:
            await self._connection.write("CAP", "END")

    async def _begin_sasl(self) -> None:
        offered = self._offered.get("sasl", "").upper().split(",")
        mechanism = self._login.mechanism
        if "sasl" not in self._enabled or not mechanism:
            await self._connection.write("CAP", "END")
        elif offered != [""] and mechanism not in offered:
            raise LoginRefused(
                f"The IRC server does not offer login with {mechanism}.",
                hint="Set sasl_mechanism to auto, plain or none.",
            )
        else:
            await self._connection.write("AUTHENTICATE", mechanism)

    async def _answer_challenge(self, challenge: str) -> None:
        if challenge != "+":
            return
        login = self._login
        plain = f"{login.username}\0{login.username}\0{login.password}"
        credentials = login.username if login.mechanism == "EXTERNAL" else plain
        data = base64.b64encode(credentials.encode()).decode()
        for start in range(0, len(data), SASL_CHUNK):
            await self._connection.write("AUTHENTICATE", data[start : start + SASL_CHUNK])
        if len(data) % SASL_CHUNK == 0:
            await self._connection.write("AUTHENTICATE", "+")

    async def _try_another_nick(self) -> None:
        self._refusals += 1
        if self._refusals >= MAX_NICKS:
            raise LoginRefused(
                f"The nickname {self._login.nickname} and its variants are in use.",
                hint="Choose another one: IRC_NICKNAME.",
            )
        self._nick = f"{self._login.nickname}{'_' * self._refusals}"
        await self._connection.write("NICK", self._nick)


def _user_name(nickname: str) -> str:
    letters = "".join(
        letter for letter in nickname.lower() if letter.isascii() and letter.isalnum()
    )
    return letters[:9] or "hermes"
