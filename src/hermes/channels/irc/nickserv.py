"""Log in with the services of an IRC network, without telling the password to anyone else.

Anyone can take the name NickServ on a network without services. The command `NICKSERV` of a server
reaches services only; where there is none, NickServ must be an operator of the network.
"""

import logging
from collections.abc import Awaitable, Callable

import anyio

from hermes.channels.irc.irc_line import IrcLine
from hermes.ports.channel import Offline

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
NAME = "NickServ"
_NO_SERVICES = frozenset({"401", "440"})
_IS_OPERATOR, _END_OF_WHOIS, _UNKNOWN_COMMAND, _NO_SUCH_NICK = "313", "318", "421", "401"


class LoginRefused(Offline):
    """The server does not accept the password or the nickname; trying again does not help."""

    code = "login_refused"


class NickServ:
    """`read` returns the next line of the server, `is_logged_in` whether it named our account."""

    def __init__(
        self,
        read: Callable[[], Awaitable[IrcLine]],
        write: Callable[..., Awaitable[None]],
        is_logged_in: Callable[[], bool],
    ) -> None:
        self._read = read
        self._write = write
        self._is_logged_in = is_logged_in

    async def identify(self, username: str, password: str) -> None:
        """Log in. Raises `LoginRefused`; a network without services is only logged."""
        await self._write("NICKSERV", "IDENTIFY", username, password)
        with anyio.move_on_after(ANSWER_SECONDS):
            while not self._is_logged_in():
                line = await self._read()
                if line.command == _UNKNOWN_COMMAND and line.param(1).upper() == "NICKSERV":
                    if not await self._is_service():
                        return
                    await self._write("PRIVMSG", NAME, f"IDENTIFY {username} {password}")
                elif line.command == "NOTICE" and line.nick.lower() == NAME.lower():
                    log.info("NickServ: %s", line.last)
                    if _is_refusal(line.last):
                        raise LoginRefused(
                            f"NickServ does not accept the password of {username}.",
                            hint="Check IRC_NICKSERV_PASSWORD.",
                        )
                    return
                elif line.command in _NO_SERVICES:
                    _warn_of_no_services()
                    return

    async def _is_service(self) -> bool:
        """Whether NickServ exists. Raises `LoginRefused` if it is an ordinary user."""
        await self._write("WHOIS", NAME)
        is_operator = False
        while True:
            line = await self._read()
            if line.command == _NO_SUCH_NICK:
                _warn_of_no_services()
                return False
            if line.param(1).lower() != NAME.lower():
                continue
            is_operator |= line.command == _IS_OPERATOR
            if line.command == _END_OF_WHOIS and is_operator:
                return True
            if line.command == _END_OF_WHOIS:
                raise LoginRefused(
                    "NickServ is an ordinary user on this network, so the password was not sent.",
                    hint="Use a server with SASL, or remove IRC_NICKSERV_PASSWORD.",
                )


def _warn_of_no_services() -> None:
    log.warning("the IRC network has no NickServ; the nickname is not protected")


def _is_refusal(text: str) -> bool:
    words = text.lower()
    return any(reason in words for reason in ("invalid", "incorrect", "failed", "not registered"))
