"""Serve the emulated daemon: JSON-RPC calls, the stream of events, and recorded errors."""

import base64
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web

from emulators.http_emulator import HttpEmulator, json_response
from emulators.signal.state import ACCOUNT, EmulatedPost, EmulatedSignal
from hermes.kit.sse import frame

RUN = "1790000000000"
"""The start of the daemon; ids of another run are not known."""
_URI = re.compile(r"data:([^;,]+)(?:;filename=([^;,]+))?;base64,(.*)", re.DOTALL)
Params = dict[str, Any]


class RpcError(Exception):
    def __init__(self, code: int, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind

    def as_json(self) -> dict[str, object]:
        result = {"recipientAddress": {"uuid": None, "number": None}, "type": self.kind}
        data = {"response": {"timestamp": 1, "results": [result]}} if self.kind else None
        return {"code": self.code, "message": str(self), "data": data}


RATE_LIMIT = RpcError(-5, "Failed to send message due to rate limiting", "RATE_LIMIT_FAILURE")
UNREGISTERED = RpcError(-1, "Failed to send message", "UNREGISTERED_FAILURE")
UNTRUSTED = RpcError(-4, "Failed to send message due to untrusted identities", "IDENTITY_FAILURE")
NO_GROUP = RpcError(-1, "Failed to send message: Group not found (GroupNotFoundException)")
NETWORK = RpcError(-1, "Failed to send message", "NETWORK_FAILURE")
IO_FAILED = RpcError(-3, "Failed to send message: Connection closed (IOException)")
NO_ACCOUNT = RpcError(-32602, "Specified account does not exist")


class SignalServer(HttpEmulator):
    """Serves `signal`; `failing` is the error of all sent messages."""

    def __init__(self, signal: EmulatedSignal) -> None:
        self.signal = signal
        self.failing: RpcError | None = None
        self.numbered = True
        self.listeners = 0
        self.connections = 0
        super().__init__(
            signal,
            [
                web.get("/api/v1/check", self._check),
                web.post("/api/v1/rpc", self._rpc),
                web.get("/api/v1/events", self._events),
            ],
        )

    async def _check(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """New events only, unless the client names the last one that it has."""
        if request.query.get("account", ACCOUNT) != ACCOUNT:
            return web.Response(status=400)
        last = request.headers.get("Last-Event-ID")
        after = self.signal.events[-1][0] if self.signal.events else 0
        if last is not None and self.numbered:
            run, _, number = last.partition("-")
            after = int(number) if run == RUN else 0
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.listeners += 1
        self.connections += 1
        self.changed()
        try:
            await response.write(b":\n\n")
            while True:
                for number, event in [one for one in self.signal.events if one[0] > after]:
                    name = f"{RUN}-{number}" if self.numbered else ""
                    data = frame(msgspec.json.encode(event), event="receive", id=name)
                    await response.write(data)
                    after = number
                await self.next_change()
        finally:
            self.listeners -= 1

    async def _rpc(self, request: web.Request) -> web.StreamResponse:
        call = msgspec.json.decode(await request.read(), type=dict[str, Any])
        method, params = call["method"], call.get("params", {})
        self.calls.append(method)
        methods: dict[str, Callable[[Params], object]] = {
            "send": self._send,
            "sendTyping": self._typing,
            "sendReaction": self._react,
            "getAttachment": self._attachment,
            "version": lambda params: {"version": "0.13.99"},
            "listAccounts": lambda params: [{"number": ACCOUNT}],
        }

        def perform() -> web.Response:
            return _answer(call, methods[method](params))

        try:
            if method not in {"version", "listAccounts"} and params.get("account") != ACCOUNT:
                raise NO_ACCOUNT
            if method != "send":
                return perform()
            self._check_send(params)
        except RpcError as error:
            return _failed(call, error)
        return await self.with_faults(
            request,
            _chat(params),
            perform,
            refused=_failed(call, RpcError(-1, "Failed to send message")),
            throttled=_failed(call, RATE_LIMIT),
        )

    def _check_send(self, params: Params) -> None:
        if self.failing is not None:
            raise self.failing
        group, people = params.get("groupId"), params.get("recipient", [])
        if group is not None and group not in self.signal.groups:
            raise NO_GROUP
        for person in people:
            if person in self.signal.changed_keys:
                raise UNTRUSTED
            if person not in self.signal.members:
                raise UNREGISTERED
        if not params.get("message") and not params.get("attachments"):
            raise RpcError(-1, "No message specified")

    def _send(self, params: Params) -> object:
        post = EmulatedPost(
            self.signal.now(), _chat(params), params["message"], params.get("textStyles", [])
        )
        if "quoteTimestamp" in params:
            post.quoted = f"{params['quoteAuthor']}:{params['quoteTimestamp']}"
        for uri in params.get("attachments", []):
            if (found := _URI.fullmatch(uri)) is None:
                raise RpcError(-1, f"Failed to add attachment: {uri[:20]}")
            post.files[unquote(found[2] or "")] = base64.b64decode(found[3])
        self.signal.posts.append(post)
        self.signal.typing.discard(post.chat)
        self.signal.on_change()
        result = {"recipientAddress": {"number": post.chat}, "type": "SUCCESS"}
        return {"timestamp": post.timestamp, "results": [result]}

    def _typing(self, params: Params) -> object:
        act = self.signal.typing.discard if params.get("stop") else self.signal.typing.add
        act(_chat(params))
        return {}

    def _react(self, params: Params) -> object:
        target = f"{params['targetAuthor']}:{params['targetTimestamp']}"
        self.signal.reactions[target] = params["emoji"]
        if params.get("remove"):
            del self.signal.reactions[target]
        self.signal.on_change()
        return {"timestamp": self.signal.now(), "results": []}

    def _attachment(self, params: Params) -> object:
        data = self.signal.files.get(params["id"])
        if data is None:
            raise RpcError(-1, "Could not find attachment with ID: " + params["id"])
        return {"data": base64.b64encode(data).decode()}


def _chat(params: Params) -> str:
    if params.get("noteToSelf"):
        return ACCOUNT
    return params.get("groupId") or params["recipient"][0]


def _answer(call: Params, result: object) -> web.Response:
    return json_response({"jsonrpc": "2.0", "result": result, "id": call["id"]})


def _failed(call: Params, error: RpcError) -> web.Response:
    return json_response({"jsonrpc": "2.0", "error": error.as_json(), "id": call["id"]})


@asynccontextmanager
async def serve_signal(signal: EmulatedSignal, port: int = 0) -> AsyncGenerator[SignalServer]:
    async with SignalServer(signal).serving(port) as server:
        yield server
