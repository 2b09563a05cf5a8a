"""The emulated routes of the HTTP API."""

import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from msgspec import Struct

from emulators.discord import limits
from emulators.discord.gateway import CONTENT_FLAGS, visible_content
from emulators.discord.limits import Bucket
from emulators.discord.state import (
    DIRECT,
    FORUM,
    VOICE_MESSAGE,
    EmulatedBot,
    EmulatedDiscord,
    EmulatedMessage,
    Json,
)
from emulators.discord.validation import (
    EMPTY,
    MAX_REACTIONS,
    ApiError,
    check_callback,
    check_commands,
    check_message,
    check_thread,
    invalid,
    is_empty,
    table,
    tables,
)

NO_CHANNEL = ApiError(404, 10003, "Unknown Channel")
NO_MESSAGE = ApiError(404, 10008, "Unknown Message")


class Call(Struct, frozen=True, kw_only=True):
    """One request: the ids in its path, the query, the body and files by name."""

    bot: EmulatedBot
    ids: tuple[str, ...]
    query: Mapping[str, str]
    body: object
    files: Mapping[str, bytes]

    @property
    def fields(self) -> Json:
        return table(self.body)


Handler = Callable[[Call], object]


class Route(Struct, frozen=True):
    method: str
    pattern: re.Pattern[str]
    bucket: Bucket
    handler: Handler


class Routes:
    """Finds the handler of a request; each returns the body of the answer, None for no content."""

    def __init__(self, discord: EmulatedDiscord) -> None:
        self._discord = discord
        self._routes = [Route(*one) for one in self._table()]

    def find(self, method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
        for route in self._routes:
            found = route.pattern.fullmatch(path)
            if found and route.method == method:
                return route, found.groups()
        return None

    def _table(self) -> list[tuple[str, re.Pattern[str], Bucket, Handler]]:
        message, channel = r"/channels/(\d+)/messages/(\d+)", r"/channels/(\d+)"
        rows: list[tuple[str, str, Bucket, Handler]] = [
            ("GET", "/users/@me", limits.OTHER, self._me),
            ("GET", "/users/@me/guilds", limits.OTHER, self._guilds),
            ("POST", "/users/@me/channels", limits.OTHER, self._open_direct),
            ("GET", "/applications/@me", limits.OTHER, self._application),
            ("GET", "/oauth2/applications/@me", limits.OTHER, self._application),
            ("GET", "/gateway/bot", limits.OTHER, self._gateway),
            ("GET", r"/applications/(\d+)/commands", limits.OTHER, self._commands),
            ("PUT", r"/applications/(\d+)/commands", limits.OTHER, self._set_commands),
            ("GET", r"/guilds/(\d+)/members/(\d+)", limits.OTHER, self._member),
            ("GET", channel, limits.OTHER, self._channel),
            ("GET", channel + "/messages", limits.READ, self._messages),
            ("POST", channel + "/messages", limits.CREATE, self._create),
            ("POST", channel + "/typing", limits.TYPING, self._typing),
            ("POST", channel + "/threads", limits.THREADS, self._forum_post),
            ("GET", message, limits.READ, self._message),
            ("PATCH", message, limits.EDIT, self._edit),
            ("DELETE", message, limits.OTHER, self._delete),
            ("POST", message + "/threads", limits.THREADS, self._thread),
            ("PUT", message + "/reactions/([^/]+)/@me", limits.REACTIONS, self._react),
            ("DELETE", message + "/reactions/([^/]+)/@me", limits.REACTIONS, self._unreact),
            ("POST", r"/interactions/(\d+)/([^/]+)/callback", limits.OTHER, self._callback),
            ("POST", r"/webhooks/(\d+)/([^/]+)", limits.OTHER, self._follow_up),
        ]
        return [(method, re.compile(path), *rest) for method, path, *rest in rows]  # pyright: ignore[reportReturnType]

    def _me(self, call: Call) -> object:
        return call.bot.user

    def _guilds(self, call: Call) -> object:
        return [{"id": one["id"], "name": one["name"]} for one in self._discord.guilds.values()]

    def _application(self, call: Call) -> object:
        return {
            "id": call.bot.application, "name": call.bot.username, "flags": call.bot.flags,
            "icon": None, "description": "", "bot_public": True, "bot_require_code_grant": False,
            "verify_key": "", "owner": call.bot.user, "team": None, "rpc_origins": [],
        }  # fmt: skip

    def _gateway(self, call: Call) -> object:
        limit = {
            "total": 1000, "remaining": call.bot.starts_left, "reset_after": 14_400_000,
            "max_concurrency": 1,
        }  # fmt: skip
        return {"url": self._discord.gateway_url, "shards": 1, "session_start_limit": limit}

    def _open_direct(self, call: Call) -> object:
        person = str(call.fields.get("recipient_id") or "")
        if person not in self._discord.known_people:
            raise ApiError(400, 50033, "Invalid Recipient(s)")
        return self._discord.channels[self._discord.direct(person)]

    def _commands(self, call: Call) -> object:
        return [{"id": str(n + 1), **one} for n, one in enumerate(call.bot.commands)]

    def _set_commands(self, call: Call) -> object:
        commands = tables(call.body)
        check_commands(commands)
        call.bot.commands = commands
        self._discord.on_change()
        return self._commands(call)

    def _member(self, call: Call) -> object:
        guild, person = call.ids
        roles = self._discord.roles.get((guild, person))
        if roles is None:
            raise ApiError(404, 10007, "Unknown Member")
        return {"user": {"id": person, "username": person}, "roles": roles}

    def _channel(self, call: Call) -> object:
        return self._channel_of(call)

    def _channel_of(self, call: Call) -> Json:
        if call.ids[0] not in self._discord.channels:
            raise NO_CHANNEL
        return self._discord.channels[call.ids[0]]

    def _found(self, call: Call) -> EmulatedMessage:
        self._channel_of(call)
        found = self._discord.messages.get((call.ids[0], call.ids[1]))
        if found is None:
            raise NO_MESSAGE
        return found

    def _messages(self, call: Call) -> object:
        self._channel_of(call)
        limit = int(call.query.get("limit", "50"))
        if not 1 <= limit <= 100:
            raise invalid("limit", "int value should be between 1 and 100.")
        if len({"around", "before", "after"} & set(call.query)) > 1:
            raise invalid("before", "around, before and after are mutually exclusive.")
        found = self._discord.history(call.ids[0])
        if before := call.query.get("before"):
            found = [one for one in found if int(one.id) < int(before)][-limit:]
        elif after := call.query.get("after"):
            found = [one for one in found if int(one.id) > int(after)][:limit]
        else:
            found = found[-limit:]
        return [self._visible(call, one) for one in reversed(found)]

    def _message(self, call: Call) -> object:
        return self._visible(call, self._found(call))

    def _visible(self, call: Call, message: EmulatedMessage) -> Json:
        """Without the intent, content is hidden here, too."""
        guild = self._discord.channels[call.ids[0]].get("guild_id")
        data: Json = {**message.object, "guild_id": guild} if guild else message.object
        shown = visible_content(data, call.bot, reads=bool(call.bot.flags & CONTENT_FLAGS))
        return {name: value for name, value in shown.items() if name != "guild_id"}

    def _may_write(self, call: Call) -> None:
        place = self._channel_of(call)
        if place["type"] == FORUM:
            raise ApiError(400, 40058, "Cannot send a message in a forum channel")
        if call.ids[0] in self._discord.unwelcome:
            code, text = 50013, "Missing Permissions"
            if place["type"] == DIRECT:
                code, text = 50007, "Cannot send messages to this user"
            raise ApiError(403, code, text)

    def _create(self, call: Call) -> object:
        self._may_write(call)
        return self._add(call.ids[0], call, call.fields).object

    def _add(self, channel: str, call: Call, fields: Json) -> EmulatedMessage:
        check_message(fields, call.files)
        discord, bot = self._discord, call.bot
        nonce = str(fields.get("nonce") or "")
        known = discord.nonces.get((bot.id, nonce))
        if nonce and fields.get("enforce_nonce") and known in discord.messages:
            return discord.messages[known]
        content: Json = {
            name: fields[name] for name in ("content", "components", "flags") if fields.get(name)
        }
        reference = table(fields.get("message_reference"))
        if replied := str(reference.get("message_id") or ""):
            if (channel, replied) in discord.messages:
                content |= discord.reply_fields(channel, replied)
            elif reference.get("fail_if_not_exists", True):
                raise invalid("message_reference", "Unknown message")
        if call.files:
            content["attachments"] = [
                {"id": str(n), "filename": name, "size": len(data), "url": "", "proxy_url": ""}
                for n, (name, data) in enumerate(call.files.items())
            ]
        if nonce:
            content["nonce"] = nonce
        added = discord.add_message(channel, bot.user, content, dict(call.files))
        if nonce:
            discord.nonces[bot.id, nonce] = (channel, added.id)
        return added

    def _edit(self, call: Call) -> object:
        found = self._found(call)
        if found.author != call.bot.id:
            raise ApiError(403, 50005, "Cannot edit a message authored by another user")
        if int(str(found.object.get("flags") or 0)) & VOICE_MESSAGE:
            raise ApiError(400, 50162, "Voice messages cannot be edited.")
        check_message(call.fields, {}, edited=True)
        if is_empty({**found.object, **call.fields}, found.files):
            raise EMPTY
        for name in ("content", "components"):
            if name in call.fields:
                found.object[name] = call.fields[name] or ([] if name == "components" else "")
        found.object["edited_timestamp"] = self._discord.timestamp()
        found.forms.append(str(found.object["content"]))
        self._discord.emit_update(found)
        self._discord.changed(found)
        return found.object

    def _delete(self, call: Call) -> object:
        self._found(call)
        self._discord.delete(call.ids[0], call.ids[1])
        return None

    def _typing(self, call: Call) -> object:
        self._may_write(call)
        self._discord.typing.add(call.ids[0])
        return None

    def _forum_post(self, call: Call) -> object:
        """A thread without a message is possible in text channels, but nothing here opens one."""
        if self._channel_of(call)["type"] != FORUM:
            raise invalid("type", "Only forums are emulated.")
        check_thread(call.fields)
        fields = table(call.fields.get("message"))
        check_message(fields, call.files)
        number = self._discord.snowflake()
        thread = self._discord.open_thread(
            call.ids[0], str(call.fields["name"]), call.bot.id, message=number
        )
        first = self._add(number, call, fields)
        # The message that opens a post in a forum has the id of the post.
        del self._discord.messages[number, first.id]
        first.object["id"] = number
        self._discord.messages[number, number] = first
        return {**thread, "message": first.object}

    def _thread(self, call: Call) -> object:
        self._found(call)
        check_thread(call.fields)
        if call.ids[0] in self._discord.threadless:
            raise ApiError(403, 50013, "Missing Permissions")
        if call.ids[1] in self._discord.channels:
            raise ApiError(400, 160004, "A thread has already been created for this message")
        name = str(call.fields["name"])
        return self._discord.open_thread(call.ids[0], name, call.bot.id, message=call.ids[1])

    def _react(self, call: Call) -> object:
        found, own = self._found(call), (call.bot.id, unquote(call.ids[2]))
        if own not in found.reactions:
            if len({emoji for _, emoji in [*found.reactions, own]}) > MAX_REACTIONS:
                raise ApiError(400, 30010, f"Maximum number of reactions reached ({MAX_REACTIONS})")
            found.reactions.append(own)
            self._discord.on_change()
        return None

    def _unreact(self, call: Call) -> object:
        found, own = self._found(call), (call.bot.id, unquote(call.ids[2]))
        if own in found.reactions:
            found.reactions.remove(own)
            self._discord.on_change()
        return None

    def _callback(self, call: Call) -> object:
        number, token = call.ids
        found = self._discord.interactions.get(number)
        if found is None or found.object["token"] != token or self._discord.is_overdue(found):
            raise ApiError(404, 10062, "Unknown interaction")
        if found.response is not None:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        check_callback(call.fields, found.object["type"])
        found.response = call.fields
        self._discord.on_change()
        if call.query.get("with_response") not in {"true", "1"}:
            return None
        return {"interaction": {"id": number, "type": found.object["type"]}}

    def _follow_up(self, call: Call) -> object:
        """A further message with the token of an interaction."""
        application, token = call.ids
        interactions = self._discord.interactions.values()
        found = next((one for one in interactions if one.object["token"] == token), None)
        if found is None or application != call.bot.application or found.response is None:
            raise ApiError(404, 10015, "Unknown Webhook")
        if self._discord.has_expired(found):
            raise ApiError(401, 50027, "Invalid Webhook Token")
        return self._add(str(found.object["channel_id"]), call, call.fields).object
