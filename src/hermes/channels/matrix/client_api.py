"""A thin client of Matrix's client-server API; errors become those of channels."""

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from hermes.channels.http_client import UPLOAD_TIMEOUT, HttpBody, HttpClient
from hermes.channels.matrix.event_limit import LIMITED, EventLimit
from hermes.channels.matrix.objects import Event, EventPage, Login, SyncAnswer
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome
from hermes.schema.errors import HermesError

T = TypeVar("T")
Fields = Mapping[str, object]

CALL_TIMEOUT = 30.0
SYNC_SECONDS = 25.0
SYNC_GRACE = 20.0
PAGE = 100
DEFAULT_WAIT = 5.0
TIMELINE = 20
FILTER = msgspec.json.encode(
    {
        "room": {
            "timeline": {"limit": TIMELINE},
            "state": {"lazy_load_members": True},
            "ephemeral": {"types": []},
            "account_data": {"types": []},
        },
        "presence": {"types": []},
        "account_data": {"types": ["m.direct"]},
    }
).decode()
_CLIENT = "/_matrix/client/v3"
_MEDIA = "/_matrix/client/v1/media"


class LoggedOut(Offline):
    """The server does not accept the token; `soft` if the device still exists."""

    code = "logged_out"

    def __init__(self, message: str, *, soft: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.soft = soft


class MissingObject(NotSent):
    """The requested object does not exist."""

    code = "nothing_there"


class TooLarge(NotSent):
    """The event or file is larger than the server accepts."""

    code = "too_large"


_REFUSALS: Mapping[str, type[NotSent]] = {
    "M_FORBIDDEN": TargetGone,
    "M_NOT_FOUND": MissingObject,
    "M_TOO_LARGE": TooLarge,
}


class _Refusal(Struct, frozen=True, kw_only=True):
    errcode: str = ""
    error: str = ""
    retry_after_ms: float = 0.0
    soft_logout: bool = False


class _Sent(Struct, frozen=True):
    event_id: str


class _Uploaded(Struct, frozen=True):
    content_uri: str


class _WhoAmI(Struct, frozen=True, kw_only=True):
    user_id: str
    device_id: str = ""


class _Resolved(Struct, frozen=True):
    room_id: str


class ClientApi:
    """Calls with the token that `login` set. Nothing is retried here."""

    def __init__(self, http: HttpClient, homeserver: str, clock: Clock) -> None:
        self._http = http
        self._limit = EventLimit(clock)
        self._base = homeserver.rstrip("/")
        self.token = ""

    async def log_in(self, user: str, password: str, device: str, name: str) -> Login:
        """Log in with a password, as the given device if it is not empty."""
        fields: dict[str, object] = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user},
            "password": password,
            "initial_device_display_name": name,
        }
        if device:
            fields["device_id"] = device
        return await self.call("POST", f"{_CLIENT}/login", Login, fields, with_token=False)

    async def who_am_i(self) -> Login:
        found = await self.call("GET", f"{_CLIENT}/account/whoami", _WhoAmI)
        return Login(user_id=found.user_id, device_id=found.device_id, access_token=self.token)

    async def sync(self, since: str, seconds: float = SYNC_SECONDS) -> SyncAnswer:
        """Wait for events after `since`; without it, return the state of the rooms."""
        query = {"filter": FILTER, "timeout": str(int(seconds * 1000) if since else 0)}
        if since:
            query["since"] = since
        limit = (seconds if since else UPLOAD_TIMEOUT) + SYNC_GRACE
        return await self.call("GET", f"{_CLIENT}/sync", SyncAnswer, query=query, seconds=limit)

    async def send_event(
        self,
        room: str,
        kind: str,
        key: str,
        content: Fields | bytes,
        *,
        optional: bool = False,
    ) -> str:
        """Send an event and return its id; the same `key` sends it only once.

        While the homeserver limits events, `optional` ones are left out.
        """
        path = f"{_room(room)}/send/{quote(kind, safe='')}/{quote(key, safe='')}"
        return (await self._send(path, _Sent, content, optional=optional)).event_id

    async def redact(self, room: str, event: str) -> None:
        path = f"{_room(room)}/redact/{quote(event, safe='')}/{new_id('txn')}"
        await self._send(path, object, {}, optional=True)

    async def _send(
        self, path: str, result: type[T], content: Fields | bytes, *, optional: bool
    ) -> T:
        self._limit.count(optional=optional)
        try:
            return await self.call("PUT", path, result, content)
        except Throttled as error:
            self._limit.refused(error.wait)
            raise

    async def send_to_devices(self, kind: str, messages: Fields) -> None:
        path = f"{_CLIENT}/sendToDevice/{quote(kind, safe='')}/{new_id('txn')}"
        await self.call("PUT", path, object, {"messages": messages})

    async def event(self, room: str, event: str) -> Event:
        return await self.call("GET", f"{_room(room)}/event/{quote(event, safe='')}", Event)

    async def messages(self, room: str, start: str, until: str) -> EventPage:
        """Return the events before `start`, newest first, back to `until`."""
        query = {"dir": "b", "from": start, "limit": str(PAGE)}
        if until:
            query["to"] = until
        return await self.call("GET", f"{_room(room)}/messages", EventPage, query=query)

    async def state(self, room: str) -> list[Event]:
        """All current state of a room."""
        return await self.call("GET", f"{_room(room)}/state", list[Event])

    async def encryption_of(self, room: str) -> bool:
        """Whether the room is encrypted now."""
        try:
            await self.call("GET", f"{_room(room)}/state/m.room.encryption", object)
        except MissingObject:
            return False
        return True

    async def reactions(self, room: str, event: str) -> tuple[Event, ...]:
        """The newest reactions to an event."""
        path = f"/_matrix/client/v1/rooms/{quote(room, safe='')}/relations"
        return (
            await self.call(
                "GET", f"{path}/{quote(event, safe='')}/m.annotation/m.reaction", EventPage
            )
        ).chunk

    async def resolve_alias(self, alias: str) -> str:
        path = f"{_CLIENT}/directory/room/{quote(alias, safe='')}"
        return (await self.call("GET", path, _Resolved)).room_id

    async def join(self, room: str) -> None:
        await self.call("POST", f"{_room(room)}/join", object, {})

    async def leave(self, room: str) -> None:
        await self.call("POST", f"{_room(room)}/leave", object, {})

    async def typing(self, room: str, user: str, *, on: bool) -> None:
        path = f"{_room(room)}/typing/{quote(user, safe='')}"
        fields: dict[str, object] = {"typing": on}
        if on:
            fields["timeout"] = 30_000
        await self.call("PUT", path, object, fields)

    async def mark_read(self, room: str, event: str) -> None:
        path = f"{_room(room)}/receipt/m.read/{quote(event, safe='')}"
        await self.call("POST", path, object, {})

    async def account_data(self, user: str, kind: str, content: type[T]) -> T | None:
        try:
            return await self.call("GET", _account_data(user, kind), content)
        except MissingObject:
            return None

    async def set_account_data(self, user: str, kind: str, content: Fields) -> None:
        await self.call("PUT", _account_data(user, kind), object, content)

    async def post_keys(self, what: str, fields: Fields, content: type[T]) -> T:
        """Call one of `keys/upload`, `keys/query`, `keys/claim` and `keys/signatures/upload`."""
        return await self.call("POST", f"{_CLIENT}/keys/{what}", content, fields)

    async def upload(self, data: bytes, media_type: str, name: str) -> str:
        """Upload a file and return its address."""
        found = await self.call(
            "POST",
            "/_matrix/media/v3/upload",
            _Uploaded,
            data,
            query={"filename": name} if name else None,
            media_type=media_type,
            seconds=UPLOAD_TIMEOUT,
        )
        return found.content_uri

    async def download(self, address: str, *, max_bytes: int) -> bytes:
        """Return the content of a file. Raises `NotSent` if it is too large, or `Offline`."""
        server, _, media = address.removeprefix("mxc://").partition("/")
        if not address.startswith("mxc://") or not server or not media:
            raise NotSent("The file has no valid address.")
        path = f"{_MEDIA}/download/{quote(server, safe=':')}/{quote(media, safe='')}"
        return await self._http.download(
            self._base + path, max_bytes=max_bytes, headers=self._headers()
        )

    async def call(
        self,
        method: str,
        path: str,
        result: type[T],
        body: Fields | bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        media_type: str = "application/json",
        seconds: float = CALL_TIMEOUT,
        with_token: bool = True,
    ) -> T:
        """Call the server and return its answer. Raises the errors of `Channel.send`."""
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        query_text = f"?{urlencode(query)}" if query else ""
        answer = await self._http.call(
            method,
            f"{self._base}{path}{query_text}",
            HttpBody(data, {"Content-Type": media_type}) if data is not None else None,
            self._headers() if with_token else {},
            seconds=seconds,
        )
        if answer.status != 200:
            raise _error(answer.status, answer.body)
        item = Event if issubclass(result, SyncAnswer | EventPage) else None
        return self._http.decode(answer, result, item)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def _error(status: int, body: bytes) -> HermesError:
    """The error of a refused call; its text is the server's own."""
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except JSON_ERRORS:
        refusal = _Refusal()
    text = refusal.error or f"status {status}"
    match refusal.errcode:
        case "M_LIMIT_EXCEEDED":
            wait = max(refusal.retry_after_ms / 1000, 0.0) or DEFAULT_WAIT
            message = f"The homeserver is limiting requests: {text}"
            return Throttled(message, wait=wait, all_chats=True)
        case "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED":
            return LoggedOut(
                f"The homeserver does not accept the access token: {text}",
                soft=refusal.soft_logout,
                hint="Log in again with: hermes gateway setup matrix",
            )
        case _:
            kind = _REFUSALS.get(refusal.errcode, NotSent)
    if status == 429:
        return Throttled(LIMITED, wait=DEFAULT_WAIT, all_chats=True)
    if status >= 500:
        return UnknownOutcome(f"The homeserver failed: {text}")
    return kind(f"The homeserver refused it: {text}")


def _room(room: str) -> str:
    return f"{_CLIENT}/rooms/{quote(room, safe='')}"


def _account_data(user: str, kind: str) -> str:
    return f"{_CLIENT}/user/{quote(user, safe='')}/account_data/{quote(kind, safe='')}"
