"""Verification by emoji (SAS): people confirm in their client that a device is the agent's.

matrix-nio's own implementation is not used: its commitment is hexadecimal, its emoji differ from
the specification, and it does not support requests.
"""

import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TypeAlias

import msgspec
from msgspec import Struct, field, structs
from nio.crypto import OlmDevice
from nio.crypto.sas import Sas as NioSas
from vodozemac import Curve25519PublicKey, EstablishedSas, KeyException, Sas

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.encryption import Encryption
from hermes.channels.matrix.objects import Event, Login, MessageContent, Related
from hermes.channels.matrix.room_sender import RoomSender
from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import NotSent, UnknownOutcome

log = logging.getLogger(__name__)

REQUEST = "m.key.verification.request"
PREFIX = "m.key.verification."
METHOD = "m.sas.v1"
AGREEMENT = "curve25519-hkdf-sha256"
MAC = "hkdf-hmac-sha256.v2"
MAX_OPEN = 20

Content: TypeAlias = dict[str, object]
Reply: TypeAlias = Callable[[str, Content], Awaitable[None]]
"""Sends an event of a verification over the path on which it began."""


def is_verification(event: Event) -> bool:
    """Whether an event of a room belongs to a verification."""
    if event.kind != "m.room.message":
        return event.kind.startswith(PREFIX)
    return event.read(MessageContent).msgtype == REQUEST


class VerificationContent(Struct, frozen=True, kw_only=True):
    """All fields that events of a verification may have."""

    from_device: str = ""
    method: str = ""
    methods: tuple[str, ...] = ()
    key_agreement_protocols: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    message_authentication_codes: tuple[str, ...] = ()
    short_authentication_string: tuple[str, ...] = ()
    key: str = ""
    mac: dict[str, str] = {}
    keys: str = ""
    code: str = ""
    reason: str = ""


class _Transaction(Struct, frozen=True, kw_only=True):
    transaction_id: str = ""
    from_device: str = ""


class _Verification(Struct, kw_only=True):
    """A verification in progress; `device` is set once the other side has begun."""

    user: str
    reply: Reply
    sas: Sas = field(default_factory=Sas)
    device: OlmDevice | None = None
    their_key: str = ""
    established: EstablishedSas | None = None


class Verifications:
    """Answers verification requests of trusted people; it never starts one.

    The emoji are written to the log. The agent cannot compare them, so the person compares the
    client's emoji with the log, and the agent confirms after the person has.
    """

    def __init__(
        self,
        *,
        login: Login,
        api: ClientApi,
        sender: RoomSender,
        encryption: Encryption,
        is_trusted: Callable[[str], bool],
        more_keys: Mapping[str, str],
    ) -> None:
        self._login = login
        self._api = api
        self._sender = sender
        self._encryption = encryption
        self._is_trusted = is_trusted
        self._more_keys = more_keys
        """Keys that are confirmed in addition to the device's: the account's key, if known."""
        self._open: LruMap[str, _Verification] = LruMap(MAX_OPEN)

    async def receive_in_room(self, room: str, event: Event) -> None:
        """Verifications in a room are named by the event of their request."""
        relation = event.read(Related).relates_to
        if event.kind == "m.room.message":
            transaction = event.event_id
            event = structs.replace(event, kind=REQUEST)
        else:
            transaction = relation.event_id if relation is not None else ""

        async def reply(kind: str, content: Content) -> None:
            related = {"rel_type": "m.reference", "event_id": transaction}
            body: Content = {**content, "m.relates_to": related}
            await self._sender.send(room, kind, body, new_id("txn"))

        await self._receive(event, transaction, reply)

    async def receive_from_device(self, event: Event) -> None:
        """Handle an event sent between devices, which names its verification."""
        try:
            named = event.read(_Transaction)
        except JSON_ERRORS:
            return

        async def reply(kind: str, content: Content) -> None:
            body: Content = {**content, "transaction_id": named.transaction_id}
            devices = {named.from_device or "*": body}
            await self._api.send_to_devices(kind, {event.sender: devices})

        await self._receive(event, named.transaction_id, reply)

    async def _receive(self, event: Event, transaction: str, reply: Reply) -> None:
        if not transaction:
            return
        try:
            await self._take(event, transaction, reply)
        except (NotSent, UnknownOutcome) as error:
            log.warning("a verification by %s failed: %s", event.sender, error)

    async def _take(self, event: Event, transaction: str, reply: Reply) -> None:
        step = event.kind.removeprefix(PREFIX)
        try:
            content = event.read(VerificationContent)
        except JSON_ERRORS:
            return
        if step == "request":
            await self._request(event.sender, content, transaction, reply)
            return
        known = self._open.get(transaction)
        if step == "start" and known is None and self._is_trusted(event.sender):
            known = _Verification(user=event.sender, reply=reply)
            self._open.put(transaction, known)
        if known is None or known.user != event.sender:
            return
        match step:
            case "start":
                await self._start(known, event, content, transaction)
            case "key":
                await self._key(known, content, transaction)
            case "mac":
                await self._mac(known, content, transaction)
            case "cancel":
                self._open.drop(transaction)
                log.warning("the verification by %s was cancelled: %s", known.user, content.reason)
            case _:
                log.debug("a verification's %s needs no answer", step)

    async def _request(
        self, user: str, content: VerificationContent, transaction: str, reply: Reply
    ) -> None:
        if not self._is_trusted(user):
            log.warning("%s may not verify this device", user)
            await reply(f"{PREFIX}cancel", {"code": "m.user", "reason": "Not allowed"})
            return
        if METHOD not in content.methods:
            reason: Content = {"code": "m.unknown_method", "reason": "Only emoji are supported"}
            await reply(f"{PREFIX}cancel", reason)
            return
        self._open.put(transaction, _Verification(user=user, reply=reply))
        ready: Content = {"from_device": self._login.device_id, "methods": [METHOD]}
        await reply(f"{PREFIX}ready", ready)

    async def _start(
        self, known: _Verification, event: Event, content: VerificationContent, transaction: str
    ) -> None:
        known.device = await self._encryption.device(known.user, content.from_device)
        fits = (
            content.method == METHOD
            and AGREEMENT in content.key_agreement_protocols
            and "sha256" in content.hashes
            and MAC in content.message_authentication_codes
            and known.device is not None
        )
        if not fits:
            await self._cancel(known, transaction, "m.unknown_method")
            return
        started = msgspec.json.encode(msgspec.json.decode(event.content), order="deterministic")
        commitment = sha256(known.sas.public_key.to_base64().encode() + started).digest()
        offered = content.short_authentication_string
        answer: Content = {
            "method": METHOD,
            "key_agreement_protocol": AGREEMENT,
            "hash": "sha256",
            "message_authentication_code": MAC,
            "short_authentication_string": [
                method for method in ("emoji", "decimal") if method in offered
            ],
            "commitment": base64.b64encode(commitment).decode().rstrip("="),
        }
        await known.reply(f"{PREFIX}accept", answer)

    async def _key(
        self, known: _Verification, content: VerificationContent, transaction: str
    ) -> None:
        if known.device is None or known.established is not None:
            await self._cancel(known, transaction, "m.unexpected_message")
            return
        own = known.sas.public_key.to_base64()
        try:
            theirs = Curve25519PublicKey.from_base64(content.key)
        except KeyException:
            await self._cancel(known, transaction, "m.invalid_message")
            return
        known.their_key = content.key
        known.established = known.sas.diffie_hellman(theirs)
        await known.reply(f"{PREFIX}key", {"key": own})
        began = f"{known.user}|{known.device.id}|{content.key}"
        answered = f"{self._login.user_id}|{self._login.device_id}|{own}"
        info = f"MATRIX_KEY_VERIFICATION_SAS|{began}|{answered}|{transaction}"
        indices = known.established.bytes(info).emoji_indices
        emoji = "  ".join(" ".join(NioSas.emoji[index]) for index in indices)
        log.warning("%s verifies this device; their client must show: %s", known.user, emoji)

    async def _mac(
        self, known: _Verification, content: VerificationContent, transaction: str
    ) -> None:
        device, established = known.device, known.established
        if device is None or established is None:
            await self._cancel(known, transaction, "m.unexpected_message")
            return
        own = f"{self._login.user_id}{self._login.device_id}"
        theirs = f"{known.user}{device.id}"
        received = f"MATRIX_KEY_VERIFICATION_MAC{theirs}{own}{transaction}"
        names = ",".join(sorted(content.mac))
        key_id = f"ed25519:{device.id}"
        wanted = established.calculate_mac(device.ed25519, f"{received}{key_id}")
        listed = established.calculate_mac(names, f"{received}KEY_IDS")
        if content.keys != listed or content.mac.get(key_id) != wanted:
            await self._cancel(known, transaction, "m.key_mismatch")
            return
        sent = f"MATRIX_KEY_VERIFICATION_MAC{own}{theirs}{transaction}"
        keys = {f"ed25519:{self._login.device_id}": self._encryption.fingerprint}
        keys |= self._more_keys
        macs = {name: established.calculate_mac(key, f"{sent}{name}") for name, key in keys.items()}
        all_names = established.calculate_mac(",".join(sorted(macs)), f"{sent}KEY_IDS")
        await known.reply(f"{PREFIX}mac", {"mac": macs, "keys": all_names})
        self._encryption.mark_verified(device)
        log.warning("%s has verified this device; %s is now verified too", known.user, device.id)
        await known.reply(f"{PREFIX}done", {})
        self._open.drop(transaction)

    async def _cancel(self, known: _Verification, transaction: str, code: str) -> None:
        self._open.drop(transaction)
        log.warning("the verification by %s failed: %s", known.user, code)
        await known.reply(f"{PREFIX}cancel", {"code": code, "reason": code.removeprefix("m.")})
