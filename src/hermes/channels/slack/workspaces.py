"""The workspaces of one app: each has its own bot token; chats belong to one of them."""

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.channels.slack.objects import Identity
from hermes.channels.slack.position import Position
from hermes.channels.slack.web_api import WebApi
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)


class Workspace(Struct, frozen=True):
    """A workspace and who the bot is there."""

    api: WebApi
    identity: Identity

    @property
    def team(self) -> str:
        return self.identity.team_id

    @property
    def bot(self) -> str:
        return self.identity.user_id


class Workspaces:
    """`tokens` reads the current bot tokens; `make_api` makes a client with one."""

    def __init__(
        self,
        tokens: Callable[[], Sequence[str]],
        make_api: Callable[[str], WebApi],
        position: Position,
    ) -> None:
        self._tokens = tokens
        self._make_api = make_api
        self._position = position
        self._apis = [make_api(token) for token in tokens()]
        self._known: dict[str, Workspace] = {}

    async def log_in(self) -> None:
        """Ask Slack which workspaces the current tokens belong to."""
        known = {api.token: api for api in self._apis}
        self._apis = [known.get(token) or self._make_api(token) for token in self._tokens()]
        found: dict[str, Workspace] = {}
        for api in self._apis:
            identity = await api.identity()
            if identity.team_id in found:
                raise ConfigError(
                    f"Two bot tokens belong to the workspace {identity.team or identity.team_id}.",
                    hint="Use one token per workspace in SLACK_BOT_TOKEN.",
                )
            found[identity.team_id] = Workspace(api, identity)
        self._known = found

    @property
    def known(self) -> list[Workspace]:
        return [*self._known.values()]

    def of_event(self, teams: Sequence[str]) -> Workspace | None:
        """The workspace that an event is for; None if its token is not set."""
        for team in teams:
            if team in self._known:
                return self._known[team]
        # In channels shared with other organizations, the event may name only theirs.
        return next(iter(self._known.values())) if len(self._known) == 1 else None

    async def api_of(self, chat: str) -> WebApi:
        """The client for a chat. Raises `TargetGone` if no workspace has it."""
        if len(self._apis) == 1:
            return self._apis[0]
        if not self._known:
            await self.log_in()
        if (known := self._known.get(self._position.team_of(chat))) is not None:
            return known.api
        for workspace in self._known.values():
            try:
                await self._find(workspace.api, chat)
            except (Offline, Throttled, UnknownOutcome):
                raise
            except NotSent as error:
                log.debug("%s is not in %s: %s", chat, workspace.team, error)
                continue
            self._position.set_team(chat, workspace.team)
            return workspace.api
        raise TargetGone(f"None of the workspaces has the chat {chat}.")

    async def _find(self, api: WebApi, chat: str) -> None:
        await (api.person(chat) if chat.startswith(("U", "W")) else api.chat(chat))
