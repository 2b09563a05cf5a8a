"""A conversation by SMS through a whole gateway process, with one outage."""

from pathlib import Path

import anyio
import pytest

from emulators.sms.server import NUMBER, EmulatedTwilio, TwilioServer, serve_twilio
from support.kill_run import write_home
from support.ports import unused_port
from support.preloaded_gateway import running_gateway
from support.sms import ANN, PUBLIC_URL, VARIABLES

pytestmark = pytest.mark.slow

TIMEOUT = 60.0


async def sees(server: TwilioServer, words: str) -> str:
    def found() -> list[str]:
        return [one.body for one in server.twilio.sent(ANN) if words in one.body]

    with anyio.move_on_after(TIMEOUT) as scope:
        await server.until(lambda: bool(found()))
    assert not scope.cancelled_caught, [one.body for one in server.twilio.messages][-5:]
    return found()[-1]


async def test_conversation_with_approval_and_an_outage(tmp_path: Path) -> None:
    twilio, port, note = EmulatedTwilio(), unused_port(), tmp_path / "note"
    twilio.sms_url = PUBLIC_URL
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    async with serve_twilio(twilio) as server:
        spec = write_home(
            tmp_path,
            "sms",
            model_url=server.url,
            extra={"base_url": server.url},
            variables={**VARIABLES, "SMS_WEBHOOK_PORT": str(port)},
            people=[ANN],
        )

        async def says(text: str) -> None:
            message = twilio.add(ANN, NUMBER, text)
            assert await server.post(message, f"http://127.0.0.1:{port}/hook") == 200

        async with running_gateway(spec):
            await server.until(lambda: "list" in server.calls)
            await says(f"q-1 use:terminal {args}")
            await sees(server, "It is mine.")
            await says("yes")
            await sees(server, "re: q-1")
        twilio.add(ANN, NUMBER, "q-2 while you were away")
        async with running_gateway(spec):
            await sees(server, "re: q-2")
    assert note.read_text() == "done\n"
    answers = [one.body for one in twilio.sent(ANN) if "re: q-" in one.body]
    assert len(answers) == 2, answers
