"""A conversation on WhatsApp through a whole gateway process, against the emulator."""

from pathlib import Path

import anyio
import pytest

from emulators.whatsapp_cloud.server import (
    EmulatedWhatsApp,
    ShownMessage,
    WhatsAppServer,
    serve_whatsapp,
)
from support.kill_run import write_home
from support.ports import unused_port
from support.preloaded_gateway import preloaded_instance
from support.whatsapp_cloud import ANN, VARIABLES

pytestmark = pytest.mark.slow

TIMEOUT = 60.0


async def sees(server: WhatsAppServer, words: str) -> ShownMessage:
    def found() -> list[ShownMessage]:
        return [one for one in server.whatsapp.posts(ANN) if words in one.text]

    with anyio.move_on_after(TIMEOUT) as scope:
        await server.until(lambda: bool(found()))
    assert not scope.cancelled_caught, [one.text for one in server.whatsapp.shown][-5:]
    return found()[-1]


async def test_approval_by_button(tmp_path: Path) -> None:
    whatsapp, port, note = EmulatedWhatsApp(), unused_port(), tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    async with serve_whatsapp(whatsapp) as server:
        spec = write_home(
            tmp_path,
            "whatsapp_cloud",
            model_url=server.url,
            extra={"base_url": server.url},
            variables={**VARIABLES, "WHATSAPP_CLOUD_WEBHOOK_PORT": str(port)},
            people=[ANN],
        )
        hook = f"http://127.0.0.1:{port}/whatsapp/webhook"
        async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await server.until(lambda: "number" in server.calls)
            text = {"body": f"q-1 use:terminal {args}"}
            assert await server.post(hook, whatsapp.message(ANN, type="text", text=text)) == 200
            question = await sees(server, "It is mine.")
            value = next(value for value, label in question.choices.items() if "once" in label)
            reply = {"type": "list_reply", "list_reply": {"id": value, "title": "Once"}}
            press = whatsapp.message(
                ANN, type="interactive", interactive=reply, context={"id": question.id}
            )
            assert await server.post(hook, press) == 200
            await sees(server, "re: q-1")
            instance.end()
    assert note.read_text() == "done\n"
    assert any(emoji for _, emoji in whatsapp.reactions), "the message is marked as seen"
    assert whatsapp.typing
