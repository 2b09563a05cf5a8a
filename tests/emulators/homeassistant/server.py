"""An emulator of Home Assistant: states of devices, its websocket, and notify services."""

import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import msgspec
from aiohttp import WSMsgType, web

from emulators.http_emulator import HttpEmulator, json_response
from support.chat_platform.state import NO_FAULTS, FaultRates

TOKEN = "long-lived-token-of-the-emulator"

Json = dict[str, object]


class EmulatedHome:
    """Devices with their states, notifications by id, and messages of notify services.

    `pause` is the time between two changes. `admin`: the token is that of an administrator.
    """

    def __init__(self, faults: FaultRates = NO_FAULTS, seed: int = 0) -> None:
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311 - faults of tests
        self.on_change: Callable[[], None] = lambda: None
        self.states: dict[str, Json] = {}
        self.events: list[Json] = []
        self.notifications: dict[str, str] = {}
        self.messages: list[tuple[str, str]] = []
        self.services = {"notify", "mobile_app_phone"}
        self.admin = True
        self.pause = timedelta(seconds=60)
        self.time = datetime.now(UTC)

    def set(self, device: str, state: str, **attributes: object) -> Json:
        """Change a device and return the event.

        `last_changed` is not updated if only attributes change.
        """
        self.time += self.pause
        old = self.states.get(device)
        changed_at: object = self.time.isoformat()
        if old is not None and old["state"] == state:
            changed_at = old["last_changed"]
        new: Json = {
            "entity_id": device,
            "state": state,
            "last_changed": changed_at,
            "attributes": attributes,
        }
        self.states[device] = new
        data: Json = {"entity_id": device, "old_state": old, "new_state": new}
        return self._fired("state_changed", data)

    def restart(self) -> None:
        """Load all states again, as after a start: they count as changed now."""
        self.time += self.pause
        for device, state in self.states.items():
            self.states[device] = {**state, "last_changed": self.time.isoformat()}

    def say(self, text: str, user: str = "") -> Json:
        """Fire the event of somebody who says something to the agent."""
        data: Json = {"message": text}
        return self._fired("hermes_message", {**data, "user": user} if user else data)

    def say_in_one_run(self, *texts: str) -> list[Json]:
        """Fire several events in one run of an automation: they have the same context."""
        context = self._new_context()
        return [self._fired("hermes_message", {"message": text}, context) for text in texts]

    def _new_context(self) -> Json:
        return {"id": f"01EMULATED{len(self.events):016d}", "user_id": None}

    def _fired(self, kind: str, data: Json, context: Json | None = None) -> Json:
        fired_at = self.time + timedelta(microseconds=len(self.events))
        event: Json = {
            "event_type": kind,
            "data": data,
            "origin": "LOCAL",
            "time_fired": fired_at.isoformat(),
            "context": context or self._new_context(),
        }
        self.events.append(event)
        self.on_change()
        return event


class HomeAssistantServer(HttpEmulator):
    """Serves `home`; `failing` is the status of all calls of services.

    The events in `early` are sent before the next answer to `get_states`, which is refused if
    `refuses_states` is set.
    """

    def __init__(self, home: EmulatedHome) -> None:
        routes = [
            web.get("/api/websocket", self._websocket),
            web.get("/api/config", self._config),
            web.post("/api/services/{domain}/{service}", self._service),
        ]
        super().__init__(home, routes)
        self.home = home
        self.failing = 0
        self.refuses_states = False
        self.early: list[Json] = []
        self._subscribers: dict[web.WebSocketResponse, dict[str, int]] = {}
        self._following: set[web.WebSocketResponse] = set()
        """Those who have received all states."""
        self._handled = 0

    async def change(self, device: str, state: str, **attributes: object) -> None:
        """Change a device once somebody follows, and wait until the event was handled."""
        await self.until(lambda: bool(self._following))
        await self.push(self.home.set(device, state, **attributes))

    async def push(self, event: Json) -> None:
        """Send an event to those who follow it, and wait until one of them has handled it."""
        kind = str(event["event_type"])
        await self.until(lambda: any(kind in kinds for kinds in self._subscribers.values()))
        handled = self._handled
        for socket, kinds in list(self._subscribers.items()):
            with suppress(ConnectionError):
                await _send_event(socket, kinds, event)
                # Answered once the client reads on.
                await socket.ping()
        await self.until(lambda: self._handled > handled)

    async def disconnect(self) -> None:
        sockets = list(self._subscribers)
        self._subscribers.clear()
        self._following.clear()
        for socket in sockets:
            await socket.close()

    async def _websocket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        await socket.send_str(_text({"type": "auth_required", "ha_version": "2026.11.0"}))
        try:
            async for message in socket:
                if message.type is WSMsgType.PONG:
                    self._handled += 1
                    self.changed()
                elif message.type is WSMsgType.TEXT:
                    await self._command(socket, msgspec.json.decode(message.data))
        finally:
            self._subscribers.pop(socket, None)
            self._following.discard(socket)
            self.changed()
        return socket

    async def _command(self, socket: web.WebSocketResponse, command: Json) -> None:
        number, kind = command.get("id", 0), command["type"]
        answer: Json = {"id": number, "type": "result", "success": True, "result": None}
        match kind:
            case "auth" if command["access_token"] == TOKEN:
                answer = {"type": "auth_ok", "ha_version": "2026.11.0"}
            case "auth":
                answer = {"type": "auth_invalid", "message": "Invalid access token or password"}
            case "subscribe_events" if not self._may_subscribe(str(command["event_type"])):
                answer = _refusal(number, "unauthorized", "Unauthorized")
            case "subscribe_events":
                kinds = self._subscribers.setdefault(socket, {})
                kinds[str(command["event_type"])] = int(str(number))
            case "get_states" if self.refuses_states:
                answer = _refusal(number, "unknown_error", "Unknown error")
            case "get_states":
                while self.early:
                    await _send_event(socket, self._subscribers[socket], self.early.pop(0))
                answer["result"] = list(self.home.states.values())
            case "ping":
                answer = {"id": number, "type": "pong"}
            case _:
                answer = _refusal(number, "unknown_command", "Unknown command.")
        await socket.send_str(_text(answer))
        if kind == "get_states":
            self._following.add(socket)
        self.changed()

    def _may_subscribe(self, kind: str) -> bool:
        """Users who are no administrators may follow only some kinds of events."""
        return self.home.admin or kind == "state_changed"

    async def _config(self, request: web.Request) -> web.Response:
        if not _authorized(request):
            return web.Response(status=401, text="401: Unauthorized")
        return json_response({"location_name": "Home", "version": "2026.11.0"})

    async def _service(self, request: web.Request) -> web.StreamResponse:
        if not _authorized(request):
            return web.Response(status=401, text="401: Unauthorized")
        if self.failing:
            return json_response({"message": "failing"}, self.failing, {"Retry-After": "3"})
        domain, service = request.match_info["domain"], request.match_info["service"]
        fields = msgspec.json.decode(await request.read(), type=dict[str, str])
        if domain == "notify" and service not in self.home.services:
            return json_response({"message": "Bad request"}, 400)
        return await self.with_faults(
            request,
            service,
            lambda: self._perform(domain, service, fields),
            refused=json_response({"message": "Bad request"}, 400),
            throttled=json_response({"message": "Too many requests"}, 429),
        )

    def _perform(self, domain: str, service: str, fields: dict[str, str]) -> web.Response:
        if domain == "persistent_notification":
            self.home.notifications[fields["notification_id"]] = fields["message"]
        else:
            self.home.messages.append((service, fields["message"]))
        self.home.on_change()
        return json_response([])


async def _send_event(socket: web.WebSocketResponse, kinds: Mapping[str, int], event: Json) -> None:
    number = kinds[str(event["event_type"])]
    await socket.send_str(_text({"id": number, "type": "event", "event": event}))


def _refusal(number: object, code: str, message: str) -> Json:
    error = {"code": code, "message": message}
    return {"id": number, "type": "result", "success": False, "error": error}


def _text(frame: Json) -> str:
    return msgspec.json.encode(frame).decode()


def _authorized(request: web.Request) -> bool:
    return request.headers.get("Authorization") == f"Bearer {TOKEN}"


@asynccontextmanager
async def serve_home(home: EmulatedHome) -> AsyncGenerator[HomeAssistantServer]:
    async with HomeAssistantServer(home).serving() as server:
        yield server
