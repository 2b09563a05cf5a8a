"""What stands there first: who one talks to and where, what was said before, what is wrong."""

from hermes.kit.terminal_text import single_line
from hermes.schema.errors import HermesError
from hermes.schema.messages import Assistant
from hermes.tui.client import Greeting
from hermes.tui.display_options import DisplayOptions
from hermes.tui.screens.chat_deps import ChatDeps
from hermes.tui.widgets.messages import Note
from hermes.tui.widgets.transcript import Transcript


async def show_greeting(transcript: Transcript, house: ChatDeps) -> int:
    """Returns what `recall` does."""
    hello = house.client.greeting
    await transcript.add(Note(f"hermes · {hello.model} · {single_line(hello.folder)}"))
    used = await show_history(transcript, house, house.display) if house.client.state.started else 0
    await transcript.add(*_notes(hello))
    return used


async def show_history(transcript: Transcript, house: ChatDeps, taste: DisplayOptions) -> int:
    """Whoever comes back sees how it stood. Returns how many tokens the last answer took."""
    from hermes.tui.session_replay import replay_session  # noqa: PLC0415 - most talks are new

    try:
        before = await house.turn_worker.run(house.client.recent_history)
    except HermesError as error:
        await transcript.add(Note(error.sentence, "warning"))
        return 0
    await replay_session(transcript, before, taste)
    said = [row.message.usage for row in before.rows if isinstance(row.message, Assistant)]
    return next((one.input + one.output for one in reversed(said) if one.input), 0)


def _notes(hello: Greeting) -> list[Note]:
    notes = [Note(note) for note in hello.notes]
    notes += [Note(f"warning: {single_line(warning)}", "warning") for warning in hello.warnings]
    if hello.trouble:
        notes.append(Note(f"{hello.trouble}\n{hello.hint}".rstrip(), "warning alone"))
    return notes
