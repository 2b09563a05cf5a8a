"""A thin client of Discord's HTTP API: one attempt per call, with the errors of channels."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from hermes.channels.account import BadToken, BotToken
from hermes.channels.discord import DiscordOptions
from hermes.channels.discord.objects import Application, Channel, GatewayInfo, Member, Message, User
from hermes.channels.discord.rate_limits import LIMITED, RateLimits
from hermes.channels.http_client import (
    CALL_TIMEOUT,
    UPLOAD_TIMEOUT,
    HttpAnswer,
    HttpBody,
    HttpClient,
    Upload,
    form_body,
    json_body,
    open_http_client,
    retry_after,
)
from hermes.channels.proxies import ProxySettings
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import NotSent, TargetGone, Throttled
from hermes.schema.errors import HermesError

T = TypeVar("T")

MAX_RETRY_SECONDS = 30.0
USER_AGENT = "DiscordBot (https://hermes.invalid, 1)"

# Discord counts calls separately for each channel, server and webhook ("major parameters").
_MAJOR = re.compile(r"^/(?:channels|guilds|webhooks)/(\d+)")
_IDS = re.compile(r"/\d{5,}")
_EMOJI = re.compile(r"/reactions/[^/]+")
_TOKEN = re.compile(r"^/(interactions|webhooks)/(\d+)/[^/]+")


class UnknownChannel(TargetGone):
    """No channel or thread has this id."""

    code = "unknown_channel"


class NoPermission(TargetGone):
    """The bot lacks a permission or the access to a channel."""

    code = "no_permission"


class UnknownMessage(NotSent):
    """The message was deleted, or never existed."""

    code = "unknown_message"


class ThreadExists(NotSent):
    """The message already has a thread."""

    code = "thread_exists"


_REFUSALS: Mapping[int, type[NotSent]] = {
    10003: UnknownChannel,
    10008: UnknownMessage,
    50001: NoPermission,
    50007: TargetGone,  # the person does not accept messages from this bot
    50013: NoPermission,
    50033: TargetGone,  # there is no such person
    50278: TargetGone,  # the person shares no server with the bot
    160004: ThreadExists,
}


class _Problem(Struct, frozen=True, kw_only=True):
    """The body of a refused call."""

    code: int = 0
    message: str = ""
    errors: Raw = Raw(b"")
    retry_after: float = 0.0
    # In the documentation this field is called `global`, which Python reserves.
    everywhere: bool = msgspec.field(name="global", default=False)


class RestApi:
    """Calls of one bot. Nothing is retried, except by `call_with_retries`."""

    def __init__(
        self,
        http: HttpClient,
        token: BotToken,
        limits: RateLimits,
        clock: Clock,
        *,
        base_url: str,
    ) -> None:
        self._http = http
        self.proxy = http.proxy
        self._token = token
        self._limits = limits
        self._clock = clock
        self._base = base_url.rstrip("/")

    async def get_me(self) -> User:
        return await self.call_with_retries("GET", "/users/@me", User)

    async def application(self) -> Application:
        return await self.call_with_retries("GET", "/applications/@me", Application)

    async def gateway(self) -> GatewayInfo:
        return await self.call_with_retries("GET", "/gateway/bot", GatewayInfo)

    async def channel(self, channel: str) -> Channel:
        return await self.call_with_retries("GET", f"/channels/{channel}", Channel)

    async def message(self, channel: str, message: str) -> Message:
        return await self.call_with_retries(
            "GET", f"/channels/{channel}/messages/{message}", Message
        )

    async def messages(
        self, channel: str, *, after: str = "", before: str = "", limit: int = 100
    ) -> list[Message]:
        """Return up to 100 messages of a channel, oldest first."""
        query = f"limit={min(limit, 100)}"
        query += f"&after={after}" if after else f"&before={before}"
        path = f"/channels/{channel}/messages?{query}"
        answer = await self.with_retries(lambda: self._request("GET", path, None, ()))
        found = self._http.decode(answer, list[Message], Message)
        return sorted(found, key=lambda message: int(message.id))

    async def member(self, guild: str, user: str) -> Member:
        return await self.call_with_retries("GET", f"/guilds/{guild}/members/{user}", Member)

    async def open_direct(self, user: str) -> Channel:
        """Return the channel of direct messages with a person."""
        return await self.call("POST", "/users/@me/channels", Channel, {"recipient_id": user})

    async def download(self, url: str, *, max_bytes: int) -> bytes:
        """Return the content of a file. Raises `NotSent` if it is too large."""
        return await self._http.download(url, max_bytes=max_bytes)

    async def call_optional(self, method: str, path: str) -> None:
        """Show or remove a reaction or typing indicator; posts take precedence."""
        await self._request(method, path, None, (), optional=True)

    async def call_with_retries(
        self, method: str, path: str, result: type[T], fields: object = None
    ) -> T:
        """Call, and wait for the rate limit if necessary; only for calls that post nothing."""
        return await self.with_retries(lambda: self.call(method, path, result, fields))

    async def with_retries(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry when Discord's wait is over, for at most `MAX_RETRY_SECONDS` in total."""
        until = self._clock.monotonic() + MAX_RETRY_SECONDS
        while True:
            try:
                return await attempt()
            except Throttled as error:
                if self._clock.monotonic() + error.wait > until:
                    raise
                await self._clock.sleep(error.wait)

    async def call(
        self,
        method: str,
        path: str,
        result: type[T],
        fields: object = None,
        uploads: Sequence[Upload] = (),
        *,
        optional: bool = False,
    ) -> T:
        """Call once and return the result. Raises the errors of `Channel.send`.

        An `optional` call leaves the rate limit to others.
        """
        answer = await self._request(method, path, fields, uploads, optional=optional)
        return self._http.decode(answer, result)

    async def _request(
        self,
        method: str,
        path: str,
        fields: object,
        uploads: Sequence[Upload],
        *,
        optional: bool = False,
    ) -> HttpAnswer:
        route, major = _route(method, path)
        self._limits.count(route, major, optional=optional)
        answer = await self._http.call(
            method,
            self._base + path,
            _body(fields, uploads),
            {"Authorization": f"Bot {self._token.value}", "User-Agent": USER_AGENT},
            seconds=UPLOAD_TIMEOUT if uploads else CALL_TIMEOUT,
        )
        self._limits.learn(route, major, answer.headers)
        if answer.ok:
            return answer
        error = self._error(answer)
        if isinstance(error, Throttled):
            self._limits.pause(route, major, error.wait, everywhere=error.all_chats)
        raise error

    def _error(self, answer: HttpAnswer) -> HermesError:
        try:
            problem = msgspec.json.decode(answer.body, type=_Problem)
        except JSON_ERRORS:
            # The proxy in front of Discord answered: it blocks all calls from this address.
            blocked = answer.status == 429
            problem = _Problem(message=f"status {answer.status}", everywhere=blocked)
        text = problem.message
        if problem.errors:
            text += f" {bytes(problem.errors).decode()}"
        if answer.status == 401:
            return BadToken(
                "Discord does not accept the bot token.",
                hint="Reset it at https://discord.com/developers/applications and set it with: "
                "hermes gateway setup discord",
            )
        if answer.status < 429 and (refusal := _REFUSALS.get(problem.code)) is not None:
            return refusal(f"Discord refused: {text}")
        if answer.status == 429:
            wait = max(problem.retry_after or retry_after(answer.headers), 0.05)
            everywhere = problem.everywhere
            return Throttled(LIMITED, wait=wait, all_chats=everywhere, one_kind=not everywhere)
        return self._http.error(answer.status, text)


def _route(method: str, path: str) -> tuple[str, str]:
    """Return the route without its ids, and the id whose limit is separate."""
    bare = path.partition("?")[0]
    found = _MAJOR.match(bare)
    bare = _IDS.sub("/id", _EMOJI.sub("/reactions", _TOKEN.sub(r"/\1/\2", bare)))
    # Setting and removing a reaction share a bucket.
    route = bare if "/reactions" in bare else f"{method} {bare}"
    return route, found[1] if found else ""


def _body(fields: object, uploads: Sequence[Upload]) -> HttpBody | None:
    if not uploads:
        return None if fields is None else json_body(fields)
    return form_body({"payload_json": msgspec.json.encode(fields)}, uploads)


@asynccontextmanager
async def open_rest_api(
    options: DiscordOptions,
    token: BotToken,
    clock: Clock,
    env: Mapping[str, str],
    unreadable: UnreadableUpdates | None = None,
) -> AsyncGenerator[RestApi]:
    settings = ProxySettings(options.proxy_url, "DISCORD_PROXY", env)
    async with open_http_client("Discord", settings, unreadable=unreadable) as http:
        yield RestApi(http, token, RateLimits(clock), clock, base_url=options.base_url)
