"""Check an IRC login for `hermes gateway setup`."""

from collections.abc import Mapping

from msgspec import structs

from hermes.channels.irc import MANIFEST, IrcOptions
from hermes.channels.irc.channel import account_of
from hermes.channels.irc.connection import open_connection
from hermes.channels.irc.login import LoginDialog
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

NICK_TAKEN = "The nickname {} is in use; the agent is called {} until it is free."
NO_ACCOUNT = "The agent is not logged in to an account: anyone could take its nickname."
NO_ACCOUNT_TAGS = (
    "The server does not say which account a message is from. People are known as nick!user@host, "
    "or with IRC_TRUST_NICKNAMES=true by their nicknames, which anyone can take."
)
NO_HISTORY = (
    "The server keeps no history that clients can request: messages that are written while the "
    "gateway is down are lost, except in channels that replay them when it joins."
)


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Log in. Raises `HermesError` if the server does not accept it."""
    options = read_options(IrcOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    options = structs.replace(options, nickserv_password=token or options.nickserv_password)
    server, login = account_of(options, MANIFEST.name, env)
    async with open_connection(server) as connection:
        welcome = await LoginDialog(connection, login).run()
        await connection.write("QUIT", "")
    notes: list[str] = []
    if welcome.nick != login.nickname:
        notes.append(NICK_TAKEN.format(login.nickname, welcome.nick))
    if not welcome.account:
        notes.append(NO_ACCOUNT)
    if not welcome.has("account-tag"):
        notes.append(NO_ACCOUNT_TAGS)
    if not welcome.capability_name("chathistory"):
        notes.append(NO_HISTORY)
    network = welcome.features.get("NETWORK", server.host)
    return AccountCheck(account=f"{welcome.nick} on {network}", notes=tuple(notes))
