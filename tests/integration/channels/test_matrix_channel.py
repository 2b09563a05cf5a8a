"""What the Matrix channel guarantees, on a real Synapse with real clients of people."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from Crypto.Protocol.DH import key_agreement
from Crypto.PublicKey import ECC
from msgspec import structs
from nio.crypto.sas import Sas

from hermes.channels.matrix.channel import open_channel
from hermes.channels.matrix.setup import check_account
from hermes.ports.channel import (
    Attachment,
    ChangedReaction,
    Choice,
    Choices,
    DeletedMessage,
    Inbound,
    Markup,
    NotSent,
    Outbound,
    PressedButton,
    Throttled,
    Update,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import listening, text_of
from support.matrix import (
    PASSWORD,
    MatrixBench,
    channel_deps,
    matrix_bench,
    new_user,
    running_person,
)
from support.matrix_person import Person
from support.synapse import Homeserver, call, register_admin

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ann(homeserver: Homeserver) -> Generator[Person]:
    with running_person(homeserver, "ann") as one:
        yield one


@pytest.fixture(scope="module")
def agent(homeserver: Homeserver) -> str:
    return new_user(homeserver, "agent")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the agent: its device is kept from test to test."""
    return tmp_path_factory.mktemp("agent")


def post(text: str, key: str = "") -> Outbound:
    return Outbound((Text(text),), plain=text, key=key)


async def listens(bench: MatrixBench) -> None:
    """Wait until the channel follows the account: what was written before is not answered."""
    while not bench.proxy.tokens or not bench.proxy.tokens[-1]:
        await bench.proxy.next_sync()


@asynccontextmanager
async def collected_updates(bench: MatrixBench) -> AsyncGenerator[list[Inbound]]:
    """Run the channel during the block and collect what it delivers.

    What an earlier test left in its own room is not counted: its channel was cancelled.
    """
    received: list[Inbound] = []
    before = set(bench.ann.client.rooms) - {bench.room}

    async def deliver(update: Inbound) -> None:
        if update.address.chat not in before:
            received.append(update)

    async with anyio.create_task_group() as group:
        group.start_soon(bench.channel.run, deliver)
        with anyio.fail_after(90):
            yield received
        group.cancel_scope.cancel()


async def wait_for_updates(received: list[Inbound], count: int = 1) -> list[Inbound]:
    """Wait for updates."""
    with anyio.fail_after(60):
        while len(received) < count:  # noqa: ASYNC110 - another task appends to it
            await anyio.sleep(0.02)
    return received


async def test_encrypted_files_arrive_both_ways(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        async with collected_updates(bench) as received:
            await listens(bench)
            await ann.send_file(bench.room, b"\x89PNG secret", "a.png", "image/png", "Look!")
            await wait_for_updates(received)
        (update,) = received
        caption, image = update.parts
        assert caption == Text("Look!")
        assert isinstance(image, Media)
        assert await bench.blobs.read(image.digest) == b"\x89PNG secret"
        voice = await bench.blobs.put(b"OggS voice", "audio/ogg", "note.ogg")
        sent = await bench.channel.send(
            bench.home, Outbound((Attachment(voice, 10, voice=True),), key="voice")
        )
        content = (await ann.see(sent.id))["content"]
        assert "org.matrix.msc3245.voice" in content
        assert await asyncio.to_thread(ann.file_of, sent.id) == ("note.ogg", b"OggS voice")
        kind = await asyncio.to_thread(ann.stored_kind, bench.room, sent.id)
        assert kind == "m.room.encrypted"


async def test_missed_messages_are_read_in_order_and_repeated_posts_are_one(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    """More than one answer to a sync holds; and the same key is the same event."""
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        async with collected_updates(bench) as received:
            await listens(bench)
            await bench.acknowledged(await ann.say(bench.room, "first"))
        for number in range(25):
            await ann.say(bench.room, f"{number}")
        async with collected_updates(bench) as received:
            await wait_for_updates(received, 25)
        assert [text_of(one) for one in received] == [str(n) for n in range(25)]
        first = await bench.channel.send(bench.home, post("once", "key-1"))
    async with matrix_bench(homeserver, ann, agent, folder, room=bench.room) as again:
        # A new process encrypts with another key; the server still recognizes the request.
        second = await again.channel.send(bench.home, post("once", "key-1"))
    assert second.id == first.id
    await ann.see(first.id)
    assert ann.texts(bench.room, agent) == ["once"]


async def test_unreadable_message_is_shown_and_answered_once_its_key_arrives(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        async with collected_updates(bench) as received:
            await listens(bench)
            event = await ann.say_without_key(bench.room, "can you read this?")
            await bench.acknowledged(event)
            assert received == []
            await ann.until(lambda: ann.texts(bench.room, agent))
            (notice,) = ann.texts(bench.room, agent)
            assert "cannot decrypt" in notice
            requests = [
                body for kind, body in bench.proxy.to_devices if kind == "m.room_key_request"
            ]
            assert any(ann.user.encode() in body for body in requests)
        await ann.give_key(agent)
        async with collected_updates(bench) as received:
            # The event was stored: a restart in between does not lose it.
            await wait_for_updates(received)
        assert [(one.message, text_of(one)) for one in received] == [(event, "can you read this?")]


async def test_nothing_plain_is_sent_into_an_encrypted_room(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    async with matrix_bench(homeserver, ann, agent, folder, encrypted=False) as bench:
        plain = await bench.channel.send(bench.home, post("plain"))
        await ann.turn_on_encryption(bench.room)
        # No sync tells the channel: it asks before each plain post.
        hidden = await bench.channel.send(bench.home, post("hidden"))
        await ann.see(hidden.id)
        assert await asyncio.to_thread(ann.stored_kind, bench.room, plain.id) == "m.room.message"
        assert await asyncio.to_thread(ann.stored_kind, bench.room, hidden.id) == "m.room.encrypted"
    off = {"MATRIX_E2EE_MODE": "off"}
    async with matrix_bench(homeserver, ann, agent, folder, room=bench.room, env=off) as bench:
        with pytest.raises(NotSent, match="encrypted"):
            await bench.channel.send(bench.home, post("plain"))


async def test_threads_mentions_and_reactions_in_a_group(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    async with matrix_bench(
        homeserver, ann, agent, folder, direct=False, name="Team", encrypted=False
    ) as bench:
        async with collected_updates(bench) as received:
            await listens(bench)
            await ann.say(bench.room, "between us", **{"m.mentions": {}})
            named = await ann.say(bench.room, "hi agent", **{"m.mentions": {"user_ids": [agent]}})
            await wait_for_updates(received, 2)
            thread = Address("matrix", bench.room, named)
            answer = await bench.channel.send(thread, post("Hello"))
            in_thread = {"rel_type": "m.thread", "event_id": named}
            more = await ann.say(
                bench.room, "and?", **{"m.relates_to": in_thread, "m.mentions": {}}
            )
            await wait_for_updates(received, 3)
            reaction = {"rel_type": "m.annotation", "event_id": more, "key": "👍"}
            await ann.send(bench.room, {"m.relates_to": reaction}, "m.reaction")
            await wait_for_updates(received, 4)
            await ann.say(bench.room, "!help", **{"m.mentions": {"user_ids": [agent]}})
            await wait_for_updates(received, 5)
        loud, mentioned, follow_up, thumb, command = received
        assert [one.about.mentions for one in (loud, mentioned, follow_up)] == [False, True, True]
        assert [one.address for one in (loud, mentioned, follow_up, thumb)] == [
            bench.home, thread, thread, thread,
        ]  # fmt: skip
        assert thumb.update == ChangedReaction("👍")
        assert text_of(command) == "/help"
        assert loud.about.chat_name == "Team"
        relation = (await ann.see(answer.id))["content"]["m.relates_to"]
        assert (relation["rel_type"], relation["event_id"]) == ("m.thread", named)


async def test_reaction_chooses_only_below_our_own_question(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    choices = Choices((Choice("Allow", "q:once", "♾️"), Choice("No <b>", "q:deny", "❌")))
    question = Outbound((Text("<b>Go?</b>"), choices), markup=Markup.HTML, plain="Go?", key="q")
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        sent = await bench.channel.send(bench.home, question)
        content = (await ann.see(sent.id))["content"]
        assert content["body"] == "Go?\n\n♾️ Allow\n❌ No <b>"
        assert content["formatted_body"] == "<b>Go?</b><p>♾️ Allow<br>❌ No &lt;b&gt;</p>"
        copied = {"hermes.choices": content["hermes.choices"]}
        async with collected_updates(bench) as received:
            await listens(bench)
            forged = await ann.say(bench.room, "Go?", **copied)
            other = await ann.send(bench.room, copied, "test.forged")
            await bench.acknowledged(forged)
    # A later process reads the choices from the message.
    async with (
        matrix_bench(homeserver, ann, agent, folder, room=bench.room) as again,
        collected_updates(again) as received,
    ):
        await listens(again)
        for event, key in ((forged, "♾️"), (other, "♾️"), (sent.id, "👍"), (sent.id, "♾")):
            relation = {"rel_type": "m.annotation", "event_id": event, "key": key}
            await ann.send(bench.room, {"m.relates_to": relation}, "m.reaction")
        await wait_for_updates(received, 4)
    assert [(one.update, one.message, one.sender) for one in received] == [
        (ChangedReaction("♾️"), forged, ann.user),
        (ChangedReaction("♾️"), other, ann.user),
        (ChangedReaction("👍"), sent.id, ann.user),
        (PressedButton("q:once"), sent.id, ann.user),
    ]


async def test_only_the_requesters_reaction_approves(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    """Also in a later process, and unless the setting allows others."""

    def asked_for(requester: str) -> Outbound:
        choices = Choices((Choice("Allow", "q:once", "✅"),), requester=requester)
        return Outbound((Text("Go?"), choices), plain="Go?")

    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        sent = [
            (await bench.channel.send(bench.home, asked_for(user))).id
            for user in ("@bob:test", ann.user)
        ]

    async def updates(folder: Path, value: str) -> list[Update]:
        env = {"MATRIX_APPROVAL_REQUIRE_SENDER": value}
        async with (
            matrix_bench(homeserver, ann, agent, folder, room=bench.room, env=env) as again,
            collected_updates(again) as received,
        ):
            await listens(again)
            for event in sent:
                relation = {"rel_type": "m.annotation", "event_id": event, "key": "✅"}
                reaction = await ann.send(bench.room, {"m.relates_to": relation}, "m.reaction")
                await again.acknowledged(reaction)
                await ann.do(ann.client.room_redact(bench.room, reaction))
        removals = (DeletedMessage(), ChangedReaction("✅", removed=True))
        return [one.update for one in received if one.update not in removals]

    assert await updates(folder, "") == [ChangedReaction("✅"), PressedButton("q:once")]
    assert await updates(folder, "false") == [PressedButton("q:once")] * 2


async def test_choices_are_numbered_where_everything_must_be_encrypted(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    """Reactions are not encrypted, so the homeserver could answer for a person."""
    required = {"MATRIX_E2EE_MODE": "required"}
    async with matrix_bench(homeserver, ann, agent, folder, env=required) as bench:
        assert bench.channel.caps.buttons == 0


async def test_question_is_sent_although_its_choices_cannot_be_offered(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    def fail(request: web.Request) -> web.Response | None:
        if "/send/m.reaction/" not in request.path:
            return None
        body = {"errcode": "M_LIMIT_EXCEEDED", "error": "slow", "retry_after_ms": 2500}
        return web.json_response(body, status=429)

    choices = Choices((Choice("Tea", "q:1"), Choice("Coffee", "q:2")), in_text=True)
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        bench.proxy.fail = fail
        text = "Which?\n1. Tea\n2. Coffee"
        sent = await bench.channel.send(bench.home, Outbound((Text(text), choices), plain=text))
        assert (await ann.see(sent.id))["content"]["body"] == text


async def test_html_edits_and_mentions_are_sent(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        html = Outbound(
            (Text(f"<strong>Hi</strong> {ann.user}"),), markup=Markup.HTML, plain=f"Hi {ann.user}"
        )
        sent = await bench.channel.send(bench.home, html)
        content = (await ann.see(sent.id))["content"]
        assert content["formatted_body"].startswith("<strong>Hi</strong>")
        assert content["body"] == f"Hi {ann.user}"
        assert content["m.mentions"] == {"user_ids": [ann.user]}
        await bench.channel.react(bench.home, sent.id, "👀")
        await bench.channel.react(bench.home, sent.id, "✅")
        await ann.until(lambda: ann.redactions)


async def test_invitations_follow_the_access_rules(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    env = {"MATRIX_ALLOW_ALL_USERS": "", "MATRIX_ALLOWED_USERS": ann.user}
    with running_person(homeserver, "mallory") as mallory:
        async with matrix_bench(homeserver, ann, agent, folder, env=env) as bench:
            async with collected_updates(bench) as received:
                await listens(bench)
                refused = await asyncio.to_thread(mallory.create_room, agent)
                await mallory.until(lambda: agent in mallory.left(refused))
                # nio's client does not give keys to people who are only invited.
                room = await asyncio.to_thread(ann.create_room, agent, encrypted=False)
                await ann.say(room, "before you came")
                await ann.joined(room, agent)
                await wait_for_updates(received)
            assert [(one.address.chat, text_of(one)) for one in received] == [
                (room, "before you came")
            ]
            assert received[0].about.chat_type == "dm"


async def send_many(bench: MatrixBench, count: int) -> None:
    for number in range(count):
        await bench.channel.send(bench.home, post(f"{number}"))


async def test_limits_of_the_server_are_reported(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path
) -> None:
    admin = await asyncio.to_thread(register_admin, homeserver)
    async with matrix_bench(homeserver, ann, agent, folder, encrypted=False) as bench:
        path = f"/_synapse/admin/v1/users/{agent}/override_ratelimit"
        low = {"messages_per_second": 1, "burst_count": 1}
        await asyncio.to_thread(call, homeserver, "POST", path, low, admin)
        try:
            with pytest.raises(Throttled) as caught:
                await send_many(bench, 20)
        finally:
            high = {"messages_per_second": 0, "burst_count": 0}
            await asyncio.to_thread(call, homeserver, "POST", path, high, admin)
        assert 0 < caught.value.wait <= 30


async def test_soft_logout_keeps_the_device_and_a_deleted_one_is_replaced(
    homeserver: Homeserver, ann: Person, tmp_path: Path
) -> None:
    agent = await asyncio.to_thread(new_user, homeserver, "agent")
    async with matrix_bench(homeserver, ann, agent, tmp_path) as bench:
        device = (await bench.channel._device.ready()).login.device_id
        gone = [web.json_response(
            {"errcode": "M_UNKNOWN_TOKEN", "error": "expired", "soft_logout": True}, status=401
        )]  # fmt: skip

        def expire(request: web.Request) -> web.Response | None:
            return gone.pop() if gone and request.path.endswith("/sync") else None

        bench.proxy.fail = expire
        async with collected_updates(bench) as received:
            await listens(bench)
            await ann.say(bench.room, "still there?")
            await wait_for_updates(received)
        assert text_of(received[0]) == "still there?"
        assert (await bench.channel._device.ready()).login.device_id == device
        await bench.channel._api.call("POST", "/_matrix/client/v3/logout", object, {})
        async with collected_updates(bench) as received:
            await listens(bench)
            await ann.until(lambda: ann.knows_other_device(agent, device))
            await ann.can_encrypt_for(agent)
            await ann.say(bench.room, "and now?")
            await wait_for_updates(received)
        assert text_of(received[-1]) == "and now?"
        assert (await bench.channel._device.ready()).login.device_id != device


async def test_token_can_be_replaced(homeserver: Homeserver, tmp_path: Path) -> None:
    agent = await asyncio.to_thread(new_user, homeserver, "agent")

    def log_in() -> str:
        who = {"type": "m.id.user", "user": agent}
        fields = {"type": "m.login.password", "identifier": who, "password": PASSWORD}
        return call(homeserver, "POST", "/_matrix/client/v3/login", fields)["access_token"]

    first, second = await asyncio.to_thread(log_in), await asyncio.to_thread(log_in)
    variables = {"MATRIX_HOMESERVER": homeserver.url, "MATRIX_ACCESS_TOKEN": first}
    deps = channel_deps(tmp_path, homeserver.url, agent, env={"MATRIX_PASSWORD": "", **variables})
    current = dict(deps.env)
    deps = structs.replace(deps, current_env=lambda: current)
    async with open_channel(deps) as channel:
        await channel._device.ready()
        path = "/_matrix/client/v3/logout"
        await asyncio.to_thread(call, homeserver, "POST", path, {}, first)
        current["MATRIX_ACCESS_TOKEN"] = second
        async with listening(channel):
            while channel._api.token != second or channel.last_seen_at() is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def test_bad_credentials_are_named(homeserver: Homeserver, agent: str) -> None:
    env = {"MATRIX_HOMESERVER": homeserver.url, "MATRIX_USER_ID": agent}
    with pytest.raises(ConfigError, match="does not accept the login"):
        await check_account("wrong", {}, env)
    found = await check_account(PASSWORD, {}, env)
    assert found.account == agent


class Verifier:
    """The other side of a verification, written from the specification without vodozemac."""

    def __init__(self, ann: Person, agent: str, device: str) -> None:
        self._ann = ann
        self._agent = agent
        self._device = device
        self._key = ECC.generate(curve="Curve25519")
        self.transaction = f"t-{device}"

    async def send(self, step: str, content: dict[str, Any]) -> None:
        body = {**content, "transaction_id": self.transaction}
        kind = f"m.key.verification.{step}"
        await self._ann.to_device(kind, self._agent, self._device, body)

    async def receive(self, step: str) -> dict[str, Any]:
        kind = f"m.key.verification.{step}"
        found = await self._ann.until(
            lambda: [one for one in self._ann.verifications if one["type"] == kind]
        )
        return found[-1]["content"]

    async def run(self) -> None:
        ann, own = self._ann, self._ann.client.device_id
        methods = {"from_device": own, "methods": ["m.sas.v1"], "timestamp": 1}
        await self.send("request", methods)
        assert (await self.receive("ready"))["methods"] == ["m.sas.v1"]
        start = {
            "from_device": own, "method": "m.sas.v1", "hashes": ["sha256"],
            "key_agreement_protocols": ["curve25519-hkdf-sha256"],
            "message_authentication_codes": ["hkdf-hmac-sha256.v2"],
            "short_authentication_string": ["emoji", "decimal"],
        }  # fmt: skip
        await self.send("start", start)
        accepted = await self.receive("accept")
        public = _b64(self._key.public_key().export_key(format="raw"))
        await self.send("key", {"key": public})
        theirs = (await self.receive("key"))["key"]
        canonical = json.dumps(
            {**start, "transaction_id": self.transaction}, sort_keys=True, separators=(",", ":")
        )
        digest = hashlib.sha256((theirs + canonical).encode()).digest()
        assert accepted["commitment"] == _b64(digest)
        other = ECC.import_key(_montgomery(theirs))
        secret = key_agreement(static_priv=self._key, static_pub=other, kdf=bytes)
        self.emoji = self._indices(secret, public, theirs)
        mine, yours = f"{ann.user}{own}", f"{self._agent}{self._device}"
        info = f"MATRIX_KEY_VERIFICATION_MAC{mine}{yours}{self.transaction}"
        name = f"ed25519:{own}"
        key = ann.client.olm.account.identity_keys["ed25519"]
        macs = {name: _mac(secret, info + name, key)}
        await self.send("mac", {"mac": macs, "keys": _mac(secret, info + "KEY_IDS", name)})
        proof = await self.receive("mac")
        back = f"MATRIX_KEY_VERIFICATION_MAC{yours}{mine}{self.transaction}"
        name = f"ed25519:{self._device}"
        device = ann.client.device_store[self._agent][self._device]
        assert proof["mac"][name] == _mac(secret, back + name, device.ed25519)
        assert proof["keys"] == _mac(secret, back + "KEY_IDS", ",".join(sorted(proof["mac"])))
        await self.receive("done")

    def _indices(self, secret: bytes, public: str, theirs: str) -> list[int]:
        ann, own = self._ann, self._ann.client.device_id
        info = (
            f"MATRIX_KEY_VERIFICATION_SAS|{ann.user}|{own}|{public}"
            f"|{self._agent}|{self._device}|{theirs}|{self.transaction}"
        )
        number = int.from_bytes(_hkdf(secret, info.encode(), 6), "big")
        return [(number >> shift) & 63 for shift in range(42, 0, -6)]


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _montgomery(key: str) -> bytes:
    """A Curve25519 public key as SubjectPublicKeyInfo (RFC 8410)."""
    raw = base64.b64decode(key + "=")
    return bytes.fromhex("302a300506032b656e032100") + raw


def _hkdf(secret: bytes, info: bytes, length: int) -> bytes:
    whole = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(whole, info + b"\x01", "sha256")[:length]


def _mac(secret: bytes, info: str, text: str) -> str:
    return _b64(hmac.digest(_hkdf(secret, info.encode(), 32), text.encode(), "sha256"))


async def test_device_is_verified_by_emoji(
    homeserver: Homeserver, ann: Person, agent: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with matrix_bench(homeserver, ann, agent, folder) as bench:
        async with collected_updates(bench):
            await listens(bench)
            opened = await bench.channel._device.ready()
            await ann.until(lambda: opened.login.device_id in ann.client.device_store[agent])
            verifier = Verifier(ann, agent, opened.login.device_id)
            await verifier.run()
        shown = "  ".join(" ".join(Sas.emoji[one]) for one in verifier.emoji)
        assert shown in caplog.text
        assert opened.encryption.is_verified(ann.user, ann.client.device_id)
