"""A correspondence through a whole gateway process with two mailboxes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
from aiohttp import web

from emulators.mail.imap_server import ImapEmulator, serve_imap
from emulators.mail.mailbox import EmulatedMailbox
from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.cli_process import HermesCli
from support.gateway_process import GatewaySpec
from support.mail import AGENT, ANN, PASSWORD, SERVER, SmtpState, new_mail, serve_smtp, text_of
from support.preloaded_gateway import preloaded_instance

pytestmark = pytest.mark.slow

WORK = "agent@work.example"
TIMEOUT = 60.0


class People:
    """Ann, who writes to both mailboxes."""

    def __init__(self, server: ImapEmulator, smtp: SmtpState) -> None:
        self.smtp = smtp
        self._server = server
        self._count = 0

    def write(self, text: str, *, to: str = AGENT, reply_to: EmailMessage | None = None) -> None:
        self._count += 1
        headers: dict[str, str] = {}
        if reply_to is not None:
            parent = str(reply_to["Message-ID"])
            headers = {"In-Reply-To": parent, "References": f"{reply_to['References']} {parent}"}
            quoted = "".join(f"> {line}\n" for line in text_of(reply_to).splitlines())
            text = f"{text}\n\nOn Monday, Hermes <{AGENT}> wrote:\n{quoted}"
        mail = new_mail(text, number=f"m{self._count}", headers=headers)
        self._server.mailboxes[to].append(mail.as_bytes())

    async def sees(self, words: str) -> EmailMessage:
        def found() -> list[EmailMessage]:
            return [one for one in self.smtp.mails if words in text_of(one)]

        with anyio.move_on_after(TIMEOUT) as scope:
            await self.smtp.until(lambda: bool(found()))
        shown = "\n---\n".join(text_of(one) for one in self.smtp.mails)
        assert not scope.cancelled_caught, shown[-1500:]
        return found()[-1]


def write_home(folder: Path, model_url: str, imap_port: int, smtp_port: int) -> GatewaySpec:
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir(exist_ok=True)
    hosts = {
        "imap_host": "127.0.0.1", "imap_port": imap_port, "imap_security": "none",
        "smtp_host": "127.0.0.1", "smtp_port": smtp_port, "smtp_security": "none",
        "authserv_id": SERVER,
        "allow_from": [ANN], "allow_admin_from": [ANN],
    }  # fmt: skip
    second = {"address": WORK, "password": PASSWORD}
    config = {
        "model": {"default": "mock", "provider": "openai", "base_url": f"{model_url}/main/v1"},
        "platforms": {"email": {"extra": hosts, "accounts": {"work": {"extra": second}}}},
    }
    (home / "config.yaml").write_bytes(msgspec.json.encode(config))
    (home / ".env").write_text(
        f"OPENAI_API_KEY=sk-none-of-ours\nEMAIL_ADDRESS={AGENT}\nEMAIL_PASSWORD={PASSWORD}\n"
        f"EMAIL_HOME_ADDRESS={ANN}\nMESSAGING_CWD={work}\n"
    )
    return GatewaySpec(folder=str(folder), home=str(home))


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[People]:
    boxes = [EmulatedMailbox(AGENT, PASSWORD), EmulatedMailbox(WORK, PASSWORD)]
    server, smtp, model = ImapEmulator(boxes), SmtpState(), web.Application()
    model.router.add_routes(FakeModelServer().routes())
    async with (
        serve_imap(server),
        serve_smtp(smtp) as smtp_port,
        listen(web.AppRunner(model, handler_cancellation=True, shutdown_timeout=0.5)) as url,
        preloaded_instance(write_home(folder, url, server.port, smtp_port)) as instance,
        anyio.create_task_group() as group,
    ):
        group.start_soon(instance.watch)
        await instance.wait_ready()
        yield People(server, smtp)
        instance.end()


async def test_correspondence_with_approval_command_and_two_mailboxes(tmp_path: Path) -> None:
    cli, note = HermesCli(tmp_path, "http://127.0.0.1:1"), tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    async with running(tmp_path) as ann:
        ann.write(f"q-1 use:terminal {args}")
        question = await ann.sees("Reason: It is mine.")
        ann.write("once", reply_to=question)
        answer = await ann.sees("re: q-1")
        assert (answer["To"], answer["From"]) == (ANN, AGENT)
        ann.write("q-2 and more", reply_to=answer)
        assert "> " not in text_of(await ann.sees("re: q-2 and more"))
        ann.write("/help")
        await ann.sees("/stop")
        ann.write("q-3 for work", to=WORK)
        assert (await ann.sees("re: q-3"))["From"] == WORK
        send = partial(cli, "send", "-t", "email", "The build is green.")
        assert (await anyio.to_thread.run_sync(send)).code == 0
        assert (await ann.sees("The build is green."))["Subject"] == "The build is green."
    assert note.read_text() == "done\n"
    answers = [one for one in ann.smtp.mails if "re: q-" in text_of(one)]
    assert len(answers) == 3, "no progress is sent as a mail"
