"""The methods of the Web API, with the documented checks of their arguments."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from emulators.slack.blocks import BLOCK_SIZE, MAX_SIZE, problems, size
from emulators.slack.socket_mode import SocketMode
from emulators.slack.state import (
    EmulatedChannel,
    EmulatedMessage,
    EmulatedSlack,
    EmulatedWorkspace,
    Json,
    tables,
)

MAX_TEXT = 40_000
MAX_UPDATE = 4_000
MAX_ATTACHMENTS = 100
MAX_PROMPTS = 4
MAX_LOADING = 10
MAX_REACTIONS = 23
BOT, APP = "xoxb", "xapp"
NEEDED: Mapping[str, str] = {
    "apps.connections.open": "connections:write",
    "assistant.threads.setStatus": "chat:write",
    "assistant.threads.setTitle": "assistant:write",
    "assistant.threads.setSuggestedPrompts": "assistant:write",
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "conversations.history": "channels:history",
    "conversations.replies": "channels:history",
    "conversations.info": "channels:read",
    "conversations.open": "im:write",
    "users.conversations": "channels:read",
    "users.info": "users:read",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "files.info": "files:read",
}


class ApiError(Exception):
    """A refusal: the name of the error and further fields of the answer."""

    def __init__(self, name: str, **more: object) -> None:
        super().__init__(name)
        self.body: Json = {"ok": False, "error": name, **more}


class Call(Struct, frozen=True):
    """A call with one token; the arguments are text, or what JSON contained."""

    workspace: EmulatedWorkspace
    args: Mapping[str, object]

    def text(self, name: str) -> str:
        value = self.args.get(name)
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        return self.text(name).lower() in {"true", "1"}

    def json(self, name: str) -> Any:
        value = self.args.get(name)
        if not isinstance(value, str):
            return value
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return None


class Methods:
    def __init__(self, slack: EmulatedSlack, sockets: SocketMode) -> None:
        self._slack = slack
        self._sockets = sockets
        self.socket_url = ""
        self.upload_url = ""
        self._by_name: Mapping[str, Callable[[Call], Json]] = {
            "api.test": lambda call: {},
            "auth.test": self._auth_test,
            "apps.connections.open": self._open_connection,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.info": self._info,
            "conversations.open": self._open,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "users.conversations": self._conversations,
            "users.info": self._person,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "files.getUploadURLExternal": self._upload_url,
            "files.completeUploadExternal": self._complete_upload,
            "files.info": self._file,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setTitle": self._set_title,
            "assistant.threads.setSuggestedPrompts": self._set_prompts,
        }

    def workspace(self, method: str, token: str) -> EmulatedWorkspace:
        """Whose the token is. Raises `ApiError` for one that may not call the method."""
        if method not in self._by_name:
            raise ApiError("unknown_method", req_method=method)
        if not token:
            raise ApiError("not_authed")
        wants_app = method == "apps.connections.open"
        if token in self._slack.app_tokens:
            if not wants_app:
                raise ApiError("not_allowed_token_type")
            return self._slack.workspace
        workspace = self._slack.workspaces.get(token)
        if workspace is None:
            raise ApiError("invalid_auth")
        if wants_app:
            raise ApiError("not_allowed_token_type")
        needed = NEEDED.get(method, "")
        if needed and needed not in workspace.scopes:
            provided = ",".join(sorted(workspace.scopes))
            raise ApiError("missing_scope", needed=needed, provided=provided)
        return workspace

    def call(self, method: str, call: Call) -> Json:
        return {"ok": True, **self._by_name[method](call)}

    # Connections and names

    def _auth_test(self, call: Call) -> Json:
        one = call.workspace
        return {
            "url": "https://acme.slack.com/", "team": one.name, "user": "hermes",
            "team_id": one.team, "user_id": one.bot, "bot_id": one.bot_id,
            "is_enterprise_install": False,
        }  # fmt: skip

    def _open_connection(self, call: Call) -> Json:
        return {"url": self._sockets.ticket(self.socket_url)}

    def _person(self, call: Call) -> Json:
        user = call.text("user")
        name = self._slack.people.get(user)
        bots = {one.bot for one in self._slack.workspaces.values()}
        if name is None and user not in bots:
            raise ApiError("user_not_found")
        shown = name or "hermes"
        return {
            "user": {"id": user, "name": shown.lower(), "is_bot": user in bots,
                     "profile": {"display_name": shown, "real_name": shown}}
        }  # fmt: skip

    # Conversations

    def _channel(self, call: Call, name: str = "channel") -> EmulatedChannel:
        found = self._slack.channels.get(call.text(name))
        if found is None or found.team != call.workspace.team:
            raise ApiError("channel_not_found")
        return found

    def _writable(self, call: Call, name: str = "channel") -> EmulatedChannel:
        user = call.text(name)
        if user in self._slack.people:
            return self._slack.channels[self._slack.direct(user, call.workspace.team)]
        channel = self._channel(call, name)
        if channel.archived:
            raise ApiError("is_archived")
        if not channel.member:
            raise ApiError("not_in_channel")
        return channel

    def _info(self, call: Call) -> Json:
        return {"channel": _channel_object(self._channel(call))}

    def _open(self, call: Call) -> Json:
        user = call.text("users")
        if user not in self._slack.people:
            raise ApiError("user_not_found")
        return {"channel": {"id": self._slack.direct(user, call.workspace.team)}}

    def _conversations(self, call: Call) -> Json:
        kinds = {"im": "im", "public_channel": "channel"}
        wanted = {kinds.get(one) for one in (call.text("types") or "public_channel").split(",")}
        found = [
            _channel_object(one)
            for one in self._slack.channels.values()
            if one.team == call.workspace.team and one.member and one.kind in wanted
            and not (one.archived and call.flag("exclude_archived"))
        ]  # fmt: skip
        return _page(found, call, "channels", 200)

    def _history(self, call: Call) -> Json:
        channel = self._readable(call)
        found = [
            one.object
            for (place, _), one in reversed(self._slack.messages.items())
            if place == channel.id and one.thread in {"", one.id}
        ]
        return _page(_between(found, call), call, "messages", 999)

    def _replies(self, call: Call) -> Json:
        channel, thread = self._readable(call), call.text("ts")
        if (channel.id, thread) not in self._slack.messages:
            raise ApiError("thread_not_found")
        root = self._slack.messages[channel.id, thread].object
        found = [
            one.object
            for (place, ts), one in self._slack.messages.items()
            if place == channel.id and one.thread == thread and ts != thread
        ]
        return _page([root, *_between(found, call)], call, "messages", 1000)

    def _readable(self, call: Call) -> EmulatedChannel:
        channel = self._channel(call)
        if not channel.member:
            raise ApiError("not_in_channel")
        return channel

    # Messages

    def _post(self, call: Call) -> Json:
        channel = self._writable(call)
        text, blocks = self._content(call)
        thread = call.text("thread_ts")
        if thread and (channel.id, thread) not in self._slack.messages:
            raise ApiError("invalid_thread_ts")
        fields: Json = {
            "type": "message", "user": call.workspace.bot, "bot_id": call.workspace.bot_id,
            "text": text[:MAX_TEXT], "ts": self._slack.timestamp(), "channel": channel.id,
            "blocks": blocks, "mrkdwn": call.text("mrkdwn") != "false",
        }  # fmt: skip
        if thread:
            fields["thread_ts"] = thread
            self._slack.set_status((channel.id, thread), "")
        if call.flag("reply_broadcast"):
            fields["subtype"] = "thread_broadcast"
        message = self._slack.add(fields)
        self._slack.changes.append(message)
        self._slack.on_change()
        answer: Json = {"channel": channel.id, "ts": message.id, "message": fields}
        if len(text) > MAX_TEXT:
            answer["response_metadata"] = {"messages": ["[WARN] text was truncated"]}
        return answer

    def _update(self, call: Call) -> Json:
        message = self._own(call, "ts")
        text, blocks = self._content(call)
        if len(text) > MAX_UPDATE:
            raise ApiError("msg_too_long")
        if "blocks" in call.args or text:
            message.object["blocks"] = blocks
        message.object |= {"text": text, "edited": {"user": call.workspace.bot, "ts": message.id}}
        message.forms.append(text)
        self._slack.changes.append(message)
        self._slack.on_change()
        return {"channel": message.channel, "ts": message.id, "text": text}

    def _delete(self, call: Call) -> Json:
        message = self._own(call, "ts")
        del self._slack.messages[message.channel, message.id]
        return {"channel": message.channel, "ts": message.id}

    def _own(self, call: Call, name: str) -> EmulatedMessage:
        message = self._message(call, name)
        if message.author != call.workspace.bot:
            raise ApiError("cant_update_message")
        return message

    def _message(self, call: Call, name: str) -> EmulatedMessage:
        channel = self._channel(call)
        message = self._slack.messages.get((channel.id, call.text(name)))
        if message is None:
            raise ApiError("message_not_found")
        return message

    def _content(self, call: Call) -> tuple[str, list[Json]]:
        text, blocks = call.text("text"), call.json("blocks")
        if "blocks" in call.args and not isinstance(blocks, list):
            raise ApiError("invalid_blocks_format")
        found_blocks: list[Any] = [*(blocks or ())]
        if wrong := problems(found_blocks):
            raise ApiError("invalid_blocks", response_metadata={"messages": wrong})
        if size(found_blocks) + len(found_blocks) * BLOCK_SIZE > MAX_SIZE:
            raise ApiError("msg_blocks_too_long")
        if len(call.json("attachments") or ()) > MAX_ATTACHMENTS:
            raise ApiError("too_many_attachments")
        if not text and not found_blocks:
            raise ApiError("no_text")
        return text, found_blocks

    # Reactions

    def _react(self, call: Call) -> Json:
        message, name = self._message(call, "timestamp"), call.text("name")
        if not re.fullmatch(r"[a-z0-9_+\-']+(::skin-tone-[2-6])?", name):
            raise ApiError("invalid_name")
        if (call.workspace.bot, name) in message.reactions:
            raise ApiError("already_reacted")
        if len(message.reactions) >= MAX_REACTIONS:
            raise ApiError("too_many_reactions")
        message.reactions.append((call.workspace.bot, name))
        self._slack.on_change()
        return {}

    def _unreact(self, call: Call) -> Json:
        message, name = self._message(call, "timestamp"), call.text("name")
        if (call.workspace.bot, name) not in message.reactions:
            raise ApiError("no_reaction")
        message.reactions.remove((call.workspace.bot, name))
        self._slack.on_change()
        return {}

    # Files

    def _upload_url(self, call: Call) -> Json:
        name, length = call.text("filename"), call.text("length")
        if not name or not length.isdecimal():
            raise ApiError("invalid_arguments")
        if not int(length):
            raise ApiError("missing_argument")
        number = self._slack.number("F")
        self._slack.uploads[number] = {"name": name, "length": int(length)}
        return {"upload_url": f"{self.upload_url}/{number}", "file_id": number}

    def _complete_upload(self, call: Call) -> Json:
        """Share the files; the message itself is created later, so the answer does not name it."""
        channel = self._writable(call, "channel_id")
        files = call.json("files")
        if not isinstance(files, list) or not files:
            raise ApiError("invalid_arguments")
        shared: dict[str, bytes] = {}
        for one in tables(files):  # pyright: ignore[reportUnknownArgumentType]
            upload = self._slack.uploads.get(str(one.get("id", "")))
            if upload is None or str(one["id"]) not in self._slack.contents:
                raise ApiError("file_not_found")
            shared[str(upload["name"])] = self._slack.contents[str(one["id"])]
        number = str(tables(files)[0]["id"])  # pyright: ignore[reportUnknownArgumentType]
        fields: Json = {
            "type": "message", "subtype": "file_share", "user": call.workspace.bot,
            "text": call.text("initial_comment"), "ts": self._slack.timestamp(),
            "channel": channel.id, "file": number,
        }  # fmt: skip
        if thread := call.text("thread_ts"):
            fields["thread_ts"] = thread
        message = self._slack.add(fields, shared)
        self._slack.changes.append(message)
        self._slack.on_change()
        return {"files": [{"id": str(one["id"])} for one in tables(files)]}  # pyright: ignore[reportUnknownArgumentType]

    def _file(self, call: Call) -> Json:
        wanted = call.text("file")
        for message in self._slack.messages.values():
            for file in tables(message.object.get("files")):
                if file["id"] == wanted:
                    return {"file": {**file, "file_access": "visible"}}
        raise ApiError("file_not_found")

    # Assistant

    def _thread(self, call: Call) -> tuple[str, str]:
        channel, thread = self._channel(call, "channel_id"), call.text("thread_ts")
        if (channel.id, thread) not in self._slack.messages:
            raise ApiError("invalid_thread_ts")
        return channel.id, thread

    def _set_status(self, call: Call) -> Json:
        if "status" not in call.args:
            raise ApiError("invalid_arguments")
        if len(call.json("loading_messages") or ()) > MAX_LOADING:
            raise ApiError("invalid_arguments")
        self._slack.set_status(self._thread(call), call.text("status"))
        return {}

    def _set_title(self, call: Call) -> Json:
        self._slack.titles[self._thread(call)] = call.text("title")
        self._slack.on_change()
        return {}

    def _set_prompts(self, call: Call) -> Json:
        prompts = call.json("prompts")
        if not isinstance(prompts, list) or not 1 <= len(prompts) <= MAX_PROMPTS:  # pyright: ignore[reportUnknownArgumentType]
            raise ApiError("invalid_arguments")
        self._slack.prompts[self._thread(call)] = prompts
        self._slack.on_change()
        return {}


def _channel_object(channel: EmulatedChannel) -> Json:
    if channel.person:
        return {"id": channel.id, "is_im": True, "user": channel.person}
    return {
        "id": channel.id, "name": channel.name, "is_channel": True, "is_im": False,
        "is_member": channel.member, "is_archived": channel.archived,
    }  # fmt: skip


def _between(messages: list[Json], call: Call) -> list[Json]:
    oldest = float(call.text("oldest") or 0)
    return [one for one in messages if float(str(one["ts"])) > oldest]


def _page(found: list[Json], call: Call, name: str, most: int) -> Json:
    """A page and the cursor of the next; the limit has a maximum."""
    limit = min(int(call.text("limit") or 100), most)
    start = int(call.text("cursor") or 0)
    more = start + limit < len(found)
    return {
        name: found[start : start + limit],
        "has_more": more,
        "response_metadata": {"next_cursor": str(start + limit) if more else ""},
    }
