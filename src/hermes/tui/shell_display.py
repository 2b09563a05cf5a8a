"""Run a command of the user's shell and show its output as a card."""

import asyncio

import msgspec
from msgspec import Raw

from hermes.kit.ids import new_id
from hermes.schema.messages import ToolCall
from hermes.schema.shell import ShellResult
from hermes.tui.chat_deps import ChatDeps
from hermes.tui.options import DisplayOptions
from hermes.tui.widgets.cards import ToolCard, shell_result
from hermes.tui.widgets.transcript import Transcript


async def run_shell(
    command: str, transcript: Transcript, deps: ChatDeps, options: DisplayOptions
) -> ShellResult:
    """Raises `HermesError` if it cannot be started."""
    loop, client, began = asyncio.get_running_loop(), deps.client, deps.clock.monotonic()
    call = ToolCall(new_id("call"), "!", Raw(msgspec.json.encode({"command": command})))
    card = ToolCard(call, options)
    await transcript.add(card)
    transcript.go_to_end()

    def show(text: str) -> None:
        loop.call_soon_threadsafe(card.add_progress, text)

    try:
        done = await deps.turn_worker.run(lambda: client.run_shell(command, show))
    finally:
        card.mark_interrupted()
    await card.end(shell_result(call, done), deps.clock.monotonic() - began)
    if done.output.strip():
        await card.open()
    return done
