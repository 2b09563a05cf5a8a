"""Send events to rooms; in encrypted rooms always encrypted."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.device import Device
from hermes.channels.matrix.encryption import ENCRYPTED
from hermes.channels.matrix.rooms import RoomDirectory
from hermes.ports.channel import NotSent

MAX_PLAIN = 60_000
MAX_ENCRYPTED = 44_000
"""Maximum bytes of the content: an event may have 65,536, and encryption adds a third."""


class RoomSender:
    def __init__(
        self,
        *,
        api: ClientApi,
        device: Device,
        rooms: RoomDirectory,
        mode: Literal["off", "optional", "required"],
    ) -> None:
        self._api = api
        self._device = device
        self._rooms = rooms
        self._mode = mode

    async def is_encrypted(self, room: str) -> bool:
        """Raises `NotSent` if the settings say that nothing may be sent there."""
        encrypted = await self._rooms.is_encrypted(room)
        if encrypted and self._mode == "off":
            raise NotSent(
                "The room is encrypted, but encryption is turned off: nothing is sent there.",
                hint="Remove MATRIX_E2EE_MODE=off (or MATRIX_ENCRYPTION=false).",
            )
        if not encrypted and self._mode == "required":
            raise NotSent(
                "The room is not encrypted, but the settings require it: nothing is sent there.",
                hint="Turn on encryption in the room, or remove MATRIX_E2EE_MODE=required.",
            )
        return encrypted

    async def send(
        self,
        room: str,
        kind: str,
        content: Mapping[str, object],
        key: str,
        *,
        optional: bool = False,
    ) -> str:
        """Send an event and return its id; the same `key` sends it only once."""
        opened = await self._device.ready()
        encrypted = await self.is_encrypted(room)
        content = fitting(content, MAX_ENCRYPTED if encrypted else MAX_PLAIN)
        if encrypted and opened.encryption is not None:
            people = (await self._rooms.facts(room)).readers
            content = await opened.encryption.encrypt(room, people, kind, content)
            kind = ENCRYPTED
        elif encrypted:
            raise NotSent("The room is encrypted, but this device has no keys.")
        return await self._api.send_event(room, kind, key, content, optional=optional)


def fitting(content: Mapping[str, object], max_bytes: int) -> Mapping[str, object]:
    """Leave out the HTML of a text that would not fit into an event with it."""
    if len(msgspec.json.encode(content)) <= max_bytes:
        return content
    plain = _without_markup(content)
    if "m.new_content" in plain:
        new = msgspec.convert(plain["m.new_content"], dict[str, object])
        plain["m.new_content"] = _without_markup(new)
    return plain


def _without_markup(content: Mapping[str, object]) -> dict[str, object]:
    left_out = {"format", "formatted_body"}
    return {name: value for name, value in content.items() if name not in left_out}
