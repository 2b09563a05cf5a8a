"""Receive the webhooks of one profile: verify a call, store it as a message, then accept it."""

import logging
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.channels.http_calls import CallRejected, CallResponse, HttpCall
from hermes.channels.http_listener import ListenerLimits
from hermes.channels.webhook import MANIFEST
from hermes.channels.webhook.calls import CallWindow, ListenerInfo
from hermes.channels.webhook.filters import FilterInput, matches_filters
from hermes.channels.webhook.listener import Listener
from hermes.channels.webhook.payload import (
    Event,
    Payload,
    event_of,
    plain_text,
    prompt_parts,
    read_payload,
)
from hermes.channels.webhook.routes import PER_MINUTE, Route, WebhookSettings, read_settings
from hermes.channels.webhook.signatures import BODY_ONLY, Proof, verify
from hermes.channels.webhook.subscriptions import FILE, RouteTable, Subscriptions
from hermes.kit.clock import Clock
from hermes.kit.hosts import is_loopback, parse_host
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.kit.text import one_line
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    InboundDetails,
    InboundRefused,
    Offline,
    Outbound,
    Receipt,
    TargetGone,
)
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

NAME = MANIFEST.name
MAX_REMEMBERED = 4096

_MAX_TEXT = MANIFEST.caps.max_text
_IDS = ("x-github-delivery", "svix-id", "webhook-id", "idempotency-key", "x-request-id")
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,127}")
_REMOTE_HEADERS = frozenset(
    {"origin", "sec-fetch-site", "forwarded", "x-forwarded-for", "x-real-ip", "cf-connecting-ip"}
)
"""Headers of browsers and proxies: such calls do not come from a program on this machine."""

_UNSIGNED_PUBLIC = "It has no secret, and the listener is reachable from other machines."

HandleInbound = Callable[[Inbound], Awaitable[None]]


class _VerifiedCall(Struct, frozen=True):
    """A verified call: the message to deliver, and the keys that identify repetitions.

    The inbound's key is stored with the message. `name` is a key by the unsigned id of the call: it
    recognizes a sender that signs again to retry, but only within this process. `names`: both.
    """

    route: Route
    inbound: Inbound
    delivery: str
    name: str
    names: frozenset[str]


class WebhookChannel:
    """Implements `Channel` and `SupportsLiveness`, and `CallHandler` for the listener."""

    caps: ChannelCapabilities = MANIFEST.caps

    def __init__(self, routes: RouteTable, clock: Clock, per_minute: int = PER_MINUTE) -> None:
        self._routes = routes
        self._clock = clock
        self._per_minute = per_minute
        self._deliver: HandleInbound | None = None
        self._listener: ListenerInfo | None = None
        self._last_seen: datetime | None = None
        self._windows: dict[str, CallWindow] = {}
        self._accepted = LruMap[str, bool](2 * MAX_REMEMBERED)
        self._pending: dict[str, anyio.Event] = {}

    async def run(self, deliver: HandleInbound) -> None:
        if self._listener is None or not self._listener.serving:
            raise Offline("The webhook listener is not running.")
        self._deliver = deliver
        try:
            await anyio.sleep_forever()
        finally:
            self._deliver = None

    async def send(self, to: Address, post: Outbound) -> Receipt:
        """Log the answer to a call that has no other delivery target."""
        kind, _, rest = to.chat.partition(":")
        route, _, delivery = rest.partition(":")
        if to.channel != NAME or kind != NAME or not route or not delivery:
            raise TargetGone(f"{to.chat} is not a webhook call that can be answered.")
        log.info("webhook %s, call %s: %s", route, delivery, one_line(post.text, _MAX_TEXT))
        return Receipt(to, new_id("log"))

    def last_seen_at(self) -> datetime | None:
        if self._listener is not None and self._listener.serving:
            self._last_seen = self._clock.now()
        return self._last_seen

    def attached_to(self, listener: ListenerInfo) -> None:
        self._listener = listener
        if listener.loopback:
            return
        for name, route in self._routes.routes().items():
            if route.insecure:
                log.warning("webhook route %s is not served: %s", name, _UNSIGNED_PUBLIC)

    def route(self, name: str) -> Route:
        """Return the route of a call; raises `CallRejected` if it accepts none."""
        route = self._routes.routes().get(name)
        if route is None:
            raise CallRejected(404, "not_found", "There is no such webhook route.")
        if not route.enabled:
            raise CallRejected(403, "disabled", "This route is disabled.")
        if route.unserved:
            raise CallRejected(501, "not_served", "This route cannot be served; see the log.")
        return route

    async def receive(self, route: Route, call: HttpCall) -> CallResponse:
        """Verify a call and make a message of it, unless the route ignores it.

        Raises `CallRejected`, after logging why.
        """
        try:
            proof = self._proof(route, call)
            forms = route.form or proof is None or proof.scheme not in BODY_ONLY
            payload = read_payload(call.headers.get("content-type", ""), call.body, forms=forms)
            event = event_of(call.headers, payload.value)
            if route.events and not route.wants(event.names):
                return _ignored("event", event)
            filters = route.filters
            filter_input = FilterInput(event.name, call.headers, payload.value)
            if filters and not matches_filters(filters, filter_input):
                return _ignored("filter", event)
            delivery = _delivery(call, proof)
            name = f"{route.name}:{delivery}"
            # A signed key wins, so that a copy under another id is not a new call.
            key = (_signed_key(route, proof) if proof is not None else "") or name
            inbound = _inbound(route, delivery, key, event, payload)
            return await self._take(
                _VerifiedCall(route, inbound, delivery, name, frozenset({key, name}))
            )
        except CallRejected as rejected:
            log.info("webhook %s: %d %s", route.name, rejected.status, rejected)
            raise

    def _proof(self, route: Route, call: HttpCall) -> Proof | None:
        if not route.insecure:
            return verify(route.secret, call.headers, call.body, self._clock.now(), route.scheme)
        if self._listener is None or not self._listener.loopback:
            log.warning("webhook route %s: %s", route.name, _UNSIGNED_PUBLIC)
            raise _insecure("This route has no secret and only serves local calls.")
        host = parse_host(call.headers.get("host", ""))
        if host is None or not is_loopback(host):
            raise _insecure("Without a secret, only calls to localhost are accepted.")
        if not _REMOTE_HEADERS.isdisjoint(call.headers):
            raise _insecure("Without a secret, calls from browsers or proxies are rejected.")
        return None

    async def _take(self, verified: _VerifiedCall) -> CallResponse:
        """Deliver the message, unless the call is known.

        Calls with the same key are handled one at a time, so that a repetition sees the result.
        """
        names, route = verified.names, verified.route.name
        while others := [self._pending[name] for name in names if name in self._pending]:
            await others[0].wait()
        facts: dict[str, object] = {"route": route, "delivery_id": verified.delivery}
        if any(self._accepted.get(name) for name in names):
            reason = self._repetition(verified)
            return CallResponse(200, {"status": "duplicate", **facts, "message": reason})
        done = anyio.Event()
        self._pending.update(dict.fromkeys(names, done))
        try:
            await self._deliver_call(verified)
            for name in names:
                self._accepted.put(name, True)
        finally:
            for name in names:
                del self._pending[name]
            done.set()
        return CallResponse(202, {"status": "accepted", **facts})

    async def _deliver_call(self, verified: _VerifiedCall) -> None:
        """Deliver the message, unless there are too many."""
        if self._deliver is None:
            raise CallRejected(
                503, "not_listening", "Calls are not accepted at the moment.", wait=5
            )
        route = verified.route.name
        window = self._windows.get(route) or self._new_window(route)
        if wait := window.wait(self._clock.monotonic()):
            message = f"This route accepts {self._per_minute} calls per minute."
            raise CallRejected(429, "rate_limit", message, wait=math.ceil(wait))
        try:
            await self._deliver(verified.inbound)
        except InboundRefused as error:
            raise CallRejected(429, "rate_limit", str(error), wait=math.ceil(error.wait)) from error
        except HermesError as error:
            log.warning("webhook %s: a call could not be stored: %s", route, error)
            raise CallRejected(
                503, "not_kept", "The call could not be stored; send it again.", wait=5
            ) from error

    def _repetition(self, verified: _VerifiedCall) -> str:
        """Explain to the sender why the call is a repetition."""
        if self._accepted.get(verified.name):
            return "This call was already accepted."
        route = verified.route.name
        log.warning("webhook %s: signed content was repeated as %s", route, verified.delivery)
        return (
            "The same signed content was already accepted. Sign a time or an id with it, or "
            "set allow_repeats for this route."
        )

    def _new_window(self, route: str) -> CallWindow:
        """Begin to count the calls of a route; the counts of removed routes are forgotten."""
        known = self._routes.routes()
        self._windows = {name: window for name, window in self._windows.items() if name in known}
        self._windows[route] = CallWindow(self._per_minute)
        return self._windows[route]


def _insecure(message: str) -> CallRejected:
    return CallRejected(403, "insecure", message)


def _delivery(call: HttpCall, proof: Proof | None) -> str:
    """Return the call's id: a signed one first, then a header, then a hash of what is signed."""
    found = proof.id if proof is not None else ""
    found = found or next((call.headers[name] for name in _IDS if call.headers.get(name)), "")
    if found:
        plain = found.strip()
        return plain if _PLAIN_ID.fullmatch(plain) else _hash(plain.encode(errors="replace"))
    if proof is None:
        return new_id("call")
    return proof.digest[:32] or _hash(call.body)


def _signed_key(route: Route, proof: Proof) -> str:
    """Return a key of the signed content, so that a copy with another id is recognized.

    Empty if the id can be trusted: it is signed, or the route allows repeats.
    Routes that share a secret share the key, or a call could be replayed at another route.
    """
    if not proof.digest or (proof.id and not route.shares):
        return ""
    if route.repeats and proof.scheme in BODY_ONLY:
        return ""
    return f"{min(route.shares, default=route.name)}:{proof.digest}"


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


def _inbound(route: Route, delivery: str, key: str, event: Event, payload: Payload) -> Inbound:
    """Build the message; a prompt has at least two parts, so it is never taken for a command."""
    if route.verbatim:
        parts: tuple[Text, ...] = (Text(plain_text(route.prompt, event, payload)),)
    else:
        parts = prompt_parts(route.prompt, route.name, event, payload)
    return Inbound(
        key=key,
        address=Address(NAME, f"{NAME}:{route.name}:{delivery}"),
        sender=route.name,
        parts=parts,
        message=delivery,
        about=InboundDetails(chat_type=NAME, chat_name=route.name, user_name=route.name),
        answer_to=route.answer_to,
        verbatim=route.verbatim,
        job=route.job,
    )


def _ignored(reason: str, event: Event) -> CallResponse:
    return CallResponse(200, {"status": "ignored", "reason": reason, "event": event.name})


@asynccontextmanager
async def open_channel(parts: ChannelDeps) -> AsyncGenerator[WebhookChannel]:
    """Open the channel; the first profile's settings decide where the shared listener is."""
    settings = read_settings(parts.settings.extra, parts.env)
    channel = webhook_channel(settings, parts.home / FILE, parts.clock)
    listener = await parts.shared.get_or_open(NAME, lambda: _listener(settings, parts.clock))
    if (listener.host, listener.requested_port) != (settings.host, settings.port):
        log.warning(
            "the webhooks of profile %s are served at %s:%d, like those of all profiles",
            *(parts.profile, listener.host, listener.port),
        )
    listener.attach(parts.profile, channel)
    try:
        yield channel
    finally:
        listener.detach(parts.profile)


def webhook_channel(settings: WebhookSettings, file: Path, clock: Clock) -> WebhookChannel:
    """Create the channel; `file` holds the routes subscribed on the command line."""
    return WebhookChannel(RouteTable(settings, Subscriptions(file)), clock, settings.per_minute)


def _listener(settings: WebhookSettings, clock: Clock) -> Listener:
    return Listener(clock, settings.host, settings.port, limits=ListenerLimits(body=settings.body))
