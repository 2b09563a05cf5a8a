"""Check the tokens for `hermes gateway setup`, and say which scopes and events are missing."""

from collections.abc import Mapping

from hermes.channels.account import BadToken
from hermes.channels.proxies import ProxySettings
from hermes.channels.slack import MANIFEST, SlackOptions
from hermes.channels.slack.app_manifest import NEEDED, SCOPES, SCOPES_OF_EVENTS
from hermes.channels.slack.web_api import WebApi, open_web
from hermes.config.sections import FreeTable
from hermes.kit.clock import SystemClock
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options
from hermes.schema.errors import UsageError

MISSING = (
    "The bot token of {} lacks scopes: {}. Add them at https://api.slack.com/apps (OAuth & "
    "Permissions), then install the app again and copy the new token."
)
NO_EVENTS = "Without them, these events do not arrive: {}."
CHECK_EVENTS = (
    "Slack does not say which events the app subscribes to. If messages do not arrive, compare the "
    "page Event Subscriptions with the output of: hermes slack manifest"
)
INVITE = "In channels, invite the app: /invite @{}"


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask Slack about both tokens. Raises `HermesError` if it does not accept one."""
    options = read_options(SlackOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    tokens = [part.strip() for part in token.split(",") if part.strip()]
    user, names = "", list[str]()
    notes: list[str] = []
    async with open_web(ProxySettings(options.proxy_url, "SLACK_PROXY", env)) as web:

        def api(token: str) -> WebApi:
            return WebApi(web, token, SystemClock(), base_url=options.base_url)

        for bot_token in tokens:
            client = api(_checked(bot_token, "xoxb-", "bot"))
            identity = await client.identity()
            user, workspace = identity.user, identity.team or identity.team_id
            names.append(f"{user} in {workspace}")
            notes += _notes(workspace, client.scopes)
        try:
            await api(_checked(options.app_token, "xapp-", "app")).socket_address()
        except BadToken as error:
            raise BadToken(
                "Slack does not accept the app token.",
                hint="Create one on the page Basic Information, under App-Level Tokens, with the "
                "scope connections:write, and turn on Socket Mode.",
            ) from error
    notes += [CHECK_EVENTS, INVITE.format(user)]
    return AccountCheck(account=", ".join(names), notes=tuple(notes))


def _checked(token: str, prefix: str, what: str) -> str:
    if token.startswith(prefix):
        return token
    raise UsageError(
        f"The {what} token must begin with {prefix}.",
        hint="The steps above say where to find each token.",
    )


def _notes(workspace: str, granted: frozenset[str]) -> list[str]:
    missing = [scope for scope in SCOPES if scope not in granted]
    if not missing or not granted:
        return []
    needed = [scope for scope in missing if scope in NEEDED]
    events = [event for event, scope in SCOPES_OF_EVENTS.items() if scope in missing]
    text = MISSING.format(
        workspace, ", ".join([*needed, *(scope for scope in missing if scope not in needed)])
    )
    return [text, *([NO_EVENTS.format(", ".join(events))] if events else [])]
