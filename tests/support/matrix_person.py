"""A person on a Matrix server: matrix-nio's own client, in a thread with its own event loop."""

import asyncio
import io
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nio import (
    AsyncClient,
    AsyncClientConfig,
    MegolmEvent,
    ReceiptEvent,
    RoomCreateResponse,
    TypingNoticeEvent,
)
from nio.crypto import DeviceStore, GroupSessionStore, SessionStore
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment
from nio.event_builders import EnableEncryptionBuilder, ToDeviceMessage
from nio.events import Event, ToDeviceEvent

from support.synapse import Homeserver

T = TypeVar("T")
WAIT = 60.0


class MemoryStore:
    """Stands in for nio's store, which binds its tables to one database per process."""

    def __init__(self, *_: object) -> None:
        self._states: dict[tuple[str, str], str] = {}
        self.load_sessions = SessionStore
        self.load_inbound_group_sessions = GroupSessionStore
        self.load_device_keys = DeviceStore
        self.load_outgoing_key_requests = dict
        self.load_encrypted_rooms = set

    def load_account(self) -> None:
        return None

    def verify_device(self, device: Any) -> bool:
        return self._set(device, "verified")

    def ignore_devices(self, devices: Any) -> None:
        for one in devices:
            self._set(one, "ignored")

    def is_device_verified(self, device: Any) -> bool:
        return self._get(device) == "verified"

    def is_device_ignored(self, device: Any) -> bool:
        return self._get(device) == "ignored"

    def is_device_blacklisted(self, device: Any) -> bool:
        return False

    def _get(self, device: Any) -> str:
        return self._states.get((device.user_id, device.id), "")

    def _set(self, device: Any, state: str) -> bool:
        self._states[device.user_id, device.id] = state
        return True

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Everything else only writes what is in memory anyway."""
        if name.startswith(("save_", "add_", "remove_", "delete_")):
            return lambda *_: None
        raise AttributeError(name)


class Person:
    """What one client of a person sees and does; methods may be called from any thread."""

    def __init__(self, server: Homeserver, user: str) -> None:
        self.user = user
        self.events: list[tuple[str, dict[str, Any]]] = []
        """Rooms and events as the person sees them: decrypted where possible."""
        self.raw: dict[str, dict[str, Any]] = {}
        """The events as they came from the server, by their ids."""
        self.receipts: set[tuple[str, str]] = set()
        """Events and who has read them."""
        self.typing: dict[str, list[str]] = {}
        self.verifications: list[dict[str, Any]] = []
        self._kept: list[dict[str, str]] = []
        config = AsyncClientConfig(
            store=MemoryStore, store_sync_tokens=False, encryption_enabled=True
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._changed = asyncio.Event()

        async def make() -> AsyncClient:
            return AsyncClient(server.url, user, store_path="-", config=config)

        self.client = self.wait(make())

    def wait(self, work: Coroutine[Any, Any, T], seconds: float = WAIT) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the person's thread, from another event loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(future)

    def start(self, password: str) -> None:
        self.wait(self._start(password))

    async def _start(self, password: str) -> None:
        answer = await self.client.login(password, device_name="phone")
        assert self.client.access_token, answer
        self.client.add_event_callback(self._on_event, Event)
        self.client.add_to_device_callback(self._on_device, ToDeviceEvent)
        self.client.add_ephemeral_callback(self._on_receipt, ReceiptEvent)
        self.client.add_ephemeral_callback(self._on_typing, TypingNoticeEvent)
        await self._sync(0)
        self._task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        while True:
            await self._sync(20_000)

    async def _sync(self, milliseconds: int) -> None:
        answer = await self.client.sync(timeout=milliseconds)
        if isinstance(answer, Exception):
            raise answer
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()
        if self.client.should_claim_keys:
            await self.client.keys_claim(self.client.get_users_for_key_claiming())
        await self.client.send_to_device_messages()
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        async def end() -> None:
            task = getattr(self, "_task", None)
            if task is not None:
                task.cancel()
            await self.client.close()
            await asyncio.sleep(0)

        self.wait(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def until(self, is_so: Callable[[], T]) -> T:
        return await self.do(self._until(is_so))

    async def _until(self, is_so: Callable[[], T]) -> T:
        async with asyncio.timeout(WAIT):
            return await self.wait_for(is_so)

    async def wait_for(self, is_so: Callable[[], T]) -> T:
        """Wait however long it takes, in the person's thread."""
        while not (found := is_so()):
            await self._changed.wait()
        return found

    async def devices_of(self, user: str) -> list[str]:
        """Ask the server for somebody's devices."""
        self.client.olm.users_for_key_query.add(user)
        await self.client.keys_query()
        return [one.id for one in self.client.device_store.active_user_devices(user)]

    def server_kinds(self, room: str, sender: str) -> set[str]:
        """The types of somebody's events as the server has them: not decrypted."""
        answer = self.wait(self.client.room_messages(room, start="", limit=500))
        return {
            "m.room.encrypted" if one.decrypted else one.source["type"]
            for one in answer.chunk
            if one.sender == sender
        }

    def create_room(
        self, *invited: str, encrypted: bool = True, direct: bool = True, **more: Any
    ) -> str:
        state = [EnableEncryptionBuilder().as_dict()] if encrypted else []
        answer = self.wait(
            self.client.room_create(
                is_direct=direct, invite=list(invited), initial_state=state, **more
            )
        )
        assert isinstance(answer, RoomCreateResponse), answer
        self.wait(self._until(lambda: answer.room_id in self.client.rooms))
        return answer.room_id

    async def joined(self, room: str, user: str) -> None:
        """Wait until somebody has joined."""

        def is_member() -> bool:
            known = self.client.rooms[room]
            return user in known.users and user not in known.invited_users

        await self.until(is_member)

    async def send(self, room: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        answer = await self.do(
            self.client.room_send(room, kind, content, ignore_unverified_devices=True)
        )
        return answer.event_id

    async def say(self, room: str, text: str, **more: Any) -> str:
        return await self.send(room, {"msgtype": "m.text", "body": text, **more})

    async def send_file(
        self, room: str, data: bytes, name: str, media_type: str, caption: str
    ) -> str:
        """Send an encrypted file."""
        ciphertext, keys = encrypt_attachment(data)
        uploaded, _ = await self.do(
            self.client.upload(
                io.BytesIO(ciphertext), "application/octet-stream", "x", filesize=len(ciphertext)
            )
        )
        content = {
            "msgtype": "m.image", "body": caption, "filename": name,
            "file": {**keys, "url": uploaded.content_uri, "v": "v2"},
            "info": {"mimetype": media_type, "size": len(data)},
        }  # fmt: skip
        return await self.send(room, content)

    async def say_without_key(self, room: str, text: str) -> str:
        """Write a message whose key nobody gets until `give_key`."""

        async def forget() -> None:
            olm = self.client.olm
            olm.create_outbound_group_session(room)
            session = olm.outbound_group_sessions[room]
            self._kept.append(
                {
                    "algorithm": "m.megolm.v1.aes-sha2",
                    "room_id": room,
                    "session_id": session.id,
                    "session_key": session.session_key,
                }
            )
            session.mark_as_shared()

        await self.do(forget())
        return await self.say(room, text)

    async def give_key(self, user: str) -> None:
        async def give() -> None:
            olm = self.client.olm
            devices = list(olm.device_store.active_user_devices(user))
            await self.client.keys_claim({user: [one.id for one in devices]})
            for device in devices:
                session = olm.session_store.get(device.curve25519)
                for key in self._kept:
                    body = olm._olm_encrypt(session, device, "m.room_key", key)
                    message = ToDeviceMessage("m.room.encrypted", user, device.id, body)
                    await self.client.to_device(message)

        await self.do(give())

    async def turn_on_encryption(self, room: str) -> None:
        state = EnableEncryptionBuilder().as_dict()
        await self.do(self.client.room_put_state(room, state["type"], state["content"]))

    def stored_kind(self, room: str, event: str) -> str:
        """The type of an event as the server has it."""
        found = self.wait(self.client.room_get_event(room, event))
        return self.raw_kind(found)

    @staticmethod
    def raw_kind(found: Any) -> str:
        event = found.event
        encrypted = isinstance(event, MegolmEvent) or event.decrypted
        return "m.room.encrypted" if encrypted else event.source["type"]

    @property
    def redactions(self) -> list[dict[str, Any]]:
        return [one for _, one in self.events if one["type"] == "m.room.redaction"]

    def left(self, room: str) -> set[str]:
        """Who has left a room, or declined an invitation."""
        return {
            one["state_key"]
            for where, one in self.events
            if where == room
            and one["type"] == "m.room.member"
            and one["content"]["membership"] == "leave"
        }

    def knows_other_device(self, user: str, device: str) -> bool:
        known = {one.id for one in self.client.device_store.active_user_devices(user)}
        return bool(known - {device})

    async def can_encrypt_for(self, user: str) -> None:
        """Wait until each device of somebody has given out a one-time key."""
        await self.do(self._open_sessions(user))

    async def _open_sessions(self, user: str) -> None:
        olm = self.client.olm
        async with asyncio.timeout(WAIT):
            while missing := [
                one.id
                for one in self.client.device_store.active_user_devices(user)
                if olm.session_store.get(one.curve25519) is None
            ]:
                await self.client.keys_claim({user: missing})

    async def to_device(self, kind: str, user: str, device: str, content: dict[str, Any]) -> None:
        await self.do(self.client.to_device(ToDeviceMessage(kind, user, device, content)))

    async def read_by(self, event: str, user: str) -> None:
        """Wait until somebody has read the event or a later one."""

        def is_read() -> bool:
            order = [one["event_id"] for _, one in self.events]
            if event not in order:
                return (event, user) in self.receipts
            later = order[order.index(event) :]
            return any((one, user) in self.receipts for one in later)

        await self.until(is_read)

    def of(self, room: str, sender: str, start: int = 0) -> list[dict[str, Any]]:
        """The events of somebody in a room, from the given one on."""
        found = self.events[start:]
        return [one for where, one in found if where == room and one["sender"] == sender]

    def texts(self, room: str, sender: str, start: int = 0) -> list[str]:
        """What somebody's messages show now: edits applied, deleted ones left out."""
        shown: dict[str, str] = {}
        for one in self.of(room, sender, start):
            content = one["content"]
            if one["type"] != "m.room.message" or "body" not in content:
                continue
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                if relation["event_id"] in shown:
                    shown[relation["event_id"]] = content["m.new_content"]["body"]
            else:
                shown[one["event_id"]] = content["body"]
        return list(shown.values())

    def event(self, event: str) -> dict[str, Any]:
        return next(one for _, one in self.events if one["event_id"] == event)

    async def see(self, event: str) -> dict[str, Any]:
        """Wait until the client has the event, and return it."""
        await self.until(lambda: any(one["event_id"] == event for _, one in self.events))
        return self.event(event)

    def file_of(self, event: str) -> tuple[str, bytes]:
        """The name and content of the file that a message has."""
        content = self.event(event)["content"]
        file = content.get("file")
        address = file["url"] if file else content["url"]
        data = self.wait(self.client.download(address)).body
        if file:
            data = decrypt_attachment(data, file["key"]["k"], file["hashes"]["sha256"], file["iv"])
        return content["filename"], data

    async def _on_event(self, room: Any, event: Any) -> None:
        source = event.source
        self.raw.setdefault(event.event_id, source)
        if not isinstance(event, MegolmEvent):
            self.events.append((room.room_id, source))

    async def _on_device(self, event: Any) -> None:
        kind = event.source["type"]
        if kind.startswith("m.key.verification."):
            self.verifications.append(event.source)

    async def _on_receipt(self, room: Any, event: Any) -> None:
        self.receipts |= {(one.event_id, one.user_id) for one in event.receipts}

    async def _on_typing(self, room: Any, event: Any) -> None:
        self.typing[room.room_id] = list(event.users)
