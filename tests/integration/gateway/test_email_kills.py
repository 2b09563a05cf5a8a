"""A gateway with a mailbox that is killed repeatedly loses no mail and answers none twice."""

import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path

import pytest
from aiohttp import web

from hermes.gateway.delivery import RECOVERED_MARK
from hermes.session.keys import SessionSource, build_session_key
from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.chat_platform.state import PlatformPost
from support.gateway_instances import fork_server
from support.gateway_process import GatewaySpec
from support.kill_run import (
    THREE_KILLS,
    Kill,
    KillRun,
    Said,
    drawn_kills,
    run_with_kills,
    write_home,
)
from support.mail import (
    AGENT,
    PASSWORD,
    SERVER,
    EmulatorHost,
    SmtpState,
    emulator_host,
    new_mail,
    serve_smtp,
    text_of,
)

PEOPLE = [f"person-{number}@people.example" for number in range(60)]
REPEATED = 0.2


class FaultySmtp(SmtpState):
    """Takes a mail and loses the confirmation, loses the mail, or is too busy; counts each."""

    def __init__(self, rate: float, busy: float, seed: int) -> None:
        super().__init__()
        self.faults: Counter[str] = Counter()
        self.unconfirmed: list[EmailMessage] = []
        self.answer = self._answer
        self.cut_after = self._cuts
        self._rate = rate
        self._busy = busy
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable
        self._unsure: set[str] = set()
        self._cut = False

    def _answer(self, mail: EmailMessage) -> str:
        """Two unknown outcomes in a row would make the gateway give the answer up."""
        number, drawn = str(mail["Message-ID"]), self._chance.random()
        self._cut = drawn < 2 * self._rate and number not in self._unsure
        if self._cut:
            self._unsure.add(number)
            if drawn >= self._rate:
                self.faults["lost"] += 1
                return "451 lost"
            self.faults["unconfirmed"] += 1
            self.unconfirmed.append(mail)
            return "250 OK"
        if drawn > 1 - self._busy:
            self.faults["busy"] += 1
            return "451 4.3.2 busy"
        return "250 OK"

    def _cuts(self) -> bool:
        return self._cut


class Correspondence:
    """People who write mails, each in one thread."""

    def __init__(self, host: EmulatorHost, run: KillRun[EmailMessage], seed: int) -> None:
        self._host = host
        self._run = run
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable
        self._roots: dict[str, str] = {}

    @property
    def thread_keys(self) -> dict[str, str]:
        """The session of each person."""
        return {
            person: build_session_key(
                SessionSource(platform="email", chat_id=person, thread_id=f"{root}@people.example")
            )
            for person, root in self._roots.items()
        }

    async def write(self, count: int) -> None:
        for _ in range(count):
            person = self._chance.choice(PEOPLE)
            text = f"q-{len(self._run.said)}"
            root = self._roots.setdefault(person, text)
            reply = {"References": f"<{root}@people.example>"} if root != text else {}
            mail = new_mail(text, sender=person, number=text, headers=reply)
            await self._host.deliver(mail)
            self._run.add(Said(person, person, text))
            if self._chance.random() < REPEATED:
                await self._host.deliver(mail)


def mail_home(folder: Path, model_url: str, imap_port: int, smtp_port: int) -> GatewaySpec:
    """Write the home of a gateway on these servers."""
    extra = {
        "imap_host": "127.0.0.1", "imap_port": imap_port, "imap_security": "none",
        "smtp_host": "127.0.0.1", "smtp_port": smtp_port, "smtp_security": "none",
        "authserv_id": SERVER, "loop_limit": 100_000,
    }  # fmt: skip
    variables = {"EMAIL_ADDRESS": AGENT, "EMAIL_PASSWORD": PASSWORD}
    return write_home(
        folder, "email", model_url=model_url, extra=extra, variables=variables, people=PEOPLE
    )


@asynccontextmanager
async def mail_platform(
    folder: Path, smtp: SmtpState
) -> AsyncGenerator[tuple[EmulatorHost, GatewaySpec]]:
    model = web.Application()
    model.router.add_routes(FakeModelServer().routes())
    async with (
        emulator_host() as host,
        serve_smtp(smtp) as smtp_port,
        listen(web.AppRunner(model, handler_cancellation=True, shutdown_timeout=0.5)) as url,
    ):
        yield host, mail_home(folder, url, host.port, smtp_port)


async def killed_run(
    folder: Path, *, mails: int, kills: Sequence[Kill], seed: int, busy: float
) -> str:
    smtp = FaultySmtp(0.01, busy, seed)
    cuts = random.Random(seed)  # noqa: S311 - must be repeatable
    run = KillRun(
        account="email",
        server=smtp,
        changes=smtp.mails,
        read=lambda mail: PlatformPost("", "email", str(mail["To"]), text_of(mail)),
        database=folder / "home" / "hermes.db",
    )
    async with mail_platform(folder, smtp) as (host, spec), fork_server(folder) as start:
        host.server.cut = lambda command: cuts.random() < 0.01
        people = Correspondence(host, run, seed)
        await run_with_kills(run, spec, start, people.write, updates=mails, kills=kills)
    posts = [
        PlatformPost(f"{number}", "email", str(mail["To"]), text_of(mail))
        for number, mail in enumerate(smtp.mails)
    ]
    verdict = await run.judge(posts, people.thread_keys, smtp.unconfirmed)
    check_copies(smtp, mails)
    return (
        f"E-mail, {mails} mails, {len(kills)} kills: {verdict}; {len(smtp.mails)} sends, "
        f"SMTP faults {dict(smtp.faults)}"
    )


def check_copies(smtp: FaultySmtp, written: int) -> None:
    """A copy is recognized by its id. Those without an earlier mail replace one that was lost."""
    ids = Counter(str(mail["Message-ID"]) for mail in smtp.mails)
    unmarked = Counter(
        str(mail["Message-ID"])
        for mail in smtp.mails
        if not text_of(mail).startswith(RECOVERED_MARK)
    )
    assert len(ids) <= written
    assert [one for one, times in unmarked.items() if times > 1] == [], "unmarked copies"


@pytest.mark.slow
async def test_repeated_kills_lose_no_mail(tmp_path: Path) -> None:
    sys.stdout.write(await killed_run(tmp_path, mails=500, kills=THREE_KILLS, seed=1, busy=0.0))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_thirty_kills_lose_no_mail(tmp_path: Path, prove: Callable[[str], None]) -> None:
    prove(await killed_run(tmp_path, mails=5_000, kills=drawn_kills(30, 2), seed=2, busy=0.01))
