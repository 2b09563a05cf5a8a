"""Check a mailbox's login for `hermes gateway setup`."""

import re
from collections.abc import Mapping

from anyio.to_thread import run_sync
from msgspec import structs

from hermes.channels.email import MANIFEST, MAX_HEADER, EmailOptions
from hermes.channels.email.channel import servers_of
from hermes.channels.email.imap import ImapConnection, open_imap
from hermes.channels.email.received_mail import parse_mail
from hermes.channels.email.sender_check import parse_results
from hermes.channels.email.smtp import check_login
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

NO_RESULTS = (
    "The newest emails have no Authentication-Results: the server does not verify senders, so no "
    "email is answered. With EMAIL_TRUST_FROM_HEADER=true the From header is trusted, which "
    "anyone can forge."
)
TRUSTED = "The server calls itself {0}: EMAIL_AUTHSERV_ID={0} is stored, and no other is trusted."
UNKNOWN = (
    "The newest emails do not show the receiving server's name, without which no email is "
    "answered. Send an email to the address and run setup again, or set EMAIL_AUTHSERV_ID."
)
_NAME = re.compile(r"[\w.:/-]+")
NEWEST = 10
"""Number of emails that must agree on the server's name: a single one may be forged."""
NO_IDLE = "The server does not announce new mail (IDLE); the mailbox is checked every {:g} seconds."


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Log in to both servers. Raises `HermesError` if one does not accept it."""
    options = read_options(EmailOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    options = structs.replace(options, password=token, address=options.address.strip().lower())
    imap_server, smtp_server = servers_of(options, env)
    notes: list[str] = []
    variables: dict[str, str] = {}
    async with open_imap(imap_server) as imap:
        await imap.select(options.folder)
        if b"IDLE" not in imap.capabilities:
            notes.append(NO_IDLE.format(options.poll_interval))
        trusts_all = options.trust_from_header or not options.require_authenticated_sender
        if not trusts_all and not options.authserv_id:
            names = await _server_names(imap)
            if len(names) == 1 and _NAME.fullmatch(name := min(names)):
                variables["EMAIL_AUTHSERV_ID"] = name
                notes.append(TRUSTED.format(name))
            else:
                notes.append(NO_RESULTS if names == {""} else UNKNOWN)
    await check_login(smtp_server)
    return AccountCheck(account=options.address, notes=tuple(notes), variables=variables)


async def _server_names(imap: ImapConnection) -> set[str]:
    """Return the server names in the topmost results of the newest emails."""
    names: set[str] = set()
    for uid in (await imap.search(b"ALL"))[-NEWEST:]:
        header = await imap.header(uid, MAX_HEADER)
        mail = await run_sync(parse_mail, header) if header else None
        if mail is not None:
            results = mail.authentication_results
            names.add(parse_results(results[0]).authserv_id if results else "")
    return names
