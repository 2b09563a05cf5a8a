"""The e-mail channel passes the channel contract against dovecot and against the emulator."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from hermes.kit.ids import new_id
from hermes.schema.messages import Media
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    Admission,
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformFiles,
    PlatformView,
)
from support.mail import (
    HOME,
    Dovecot,
    MailBench,
    emulator_host,
    mail_bench,
    new_mail,
)


class Ann:
    """What Ann does; each returns once the mail is marked as read."""

    def __init__(self, one: MailBench) -> None:
        self._host = one.host
        self._count = 0
        self._broken = False
        self._last = new_mail("")

    async def arrive(self, text: str) -> None:
        await self._deliver(text, {})

    async def send_file(self, name: str, data: bytes) -> None:
        self._count += 1
        mail = new_mail("look", number=new_id("mail"))
        mail.add_attachment(data, maintype="image", subtype="png", filename=name)
        await self._host.deliver(mail)
        await self._host.seen(self._count)

    async def again(self) -> None:
        self._count += 1
        await self._host.deliver(self._last)
        await self._host.seen(self._count)

    async def reply(self, message: str, text: str) -> None:
        await self._deliver(text, {"In-Reply-To": f"<{message}>", "References": f"<{message}>"})

    async def unreadable(self) -> None:
        if self._broken:
            # A server does not deliver the same mail twice.
            return
        self._broken = True
        mail = new_mail("hello", number=new_id("mail"))
        mail.set_param("name", "x" * 5_000)
        await self._host.deliver(mail)

    async def _deliver(self, text: str, headers: Mapping[str, str]) -> None:
        self._count += 1
        self._last = new_mail(text, number=new_id("mail"), headers=headers)
        await self._host.deliver(self._last)
        await self._host.seen(self._count)


def contract_bench(one: MailBench, admission: Admission, folder: Path) -> ChannelBench:
    ann, smtp = Ann(one), one.smtp

    def sent(post: str) -> int:
        return next(n for n, mail in enumerate(smtp.mails) if mail["Message-ID"] == f"<{post}>")

    def files(post: str) -> Mapping[str, bytes]:
        attached = smtp.mails[sent(post)].iter_attachments()
        return {str(part.get_filename()): part.get_content() for part in attached}

    def quoted(post: str) -> str | None:
        parent = smtp.mails[sent(post)]["In-Reply-To"]
        return str(parent).strip("<>") if parent else None

    async def shown(address: Address) -> list[str]:
        return smtp.texts(address.chat)

    async def unreachable() -> None:
        await one.stack.aclose()

    def throttled() -> None:
        smtp.answer = lambda mail: "451 4.7.1 Try again later"

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        HOME,
        ann.arrive,
        shown,
        ann.again,
        PlatformEvents(reply=ann.reply, unreadable=ann.unreadable),
        PlatformView(files=files, quoted=quoted),
        PlatformFaults(unreachable=unreachable, throttled=throttled),
        store,
        PlatformFiles(send=ann.send_file, admission=admission, folder=folder),
    )


class TestEmailChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with emulator_host() as host, mail_bench(tmp_path, host, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")


@pytest.mark.slow
class TestEmailChannelOnDovecot(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path, dovecot: Dovecot) -> AsyncGenerator[ChannelBench]:
        host = dovecot.host(f"{new_id('agent')}@agent.example".lower())
        admission = Admission()
        async with mail_bench(tmp_path, host, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
