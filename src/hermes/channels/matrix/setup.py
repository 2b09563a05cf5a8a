"""Check the login of an account for `hermes gateway setup`."""

from collections.abc import Mapping
from importlib.util import find_spec

import msgspec
from msgspec import Struct, field

from hermes.channels.http_client import HttpClient, open_http_client
from hermes.channels.matrix import MANIFEST, MatrixOptions
from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.proxies import ProxySettings
from hermes.config.sections import FreeTable
from hermes.kit.clock import SystemClock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import AccountCheck, NotSent, UnknownOutcome
from hermes.ports.channel_options import read_options
from hermes.schema.errors import ConfigError, HermesError

NO_PACKAGE = (
    "The extra matrix (package matrix-nio) is not installed. See the section Extras of the README."
)
INVITE = (
    "To talk to the agent, start a chat with {} in your client. It accepts invitations from the "
    "people who may write to it."
)
FOUND = "The homeserver of {} is {}; it was saved."
UNSIGNED = (
    "Clients show the agent's device as unverified. Verify it in your client once the gateway "
    "runs; `hermes logs` shows the emoji."
)


class _Homeserver(Struct, frozen=True):
    base_url: str = ""


class _WellKnown(Struct, frozen=True):
    homeserver: _Homeserver = field(default=_Homeserver(), name="m.homeserver")


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Log in and out again. Raises `HermesError` if the server does not accept it."""
    options = read_options(MatrixOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    address = options.homeserver.strip().rstrip("/")
    address = address if "://" in address or not address else f"https://{address}"
    user = options.user_id.strip()
    if not address or not user.startswith("@") or ":" not in user:
        raise ConfigError(
            f"{user!r} is not a full user id, or no homeserver is set.",
            hint="A full id looks like @agent:example.org.",
        )
    settings = ProxySettings(options.proxy_url, "MATRIX_PROXY", env)
    async with open_http_client("The homeserver", settings) as http:
        homeserver = await _find_homeserver(http, address)
        api = ClientApi(http, homeserver, SystemClock())
        try:
            login = await api.log_in(user, token, "", "Hermes setup")
        except NotSent as error:
            raise ConfigError(f"The homeserver does not accept the login: {error}") from error
        api.token = login.access_token
        await _log_out(api)
    notes = [INVITE.format(login.user_id)]
    variables: dict[str, str] = {}
    if homeserver != address:
        variables["MATRIX_HOMESERVER"] = homeserver
        notes.append(FOUND.format(user.partition(":")[2], homeserver))
    if options.mode != "off":
        notes.append(UNSIGNED)
    if find_spec("nio") is None:
        notes.append(NO_PACKAGE)
    return AccountCheck(account=login.user_id, notes=tuple(notes), variables=variables)


async def _find_homeserver(http: HttpClient, address: str) -> str:
    """Ask the domain where its homeserver is; it may be at another address."""
    try:
        answer = await http.call("GET", f"{address}/.well-known/matrix/client", seconds=10.0)
        found = msgspec.json.decode(answer.body, type=_WellKnown)
    except (NotSent, UnknownOutcome, *JSON_ERRORS):
        return address
    return found.homeserver.base_url.rstrip("/") or address


async def _log_out(api: ClientApi) -> None:
    """The device of the check is not needed any more."""
    try:
        await api.call("POST", "/_matrix/client/v3/logout", object, {})
    except UnknownOutcome as error:
        raise HermesError(str(error)) from error
