"""Run slash commands typed on the page."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.app.build import App
from hermes.app.command_services import command_services
from hermes.commands.command import CommandContext
from hermes.commands.registry import is_command, standard_commands
from hermes.commands.surface import (
    CommandCaller,
    ConversationActivity,
    LocalControl,
    StopResult,
    Surface,
)
from hermes.schema.errors import UsageError
from hermes.schema.sessions import Session
from hermes.schema.terminal import (
    BusyMode,
    QuitReply,
    ResumedReply,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.session.conversation import Conversation
from hermes.web.conversations import SOURCE, Conversations, Parts
from hermes.web.texts import text


class CommandOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a command: text, another session, a message to submit.

    `unsaved` names a conversation without a message that the next request may continue.
    """

    text: str = ""
    session: str = ""
    unsaved: str = ""
    changed: bool = False
    is_diff: bool = False
    submit: Parts = ()


class CommandSummary(Struct, frozen=True):
    name: str
    usage: str
    summary: str


class WebCommands:
    def __init__(self, app: App, conversations: Conversations) -> None:
        self._app = app
        self._conversations = conversations

    async def run(self, session: str, line: str, unsaved: str = "") -> CommandOutcome | None:
        """None if the line is not a command. Raises `UsageError` for an unknown one."""
        if not is_command(line):
            return None
        conversation = await self._conversations.conversation(session, unsaved)
        reply = await standard_commands().run(self._context(conversation), line)
        now = conversation.session.id
        moved = "" if now == session or not conversation.started else now
        kept = "" if conversation.started else self._conversations.keep(conversation)
        match reply:
            case TextReply(text=words, undone=undone, is_diff=is_diff):
                return CommandOutcome(
                    text=words, session=moved, unsaved=kept, changed=bool(undone), is_diff=is_diff
                )
            case ResumedReply():
                return CommandOutcome(text=reply.message, session=now)
            case SubmitReply(parts=parts, notice=notice, undone=undone):
                return CommandOutcome(
                    text=notice, session=moved, unsaved=kept, submit=parts, changed=bool(undone)
                )
            case QuitReply() | ScreenReply():
                return CommandOutcome(text=text("not_on_page"))

    async def summaries(self) -> Sequence[CommandSummary]:
        """The commands that the page offers."""
        context = self._context(await self._conversations.conversation(""))
        offered = [
            command for command in standard_commands().commands if command.is_offered(context)
        ]
        found = [CommandSummary(one.name, one.usage, one.summary) for one in offered]
        return sorted(found, key=lambda one: one.name)

    async def models(self) -> Sequence[str]:
        """Return the models in the settings, as `/model` accepts them."""
        offers = command_services(self._app).model_offers
        return await offers.offers() if offers is not None else ()

    def _context(self, conversation: Conversation) -> CommandContext:
        return CommandContext(
            conversation,
            self._app.models,
            self._app,
            caller=CommandCaller(
                surface=Surface.TERMINAL,
                platform=SOURCE,
                control=_PageControl(conversation, self._conversations),
            ),
            services=command_services(self._app),
        )


class _PageControl(LocalControl):
    """Lets commands act on the turn that the page shows, whichever surface started it."""

    def __init__(self, conversation: Conversation, conversations: Conversations) -> None:
        super().__init__(conversation)
        self._session: Session = conversation.session
        self._conversations = conversations

    def activity(self) -> ConversationActivity:
        session = self._session.id
        queued = len(self._conversations.queued(session))
        running = self._conversations.is_running(session)
        return ConversationActivity(running=running, queued=queued)

    async def stop(self, run: str = "") -> StopResult:
        if not self._conversations.is_running(self._session.id):
            if await self._conversation.is_running():
                raise UsageError(text("not_running_here"))
            return StopResult()
        dropped = await self._conversations.stop(self._session.id)
        return StopResult(running=True, dropped=len(dropped))

    def busy_mode(self) -> BusyMode | None:
        return None
