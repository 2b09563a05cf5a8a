"""Run slash commands for the client of a conversation."""

from collections.abc import Sequence

from hermes.app.build import App
from hermes.app.command_services import command_services
from hermes.commands.command import CommandContext
from hermes.commands.registry import is_command, standard_commands
from hermes.commands.surface import CommandCaller, LocalControl, Surface, TerminalAbility
from hermes.ipc.conversation_service import ConversationService
from hermes.schema.sessions import Session
from hermes.schema.terminal import BusyMode, LineReply, NotACommand

_SCREEN_ABILITIES = frozenset({TerminalAbility.CLEAR, TerminalAbility.COPY, TerminalAbility.SCREEN})


async def run_command(service: ConversationService, line: str) -> LineReply:
    """Raises `UsageError` for an unknown command."""
    if not is_command(line):
        return NotACommand()
    return await standard_commands().run(_context(service), line)


def command_summaries(service: ConversationService) -> dict[str, str]:
    """Return the commands available on this surface with their summaries; aliases come last."""
    context = _context(service)
    offered = [command for command in standard_commands().commands if command.is_offered(context)]
    summaries = {command.name: command.summary for command in offered}
    aliases = {name: f"alias of /{command.name}" for command in offered for name in command.aliases}
    return dict(sorted(summaries.items())) | dict(sorted(aliases.items()))


def _context(service: ConversationService) -> CommandContext:
    app, start = service.app, service.start
    return CommandContext(
        service.conversation,
        app.models,
        _TerminalFacts(app, start.source),
        caller=CommandCaller(
            surface=Surface.TERMINAL,
            platform=start.source,
            abilities=_SCREEN_ABILITIES if start.screen else frozenset(),
            control=_TerminalControl(service),
        ),
        services=command_services(app),
    )


class _TerminalControl(LocalControl):
    """An interactive user can send messages during a turn; a one-shot client cannot."""

    def __init__(self, service: ConversationService) -> None:
        super().__init__(service.conversation)
        self._service = service

    def busy_mode(self) -> BusyMode | None:
        return BusyMode(self._service.busy_mode) if self._service.start.person else None

    def set_busy_mode(self, mode: BusyMode) -> None:
        self._service.busy_mode = mode.value


class _TerminalFacts:
    """Status facts, with the tools available on the client's surface."""

    def __init__(self, app: App, source: str) -> None:
        self._app = app
        self._source = source

    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        available = self._app.toolbox.tools_on(self._source)
        tools = ", ".join(self._app.models.tools_for(session, available)) or "none"
        facts = self._app.status(session)
        return [(name, tools if name == "tools" else value) for name, value in facts]
