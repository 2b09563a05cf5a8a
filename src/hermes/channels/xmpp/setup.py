"""Check an XMPP login for `hermes gateway setup`."""

from collections.abc import Mapping

from msgspec import structs

from hermes.channels.xmpp import MANIFEST, XmppOptions
from hermes.channels.xmpp.channel import account_of
from hermes.channels.xmpp.connection import RequestRefused, open_xmpp
from hermes.channels.xmpp.stanzas import archive_query
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

NOT_ENCRYPTED = (
    "Chats are encrypted up to the server, not end to end: people must turn off OMEMO in them."
)
NO_ARCHIVE = (
    "The server keeps no archive (XEP-0313): what is written while the gateway is down may be lost."
)


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Log in. Raises `HermesError` if the server does not accept it."""
    options = read_options(XmppOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    options = structs.replace(options, password=token, jid=options.jid.strip())
    account = account_of(options, env)
    notes = [NOT_ENCRYPTED]
    async with open_xmpp(
        account,
        on_message=lambda xml: None,
        on_presence=lambda xml: None,
        on_data=lambda: None,
    ) as connection:
        try:
            query = archive_query("setup", after=None, start=None, max_results=1)
            await connection.ask("set", connection.own, query)
        except RequestRefused:
            notes.append(NO_ARCHIVE)
        return AccountCheck(account=connection.own, notes=tuple(notes))
