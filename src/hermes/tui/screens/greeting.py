"""Show the greeting, the history of a resumed session, and warnings."""

from hermes.kit.terminal_text import single_line
from hermes.schema.errors import HermesError
from hermes.schema.messages import Assistant
from hermes.tui.client import Greeting
from hermes.tui.display_options import DisplayOptions
from hermes.tui.screens.chat_deps import ChatDeps
from hermes.tui.widgets.messages import Note
from hermes.tui.widgets.transcript import Transcript


async def show_greeting(transcript: Transcript, deps: ChatDeps) -> int:
    """Return the tokens used by the resumed session."""
    greeting = deps.client.greeting
    await transcript.add(Note(f"hermes · {greeting.model} · {single_line(greeting.folder)}"))
    used = await show_history(transcript, deps, deps.display) if deps.client.state.started else 0
    await transcript.add(*_notes(greeting))
    return used


async def show_history(transcript: Transcript, deps: ChatDeps, options: DisplayOptions) -> int:
    """Show the resumed session; return the tokens in context after its last answer."""
    from hermes.tui.session_replay import replay_session  # noqa: PLC0415 - most sessions are new

    try:
        history = await deps.turn_worker.run(deps.client.recent_history)
    except HermesError as error:
        await transcript.add(Note(error.sentence, "warning"))
        return 0
    await replay_session(transcript, history, options)
    usages = [row.message.usage for row in history.rows if isinstance(row.message, Assistant)]
    return next((usage.input + usage.output for usage in reversed(usages) if usage.input), 0)


def _notes(greeting: Greeting) -> list[Note]:
    notes = [Note(note) for note in greeting.notes]
    notes += [Note(f"warning: {single_line(warning)}", "warning") for warning in greeting.warnings]
    if greeting.trouble:
        notes.append(Note(f"{greeting.trouble}\n{greeting.hint}".rstrip(), "warning alone"))
    return notes
