"""End-to-end encryption: matrix-nio's Olm machine, without its client.

The machine's own requests are made here, so that keys are stored before the server or another
device learns of them; see docs/decisions/0086.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs
from nio.crypto import Olm, OlmDevice
from nio.crypto.sessions import InboundGroupSession
from nio.event_builders import RoomKeyRequestMessage, ToDeviceMessage
from nio.events import ToDeviceEvent
from nio.responses import (
    KeysClaimResponse,
    KeysQueryResponse,
    KeysUploadResponse,
    ToDeviceResponse,
)
from nio.store import SqliteStore
from peewee import SqliteDatabase
from vodozemac import DecodeException, MegolmDecryptionException

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.objects import ABSENT, EncryptedContent, Event, Login, Related
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import NotSent, Offline, UnknownOutcome
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

MEGOLM = "m.megolm.v1.aes-sha2"
ENCRYPTED = "m.room.encrypted"
SIGNED_KEYS = "signed_curve25519"
CLAIM_TIMEOUT_MS = 10_000
MAX_INDEXES = 20_000
MAX_REQUESTS = 2_000


class Undecryptable(HermesError):
    """The key of a message is missing or does not match."""

    code = "undecryptable"


class LostDevice(Offline):
    """The server has other keys for this device, so our key store was lost."""

    code = "lost_device"


class _KeyCounts(Struct, frozen=True):
    one_time_key_counts: dict[str, int] = {}


class _KeyRequest(Struct, frozen=True):
    requesting_device_id: str = ""


class _DeviceKeys(Struct, frozen=True, kw_only=True):
    user_id: str
    device_id: str
    algorithms: list[str]
    keys: dict[str, str]
    signatures: dict[str, dict[str, str]]
    unsigned: dict[str, object] = {}


class _QueriedKeys(Struct, frozen=True, kw_only=True):
    device_keys: dict[str, dict[str, msgspec.Raw]] = {}
    failures: dict[str, object] = {}


class _OneTimeKey(Struct, frozen=True, kw_only=True):
    key: str
    signatures: dict[str, dict[str, str]]


class _ClaimedKeys(Struct, frozen=True, kw_only=True):
    one_time_keys: dict[str, dict[str, dict[str, msgspec.Raw]]] = {}


class _Decrypted(Struct, frozen=True, kw_only=True):
    room_id: str
    kind: str = msgspec.field(name="type")
    content: msgspec.Raw


class _KeyStore(SqliteStore):
    """nio's store, in a database whose commits survive a power loss."""

    def _create_database(self) -> SqliteDatabase:
        pragmas = {"foreign_keys": 1, "journal_mode": "wal", "synchronous": "full"}
        return SqliteDatabase(self.database_path, pragmas=pragmas)


class Encryption:
    """The keys of one device. Everything is called from the event loop's thread."""

    def __init__(self, *, api: ClientApi, login: Login, folder: Path) -> None:
        self._api = api
        self._login = login
        name = f"{login.device_id}.db"
        self._store = _KeyStore(login.user_id, login.device_id, str(folder), database_name=name)
        self._olm = Olm(login.user_id, login.device_id, self._store)
        self._recipients: dict[str, frozenset[tuple[str, str]]] = {}
        """The devices that have our current key for a room."""
        self._sharing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._settling = asyncio.Lock()
        self._indexes: LruMap[tuple[str, int], str] = LruMap(MAX_INDEXES)
        """The event encrypted with each index of a key; another one with that index is a replay."""
        self._requested: LruMap[str, bool] = LruMap(MAX_REQUESTS)

    def close(self) -> None:
        self._store.database.close()

    @property
    def fingerprint(self) -> str:
        return self._olm.account.identity_keys["ed25519"]

    async def publish(self) -> None:
        """Upload the device's keys if the server does not have them. Raises `LostDevice`."""
        user, device = self._login.user_id, self._login.device_id
        raw = (await self._query([user])).get(user, {}).get(device)
        own = msgspec.convert(raw, _DeviceKeys) if raw is not None else None
        if own is not None and own.keys.get(f"ed25519:{device}") != self.fingerprint:
            raise LostDevice(
                f"The homeserver has different keys for the device {device} than this program.",
                hint="Delete the device in another client, because its keys were lost or belong to "
                "another program, and run: hermes gateway setup matrix",
            )
        if own is None:
            self._olm.account.shared = False
            await self._upload()

    def device_keys(self) -> dict[str, object]:
        """The public description of the device, signed by itself."""
        user, device = self._login.user_id, self._login.device_id
        keys = self._olm.account.identity_keys
        content: dict[str, object] = {
            "algorithms": ["m.olm.v1.curve25519-aes-sha2", MEGOLM],
            "device_id": device,
            "user_id": user,
            "keys": {
                f"curve25519:{device}": keys["curve25519"],
                f"ed25519:{device}": keys["ed25519"],
            },
        }
        signature = self._olm.sign_json(content)
        return {**content, "signatures": {user: {f"ed25519:{device}": signature}}}

    def receive(
        self, events: Sequence[Event], counts: Mapping[str, int], changed: Collection[str]
    ) -> None:
        """Process the keys in a sync response, in one transaction of the store."""
        if counts:
            self._olm.uploaded_key_count = counts.get(SIGNED_KEYS, 0)
        self._olm.add_changed_users(set(changed) & self._olm.tracked_users)
        with self._store.database.atomic():
            for event in events:
                self._receive_one(event)
            if events:
                # The machine stores the account before it removes the one-time key from it.
                self._olm.save_account()

    def forget(self, users: Collection[str]) -> None:
        """The server no longer reports changes to these users' devices."""
        self._olm.tracked_users.difference_update(users)

    async def settle(self) -> None:
        """Do what the last syncs require: upload and query keys, repair sessions, reply."""
        async with self._settling:
            if self._olm.should_upload_keys:
                await self._upload()
            if self._olm.users_for_key_query:
                await self._update_devices(set(self._olm.users_for_key_query))
            if self._olm.wedged_devices or self._olm.key_request_devices_no_session:
                await self._claim(self._olm.get_users_for_key_claiming())
            self._olm.collect_key_requests()
            for message in list(self._olm.outgoing_to_device_messages):
                await self._send_to_device(message)

    async def encrypt(
        self, room: str, people: Collection[str], kind: str, content: Mapping[str, object]
    ) -> dict[str, object]:
        """Encrypt content so that all devices of these people can read it."""
        async with self._sharing[room]:
            try:
                await self._share_key(room, people)
            except UnknownOutcome as error:
                raise Offline(str(error)) from error
            session = self._olm.outbound_group_sessions[room]
            payload = msgspec.json.encode({"type": kind, "content": content, "room_id": room})
            encrypted: dict[str, object] = {
                "algorithm": MEGOLM,
                "ciphertext": session.encrypt(payload.decode()),
                "session_id": session.id,
                "sender_key": self._olm.account.identity_keys["curve25519"],
                "device_id": self._login.device_id,
            }
        if (relation := content.get("m.relates_to")) is not None:
            # Servers need it to find the events of a thread.
            encrypted["m.relates_to"] = relation
        return encrypted

    async def decrypt(self, room: str, event: Event) -> Event:
        """Raises `Undecryptable`."""
        try:
            content = event.read(EncryptedContent)
            ciphertext = msgspec.json.decode(content.ciphertext, type=str)
        except JSON_ERRORS as error:
            raise Undecryptable("The encrypted event is malformed.") from error
        session = self._session(room, content.session_id)
        if content.algorithm != MEGOLM or session is None:
            raise Undecryptable("The key to this event is missing.")
        await self._check_sender(event, session)
        try:
            text, index = session.decrypt(ciphertext)
            plain = msgspec.json.decode(text, type=_Decrypted)
        except (MegolmDecryptionException, DecodeException, *JSON_ERRORS) as error:
            raise Undecryptable("The event does not match its key.") from error
        first = self._indexes.get((session.id, index)) or event.event_id
        if plain.room_id != room or first != event.event_id:
            raise Undecryptable("The event repeats another one.")
        self._indexes.put((session.id, index), event.event_id)
        inner = structs.replace(event, kind=plain.kind, content=plain.content)
        return _with_relation(inner, content)

    async def request_key(self, room: str, event: Event) -> None:
        """Ask our own other devices and the sender's for the key of an event, once."""
        try:
            content = event.read(EncryptedContent)
        except JSON_ERRORS:
            return
        if not content.session_id or self._requested.get(content.session_id):
            return
        self._requested.put(content.session_id, True)
        body = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": content.session_id,
            "sender_key": content.sender_key,
        }
        request = {
            "action": "request",
            "body": body,
            "request_id": content.session_id,
            "requesting_device_id": self._login.device_id,
        }
        targets = dict.fromkeys(((self._login.user_id, "*"), (event.sender, "*")))
        for user, device in targets:
            message = RoomKeyRequestMessage(
                "m.room_key_request", user, device, request,
                content.session_id, content.session_id, room, MEGOLM,
            )  # fmt: skip
            self._olm.outgoing_to_device_messages.append(message)
        await self.settle()

    async def device(self, user: str, device: str) -> OlmDevice | None:
        """A device as the server describes it now."""
        await self._update_devices({user})
        return self._olm.device_store[user].get(device)

    def mark_verified(self, device: OlmDevice) -> None:
        self._olm.verify_device(device)

    def is_verified(self, user: str, device: str) -> bool:
        known = self._olm.device_store[user].get(device)
        return known is not None and self._olm.is_device_verified(known)

    def _receive_one(self, event: Event) -> None:
        content = msgspec.json.decode(event.content)
        raw = {"type": event.kind, "sender": event.sender, "content": content}
        if self._is_own_request(event):
            return
        try:
            parsed = ToDeviceEvent.parse_event(raw)
            if parsed is not None:
                self._olm.handle_to_device_event(parsed)
        except Exception:
            # nio lets other people's malformed events through; the following ones must still be
            # read.
            log.exception("an event from another device could not be read: %s", event.kind)

    def _is_own_request(self, event: Event) -> bool:
        """Requests sent to all our devices also come back to this one."""
        if event.kind != "m.room_key_request" or event.sender != self._login.user_id:
            return False
        try:
            return event.read(_KeyRequest).requesting_device_id == self._login.device_id
        except JSON_ERRORS:
            return True

    async def _upload(self) -> None:
        """Upload keys; the private ones are stored before the server hands out the public ones."""
        content = self._olm.share_keys()
        self._olm.save_account()
        answer = await self._api.post_keys("upload", content, _KeyCounts)
        count = answer.one_time_key_counts.get(SIGNED_KEYS, 0)
        self._olm.handle_response(KeysUploadResponse(0, count))

    async def _query(self, users: Collection[str]) -> dict[str, dict[str, object]]:
        """Fetch users' devices unchanged: modifying them would invalidate their signatures."""
        fields = {"device_keys": {user: list[str]() for user in users}}
        answer = await self._api.post_keys("query", fields, _QueriedKeys)
        found: dict[str, dict[str, object]] = {}
        for user in users:
            if _server_of(user) in answer.failures:
                log.info("the devices of %s could not be requested", user)
                continue
            found[user] = {}
            for name, raw in answer.device_keys.get(user, {}).items():
                try:
                    msgspec.json.decode(raw, type=_DeviceKeys)
                except JSON_ERRORS:
                    log.info("the device %s of %s is malformed", name, user)
                else:
                    found[user][name] = msgspec.json.decode(raw)
        return found

    async def _update_devices(self, users: Collection[str]) -> None:
        found = await self._query(users)
        self._olm.handle_response(KeysQueryResponse(found, {}))
        # Devices on servers that do not answer are queried again when needed.
        self._olm.users_for_key_query.difference_update(users)

    async def _claim(self, devices: Mapping[str, Sequence[str]]) -> None:
        fields = {
            "one_time_keys": {
                user: dict.fromkeys(names, SIGNED_KEYS) for user, names in devices.items() if names
            },
            "timeout": CLAIM_TIMEOUT_MS,
        }
        answer = await self._api.post_keys("claim", fields, _ClaimedKeys)
        keys: dict[str, dict[str, dict[str, object]]] = {}
        for user, claimed in answer.one_time_keys.items():
            for device, found in claimed.items():
                for name, raw in found.items():
                    try:
                        msgspec.json.decode(raw, type=_OneTimeKey)
                    except JSON_ERRORS:
                        log.info("a key of the device %s of %s is malformed", device, user)
                    else:
                        keys.setdefault(user, {})[device] = {name: msgspec.json.decode(raw)}
        with self._store.database.atomic():
            self._olm.handle_response(KeysClaimResponse(keys, {}))

    async def _share_key(self, room: str, people: Collection[str]) -> None:
        """Make sure that exactly the devices of these people have the room's key."""
        unknown = [user for user in people if user not in self._olm.tracked_users]
        if changed := {*unknown, *(self._olm.users_for_key_query & set(people))}:
            await self._update_devices(changed)
        recipients = frozenset(
            (user, device.id)
            for user in people
            for device in self._olm.device_store.active_user_devices(user)
            if (user, device.id) != (self._login.user_id, self._login.device_id)
            and not device.blacklisted
        )
        if self._recipients.get(room) != recipients:
            # People who left must not read new messages; people who joined must not read old ones.
            self._olm.outbound_group_sessions.pop(room, None)
        if not self._olm.should_share_group_session(room):
            return
        users = sorted(people)
        if missing := self._olm.get_missing_sessions(users):
            await self._claim(missing)
        self._olm.create_outbound_group_session(room)
        shares = self._olm.share_group_session_parallel(room, users, ignore_unverified_devices=True)
        for _, messages in list(shares):
            await self._api.send_to_devices(ENCRYPTED, messages["messages"])
        self._olm.outbound_group_sessions[room].mark_as_shared()
        self._recipients[room] = recipients

    async def _send_to_device(self, message: ToDeviceMessage) -> None:
        await self._api.send_to_devices(message.type, message.as_dict()["messages"])
        self._olm.handle_response(ToDeviceResponse(message))

    def _session(self, room: str, session: str) -> InboundGroupSession | None:
        """Find a key by its id alone: clients may leave out that of its sender."""
        for known in self._olm.inbound_group_store[room].values():
            if session in known:
                return known[session]
        return None

    async def _check_sender(self, event: Event, session: InboundGroupSession) -> None:
        """Check that the key comes from a device of the sender that the server names."""
        if session.forwarding_chain:
            return
        own = self._olm.account.identity_keys["curve25519"]
        if event.sender == self._login.user_id and session.sender_key == own:
            return
        find = self._olm.device_store.device_from_sender_key
        if find(event.sender, session.sender_key) is not None:
            return
        try:
            await self._update_devices({event.sender})
        except (NotSent, UnknownOutcome) as error:
            raise Offline(str(error)) from error
        if find(event.sender, session.sender_key) is None:
            raise Undecryptable(f"The key is not from a device of {event.sender}.")


def _with_relation(event: Event, outer: EncryptedContent) -> Event:
    """Some clients put the relation only outside the encrypted part."""
    try:
        related = event.read(Related).relates_to is not None
        content = msgspec.json.decode(event.content, type=dict[str, msgspec.Raw])
    except JSON_ERRORS:
        return event
    if related or outer.relates_to == ABSENT:
        return event
    content["m.relates_to"] = outer.relates_to
    return structs.replace(event, content=msgspec.Raw(msgspec.json.encode(content)))


def _server_of(user: str) -> str:
    return user.partition(":")[2]
