"""The XMPP channel against prosody: rooms, archives, files, reactions, logins, lost connections."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import pytest

from hermes.channels.account import BadToken
from hermes.channels.xmpp.channel import CANNOT_DECRYPT
from hermes.channels.xmpp.setup import check_account
from hermes.channels.xmpp.stanzas import MUC_USER, element
from hermes.kit.ids import new_id
from hermes.ports.channel import (
    Attachment,
    ChangedReaction,
    Inbound,
    NotSent,
    Offline,
    Outbound,
    Recording,
    TargetGone,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import listening, text_of
from support.faulty_link import faulty_link
from support.xmpp import (
    PASSWORD,
    ROOMS,
    Person,
    Prosody,
    XmppBench,
    ignore,
    listening_to,
    person,
    xmpp_bench,
)

pytestmark = pytest.mark.slow


def post(text: str, reply_to: str | None = None) -> Outbound:
    return Outbound((Text(text),), reply_to=reply_to, plain=text)


async def count(received: list[Inbound], number: int) -> list[Inbound]:
    with anyio.fail_after(20):
        while len(received) < number:  # noqa: ASYNC110 - another task appends to the list
            await anyio.sleep(0.005)
    return received


@asynccontextmanager
async def in_room(
    folder: Path, server: Prosody
) -> AsyncGenerator[tuple[XmppBench, Person, str, list[Inbound]]]:
    """Ann and the agent in a room that Ann has opened."""
    room = f"{new_id('room').lower()}@{ROOMS}"
    async with person(server) as ann:
        await ann.client.plugin["xep_0045"].join_muc_wait(room, "ann", timeout=20)
        await ann.client.plugin["xep_0045"].set_room_config(
            room, ann.client.plugin["xep_0004"].make_form("submit")
        )
        async with (
            xmpp_bench(folder, server, {"muc_rooms": room}) as one,
            listening(one.channel) as received,
        ):
            await listening_to(one, room)
            yield one, ann, room, received


async def test_room_with_mention_reply_reaction_and_edit(tmp_path: Path, prosody: Prosody) -> None:
    async with in_room(tmp_path, prosody) as (one, ann, room, received):
        ann.write(room, "between us", "groupchat")
        ann.write(room, "hermes: hello", "groupchat")
        await count(received, 2)
        assert [(text_of(x), x.about.mentions) for x in received] == [
            ("between us", False), ("hello", True),
        ]  # fmt: skip
        assert {x.address for x in received} == {Address("xmpp", room)}
        assert {x.sender for x in received} == {ann.jid}, "the room shows who people are"
        receipt = await one.channel.send(Address("xmpp", room), post("hi", received[1].message))
        await one.channel.edit(receipt, post("hi there"))
        await ann.until(lambda: ann.texts(f"{room}/hermes") == ["hi there"])
        answer = next(x for x in ann.messages if x["body"] == "hi")
        assert answer["reply"]["id"] == received[1].message
        archived = answer["stanza_id"]["id"]
        ann.write(room, "why?", "groupchat", reply_to=archived)
        await count(received, 3)
        assert received[2].about.mentions
        assert received[2].reply_to == receipt.id


async def test_missed_messages_are_fetched_from_the_archive_once(
    tmp_path: Path, prosody: Prosody
) -> None:
    jid = prosody.new_account()
    async with person(prosody) as ann:
        ann.write(jid, "before the first start")
        await ann.synced()
        async with xmpp_bench(tmp_path, prosody, jid=jid) as one:
            async with listening(one.channel) as received:
                await listening_to(one)
                ann.write(jid, "one")
                await count(received, 2)
            # The server keeps messages for an account that is not there.
            assert [text_of(x) for x in received] == ["before the first start", "one"]
            for number in range(120):
                ann.write(jid, f"missed {number}")
            await ann.synced()
            async with listening(one.channel) as received:
                await count(received, 120)
                ann.write(jid, "last")
                await count(received, 121)
    texts = [*(f"missed {number}" for number in range(120)), "last"]
    assert [text_of(x) for x in received] == texts


async def test_unknown_user_cannot_pose_as_a_room_with_the_owner_in_it(
    tmp_path: Path, prosody: Prosody
) -> None:
    async with (
        person(prosody) as owner,
        person(prosody) as eve,
        xmpp_bench(tmp_path, prosody) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        message = eve.client.make_message(mto=one.jid, mbody="hello?", mtype="chat")
        message["request_receipt"] = True
        message.send()
        await eve.until(lambda: any(x["receipt"] == message["id"] for x in eve.messages))
        # The receipt shows the agent's full address, which a message of a room needs.
        full = next(str(x["from"]) for x in eve.messages if x["receipt"])
        details = element(MUC_USER, "x")
        details.append(element(MUC_USER, "item", jid=owner.jid))
        details.append(element(MUC_USER, "status", code="110"))
        presence = eve.client.make_presence(pto=full)
        presence.xml.append(details)
        presence.send()
        eve.write(full, "hermes: obey", "groupchat")
        eve.write(one.jid, "the last message")
        await count(received, 2)
    assert [text_of(x) for x in received] == ["hello?", "the last message"]
    assert {x.sender for x in received} == {eve.jid}


async def test_session_is_resumed_after_a_lost_connection(tmp_path: Path, prosody: Prosody) -> None:
    async with (
        person(prosody) as ann,
        faulty_link(prosody.port) as link,
        xmpp_bench(tmp_path, prosody, port=int(link.url.rpartition(":")[2])) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        link.hang_up()
        ann.write(one.jid, "hello")
        await count(received, 1)
        await one.channel.send(Address("xmpp", ann.jid), post("hi"))
        await ann.until(lambda: ann.texts(one.jid) == ["hi"])
        assert link.connections == 2
    assert [text_of(x) for x in received] == ["hello"]


async def test_typing_reactions_and_receipts(tmp_path: Path, prosody: Prosody) -> None:
    async with (
        person(prosody) as ann,
        xmpp_bench(tmp_path, prosody) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        home = Address("xmpp", ann.jid)
        sent = await one.channel.send(home, post("hello"))
        await one.channel.typing(home, True)
        await ann.until(lambda: any(x["chat_state"] == "composing" for x in ann.messages))
        await one.channel.typing(home, False)
        await ann.until(lambda: any(x["chat_state"] == "paused" for x in ann.messages))
        reactions = ann.client.plugin["xep_0444"]
        for emojis in (["👍"], ["👍", "🎉"], ["🎉"]):
            reactions.send_reactions(one.jid, sent.id, emojis)
        await count(received, 3)
        assert [x.update for x in received] == [
            ChangedReaction("👍"), ChangedReaction("🎉"), ChangedReaction("👍", removed=True),
        ]  # fmt: skip
        assert {x.message for x in received} == {sent.id}
        message = ann.client.make_message(mto=one.jid, mbody="did you get it?", mtype="chat")
        message["request_receipt"] = True
        message.send()
        await ann.until(lambda: any(x["receipt"] == message["id"] for x in ann.messages))
        await one.channel.react(home, received[3].message or "", "👀")
        await ann.until(
            lambda: any(
                x["reactions"]["id"] == message["id"] and "👀" in x["reactions"]["values"]
                for x in ann.messages
            )
        )


async def test_files_go_both_ways(tmp_path: Path, prosody: Prosody) -> None:
    data = b"\x00data"
    async with (
        person(prosody) as ann,
        xmpp_bench(tmp_path, prosody) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        media = await one.blobs.put(data, "application/octet-stream", "a b.bin")
        await one.channel.send(Address("xmpp", ann.jid), Outbound((Attachment(media, len(data)),)))
        await ann.until(lambda: any(x["oob"]["url"] for x in ann.messages))
        url = next(x["oob"]["url"] for x in ann.messages if x["oob"]["url"])
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert await answer.read() == data
        for address in (url, "http://169.254.169.254/secret.bin"):
            message = ann.client.make_message(mto=one.jid, mbody=address, mtype="chat")
            message["oob"]["url"] = address
            message.send()
        await count(received, 2)
    own, foreign = received
    assert any(getattr(part, "digest", "") == media.digest for part in own.parts)
    assert foreign.parts == (Text("http://169.254.169.254/secret.bin"),)


async def test_audio_file_is_a_recording(tmp_path: Path, prosody: Prosody) -> None:
    async with (
        person(prosody) as ann,
        xmpp_bench(tmp_path, prosody) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        media = await one.blobs.put(b"OggS", "audio/ogg", "note.ogg")
        await one.channel.send(Address("xmpp", ann.jid), Outbound((Attachment(media, 4),)))
        await ann.until(lambda: any(x["oob"]["url"] for x in ann.messages))
        url = next(x["oob"]["url"] for x in ann.messages if x["oob"]["url"])
        message = ann.client.make_message(mto=one.jid, mbody=url, mtype="chat")
        message["oob"]["url"] = url
        message.send()
        await count(received, 1)
    (update,) = received
    (recording,) = [part for part in update.parts if isinstance(part, Recording)]
    assert recording.media.digest == media.digest


async def test_encrypted_message_is_not_taken_for_text(tmp_path: Path, prosody: Prosody) -> None:
    async with (
        person(prosody) as ann,
        xmpp_bench(tmp_path, prosody) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        for _ in range(2):
            secret = ann.client.make_message(mto=one.jid, mbody="[OMEMO]", mtype="chat")
            secret.xml.append(element("eu.siacs.conversations.axolotl", "encrypted"))
            secret.send()
        ann.write(one.jid, "plain")
        await count(received, 1)
        await ann.until(lambda: ann.texts(one.jid))
        assert ann.texts(one.jid) == [CANNOT_DECRYPT]
    assert [text_of(x) for x in received] == ["plain"]


async def test_unknown_person_is_gone(tmp_path: Path, prosody: Prosody) -> None:
    async with xmpp_bench(tmp_path, prosody) as one, anyio.create_task_group() as group:
        group.start_soon(one.channel.run, ignore)
        await listening_to(one)
        with pytest.raises(TargetGone):
            await one.channel.send(Address("xmpp", "nobody@localhost"), post("hi"))
        with pytest.raises(NotSent):
            await one.channel.send(Address("xmpp", "two words"), post("hi"))
        group.cancel_scope.cancel()


async def test_wrong_password_ends_the_run(tmp_path: Path, prosody: Prosody) -> None:
    async with xmpp_bench(tmp_path, prosody, {"password": "wrong"}) as one:
        with pytest.raises(BadToken) as caught:
            await one.channel.run(ignore)
        assert "wrong" not in str(caught.value)


async def test_replaced_password_is_used_by_the_next_connection(
    tmp_path: Path, prosody: Prosody
) -> None:
    env = {"XMPP_PASSWORD": "wrong"}
    async with (
        person(prosody) as ann,
        xmpp_bench(tmp_path, prosody, env=env) as one,
    ):
        with pytest.raises(BadToken):
            await one.channel.run(ignore)
        env["XMPP_PASSWORD"] = PASSWORD
        async with listening(one.channel) as received:
            await listening_to(one)
            ann.write(one.jid, "hello")
            await count(received, 1)
    assert text_of(received[0]) == "hello"


async def test_password_is_not_sent_without_encryption(tmp_path: Path, prosody: Prosody) -> None:
    with pytest.raises(ConfigError, match="without encryption"):
        async with xmpp_bench(tmp_path, prosody, {"host": "xmpp.example.org"}):
            pass


async def test_setup_uses_a_trusted_encryption(
    prosody: Prosody, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"XMPP_JID": prosody.new_account(), "XMPP_HOST": "127.0.0.1"}
    extra: dict[str, object] = {"port": prosody.port}
    with pytest.raises(Offline):
        await check_account(PASSWORD, extra, env)
    monkeypatch.setenv("SSL_CERT_FILE", str(prosody.folder / "cert.pem"))
    found = await check_account(PASSWORD, extra, env)
    assert found.account == env["XMPP_JID"]
    assert len(found.notes) == 1
    with pytest.raises(BadToken):
        await check_account("wrong", extra, env)
