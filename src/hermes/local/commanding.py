"""Slash commands of a guest: run as at any surface, answered as the wire can carry it."""

from collections.abc import Sequence
from typing import assert_never

from hermes.app.build import App
from hermes.app.command_services import command_services
from hermes.commands import command as commands
from hermes.commands.registry import is_command, standard_commands
from hermes.commands.surface import Ability, Busy, OwnTalk, Seat, Surface
from hermes.local.host import Sitting
from hermes.local.partner import Ask, Back, Leave, OnScreen, Plain, Reply, Told
from hermes.schema.sessions import Session

_OF_A_SCREEN = frozenset({Ability.CLEAR, Ability.COPY, Ability.LOOKS})


async def run_command(sitting: Sitting, line: str) -> Reply:
    """Raises `UsageError` for a name that nobody knows."""
    if not is_command(line):
        return Plain()
    context = _context(sitting)
    return _as_told(await standard_commands().run(context, line))


def command_names(sitting: Sitting) -> tuple[str, ...]:
    """What can be typed at this surface, aliases too."""
    context = _context(sitting)
    here = [one for one in standard_commands().commands if one.applies(context)]
    return tuple(sorted(name for one in here for name in (one.name, *one.aliases)))


def _context(sitting: Sitting) -> commands.Context:
    app, conversation, start, _ = sitting
    return commands.Context(
        conversation,
        app.models,
        _FactsAt(app, start.source),
        seat=Seat(
            surface=Surface.TERMINAL,
            platform=start.source,
            abilities=_OF_A_SCREEN if start.screen else frozenset(),
            work=_GuestTalk(sitting),
        ),
        services=command_services(app),
    )


class _GuestTalk(OwnTalk):
    """Somebody at a terminal can say something meanwhile; whoever runs alone cannot."""

    def __init__(self, sitting: Sitting) -> None:
        super().__init__(sitting.conversation)
        self._sitting = sitting

    def manner(self) -> Busy | None:
        return Busy(self._sitting.manner.mode) if self._sitting.start.person else None

    def change_manner(self, manner: Busy) -> None:
        self._sitting.manner.mode = manner.value


class _FactsAt:
    """The facts of the house, with the tools that are offered at the guest's surface."""

    def __init__(self, app: App, source: str) -> None:
        self._app = app
        self._source = source

    def status(self, session: Session) -> Sequence[tuple[str, str]]:
        there = self._app.toolbox.on(self._source)
        tools = ", ".join(self._app.models.told(session, there)) or "none"
        facts = self._app.status(session)
        return [(name, tools if name == "tools" else value) for name, value in facts]


def _as_told(reply: commands.Reply) -> Reply:
    match reply:
        case commands.Told(text=text, clear=clear, clip=clip, undone=undone):
            return Told(text, clear, clip, undone)
        case commands.Back(told=told, recap=recap):
            return Back(told, recap)
        case commands.Ask(parts=parts, told=told, undone=undone):
            return Ask(parts, told, undone)
        case commands.Leave():
            return Leave()
        case commands.OnScreen(what=what, words=words):
            return OnScreen(what, words)
        case _:
            assert_never(reply)
