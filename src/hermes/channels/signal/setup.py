"""Check signal-cli's daemon and the account for `hermes gateway setup`."""

from collections.abc import Mapping

from msgspec import structs

from hermes.channels.signal import MANIFEST, SignalOptions
from hermes.channels.signal.channel import with_checked_account
from hermes.channels.signal.rpc import open_signal
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options
from hermes.schema.errors import ConfigError

NO_GROUPS = (
    "Messages in groups are not read until SIGNAL_GROUP_ALLOWED_USERS lists their ids, or *."
)
NO_PASSWORD = (
    "Anyone who can reach the daemon's port can write in your name: keep it on this machine."  # noqa: S105
)


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask the daemon for the account. Raises `HermesError` if it does not answer or have it."""
    options = read_options(SignalOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    options = with_checked_account(structs.replace(options, account=token))
    async with open_signal(options, env) as rpc:
        version, accounts = await rpc.version(), await rpc.accounts()
    if accounts and options.account not in accounts:
        raise ConfigError(
            f"signal-cli does not have the account {options.account}.",
            hint=f"It has {', '.join(sorted(accounts))}; link another: signal-cli link -n hermes",
        )
    notes = [] if options.group_allow_from else [NO_GROUPS]
    notes.append(NO_PASSWORD)
    return AccountCheck(
        account=f"{options.account} (signal-cli {version})",
        notes=tuple(notes),
        variables={"SIGNAL_HTTP_URL": options.http_url},
    )
