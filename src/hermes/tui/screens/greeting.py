"""What stands there first: who one talks to and where, what was said before, what is wrong."""

from hermes.kit.plain import flat
from hermes.schema.errors import HermesError
from hermes.schema.messages import Assistant
from hermes.tui.companion import Hello
from hermes.tui.screens.house import House
from hermes.tui.taste import Taste
from hermes.tui.widgets.transcript import Transcript
from hermes.tui.widgets.words import Note


async def greet(transcript: Transcript, house: House) -> int:
    """Returns what `recall` does."""
    hello = house.companion.hello
    await transcript.add(Note(f"hermes · {hello.model} · {flat(hello.folder)}"))
    used = await recall(transcript, house, house.taste) if house.companion.now.started else 0
    await transcript.add(*_notes(hello))
    return used


async def recall(transcript: Transcript, house: House, taste: Taste) -> int:
    """Whoever comes back sees how it stood. Returns how many tokens the last answer took."""
    from hermes.tui.remembered import remember  # noqa: PLC0415 - most talks are new

    try:
        before = await house.backroom.do(house.companion.before)
    except HermesError as error:
        await transcript.add(Note(error.sentence, "warning"))
        return 0
    await remember(transcript, before, taste)
    said = [row.message.usage for row in before.rows if isinstance(row.message, Assistant)]
    return next((one.input + one.output for one in reversed(said) if one.input), 0)


def _notes(hello: Hello) -> list[Note]:
    notes = [Note(note) for note in hello.notes]
    notes += [Note(f"warning: {flat(warning)}", "warning") for warning in hello.warnings]
    if hello.trouble:
        notes.append(Note(f"{hello.trouble}\n{hello.hint}".rstrip(), "warning alone"))
    return notes
