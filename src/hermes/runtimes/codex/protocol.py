"""The words of the app-server's protocol that we say or understand; a test asks the real one."""

import logging
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

INITIALIZE = "initialize"
CONFIG_READ = "config/read"
THREAD_START = "thread/start"
THREAD_RESUME = "thread/resume"
THREAD_FORK = "thread/fork"
THREAD_COMPACT = "thread/compact/start"
THREAD_UNSUBSCRIBE = "thread/unsubscribe"
THREAD_INJECT = "thread/inject_items"
TERMINALS_CLEAN = "thread/backgroundTerminals/clean"
TURN_START = "turn/start"
TURN_STEER = "turn/steer"
TURN_INTERRUPT = "turn/interrupt"

CLIENT_REQUESTS = frozenset(
    {
        INITIALIZE,
        CONFIG_READ,
        THREAD_START,
        THREAD_RESUME,
        THREAD_FORK,
        THREAD_COMPACT,
        THREAD_UNSUBSCRIBE,
        THREAD_INJECT,
        TERMINALS_CLEAN,
        TURN_START,
        TURN_STEER,
        TURN_INTERRUPT,
    }
)
"""What we ask for."""

INITIALIZED = "initialized"
"""The one thing that we tell without waiting for an answer."""

TURN_STARTED = "turn/started"
TURN_COMPLETED = "turn/completed"
ITEM_STARTED = "item/started"
ITEM_COMPLETED = "item/completed"
TEXT_DELTA = "item/agentMessage/delta"
REASONING_DELTA = "item/reasoning/textDelta"
SUMMARY_DELTA = "item/reasoning/summaryTextDelta"
OUTPUT_DELTA = "item/commandExecution/outputDelta"
TERMINAL_INPUT = "item/commandExecution/terminalInteraction"
MCP_PROGRESS = "item/mcpToolCall/progress"
PLAN_UPDATED = "turn/plan/updated"
DIFF_UPDATED = "turn/diff/updated"
USAGE_UPDATED = "thread/tokenUsage/updated"
RATE_LIMITS = "account/rateLimits/updated"
REQUEST_RESOLVED = "serverRequest/resolved"
ERROR = "error"
WARNING = "warning"

NOTIFICATIONS = frozenset(
    {
        TURN_STARTED,
        TURN_COMPLETED,
        ITEM_STARTED,
        ITEM_COMPLETED,
        TEXT_DELTA,
        REASONING_DELTA,
        SUMMARY_DELTA,
        OUTPUT_DELTA,
        TERMINAL_INPUT,
        MCP_PROGRESS,
        PLAN_UPDATED,
        DIFF_UPDATED,
        USAGE_UPDATED,
        RATE_LIMITS,
        REQUEST_RESOLVED,
        ERROR,
        WARNING,
    }
)
"""What we are told and listen to; anything else is let pass."""

DELTAS = frozenset({TEXT_DELTA, REASONING_DELTA, SUMMARY_DELTA, OUTPUT_DELTA, MCP_PROGRESS})
"""Of those, what may be dropped when there is too much of it."""

COMMAND_APPROVAL = "item/commandExecution/requestApproval"
FILE_CHANGE_APPROVAL = "item/fileChange/requestApproval"
PERMISSIONS_APPROVAL = "item/permissions/requestApproval"
USER_INPUT_REQUEST = "item/tool/requestUserInput"
ELICITATION_REQUEST = "mcpServer/elicitation/request"
TOOL_CALL_REQUEST = "item/tool/call"
TIME_REQUEST = "currentTime/read"

SERVER_REQUESTS = frozenset(
    {
        COMMAND_APPROVAL,
        FILE_CHANGE_APPROVAL,
        PERMISSIONS_APPROVAL,
        USER_INPUT_REQUEST,
        ELICITATION_REQUEST,
        TOOL_CALL_REQUEST,
        TIME_REQUEST,
    }
)
"""What we are asked and can answer."""

ITEM_TYPES = frozenset(
    {
        "agentMessage",
        "collabAgentToolCall",
        "commandExecution",
        "contextCompaction",
        "dynamicToolCall",
        "enteredReviewMode",
        "exitedReviewMode",
        "fileChange",
        "imageGeneration",
        "imageView",
        "mcpToolCall",
        "plan",
        "reasoning",
        "sleep",
        "subAgentActivity",
        "userMessage",
        "webSearch",
    }
)
"""The kinds of items that we know."""

AGENT_ITEMS = frozenset({"collabAgentToolCall", "subAgentActivity"})
"""Agents of codex's own work in threads that we do not hear, also after such an item has ended."""

TRUSTED_ITEMS = frozenset(
    {
        "agentMessage",
        "commandExecution",
        "contextCompaction",
        "dynamicToolCall",
        "enteredReviewMode",
        "fileChange",
        "imageGeneration",
        "plan",
        "reasoning",
        "sleep",
        "userMessage",
    }
)
"""Kinds that bring no words from outside, or are looked at one by one; any other one may."""


log = logging.getLogger(__name__)

MAX_LINE = 32 * 1024 * 1024
"""Bytes of one line; what is longer is let pass."""

Json: TypeAlias = dict[str, object]
RpcId: TypeAlias = int | str


class RpcError(Struct, frozen=True):
    message: str = ""
    code: int = 0
    data: object = None


class _ThreadParams(Struct, rename="camel"):
    thread_id: str | None = None
    conversation_id: str | None = None


class RpcMessage(Struct):
    """An answer has an id and no method, a request has both, a note only a method."""

    id: RpcId | None = None
    method: str = ""
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: RpcError | None = None

    @property
    def thread(self) -> str:
        """The thread that it is about; empty when it is about none."""
        try:
            place = msgspec.json.decode(self.params, type=_ThreadParams)
        except (msgspec.DecodeError, RecursionError):
            return ""
        return place.thread_id or place.conversation_id or ""


class LineSplitter:
    """Cuts bytes into lines and keeps no more of one than is allowed."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._line = bytearray()
        self._size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            line = bytes(self._line)
            too_long = self._size > self._longest
            self._line.clear()
            self._size = 0
            if too_long:
                self.dropped += 1
                log.warning("codex wrote a line of more than %d bytes; it was let pass", MAX_LINE)
            elif line.strip():
                yield line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            self._line.clear()
        else:
            self._line += piece


_decoder = msgspec.json.Decoder(RpcMessage)


def decode_message(line: bytes) -> RpcMessage | None:
    """None for a line that is no message of the protocol."""
    try:
        message = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return message if message.method or message.id is not None else None


def encode_request(number: int, method: str, params: Json) -> bytes:
    return _encode_line({"id": number, "method": method, "params": params})


def encode_notification(method: str) -> bytes:
    return _encode_line({"method": method})


def encode_result(number: RpcId, result: object) -> bytes:
    return _encode_line({"id": number, "result": result})


def encode_error(number: RpcId, message: str, code: int = -32601) -> bytes:
    return _encode_line({"id": number, "error": {"code": code, "message": message}})


def _encode_line(message: Json) -> bytes:
    return msgspec.json.encode(message) + b"\n"
