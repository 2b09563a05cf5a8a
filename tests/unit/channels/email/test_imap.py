"""The IMAP client on a stream that is lost, or slow."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream

from hermes.channels.email.imap import ImapConnection, folder_name
from hermes.ports.channel import Offline


class ScriptedStream(ByteStream):
    """Receives `chunks`; can no longer send once they begin with `lost_at`."""

    def __init__(self, *chunks: bytes, lost_at: bytes = b"never") -> None:
        self._chunks = list(chunks)
        self._lost_at = lost_at

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop(0)

    async def send(self, item: bytes) -> None:
        if item.startswith(self._lost_at):
            raise anyio.BrokenResourceError

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...

    @property
    def extra_attributes(self) -> Mapping[Any, Any]:
        return {}


async def test_connection_that_is_lost_while_sending_is_offline() -> None:
    stream = ScriptedStream(b"+ idling\r\n", b"* 1 EXISTS\r\n", lost_at=b"DONE")
    imap = ImapConnection(stream, timeout=5.0, on_data=lambda: None)
    with pytest.raises(Offline):
        await imap.idle(5.0)


async def test_each_part_of_a_large_mail_is_a_sign_of_life() -> None:
    parts = [b"* 1 FETCH (UID 7 BODY[] {4}\r\n", b"ab", b"cd", b")\r\nh1 OK done\r\n"]
    sizes: list[int] = []
    imap = ImapConnection(ScriptedStream(*parts), timeout=5.0, on_data=lambda: sizes.append(1))
    assert await imap.content(7) == b"abcd"
    assert len(sizes) == len(parts)


def test_folder_names_are_encoded() -> None:
    assert folder_name("INBOX") == "INBOX"
    assert folder_name("Entwürfe & ~peter/日本語") == "Entw&APw-rfe &- ~peter/&ZeVnLIqe-"
