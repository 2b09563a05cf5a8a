"""The part of the app-server protocol that we use; a test checks it against the real server."""

import logging
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from hermes.kit.json_errors import JSON_ERRORS

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
    {INITIALIZE, CONFIG_READ, THREAD_START, THREAD_RESUME, THREAD_FORK, THREAD_COMPACT,
     THREAD_UNSUBSCRIBE, THREAD_INJECT, TERMINALS_CLEAN, TURN_START, TURN_STEER, TURN_INTERRUPT}
)  # fmt: skip
"""Requests that we send."""

INITIALIZED = "initialized"
"""The only notification that we send."""

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
    {TURN_STARTED, TURN_COMPLETED, ITEM_STARTED, ITEM_COMPLETED, TEXT_DELTA, REASONING_DELTA,
     SUMMARY_DELTA, OUTPUT_DELTA, TERMINAL_INPUT, MCP_PROGRESS, PLAN_UPDATED, DIFF_UPDATED,
     USAGE_UPDATED, RATE_LIMITS, REQUEST_RESOLVED, ERROR, WARNING}
)  # fmt: skip
"""Notifications that we handle; others are ignored."""

DELTAS = frozenset({TEXT_DELTA, REASONING_DELTA, SUMMARY_DELTA, OUTPUT_DELTA, MCP_PROGRESS})
"""Notifications that may be dropped under load."""

COMMAND_APPROVAL = "item/commandExecution/requestApproval"
FILE_CHANGE_APPROVAL = "item/fileChange/requestApproval"
PERMISSIONS_APPROVAL = "item/permissions/requestApproval"
USER_INPUT_REQUEST = "item/tool/requestUserInput"
ELICITATION_REQUEST = "mcpServer/elicitation/request"
TOOL_CALL_REQUEST = "item/tool/call"
TIME_REQUEST = "currentTime/read"

SERVER_REQUESTS = frozenset(
    {COMMAND_APPROVAL, FILE_CHANGE_APPROVAL, PERMISSIONS_APPROVAL, USER_INPUT_REQUEST,
     ELICITATION_REQUEST, TOOL_CALL_REQUEST, TIME_REQUEST}
)  # fmt: skip
"""Requests from codex that we can answer."""

ITEM_TYPES = frozenset(
    {"agentMessage", "collabAgentToolCall", "commandExecution", "contextCompaction",
     "dynamicToolCall", "enteredReviewMode", "exitedReviewMode", "fileChange", "imageGeneration",
     "imageView", "mcpToolCall", "plan", "reasoning", "sleep", "subAgentActivity", "userMessage",
     "webSearch"}
)  # fmt: skip
"""Known item types."""

AGENT_ITEMS = frozenset({"collabAgentToolCall", "subAgentActivity"})
"""Codex's own agents work in threads that we do not see, even after such an item has ended."""

TRUSTED_ITEMS = frozenset(
    {"agentMessage", "commandExecution", "contextCompaction", "dynamicToolCall",
     "enteredReviewMode", "fileChange", "imageGeneration", "plan", "reasoning", "sleep",
     "userMessage"}
)  # fmt: skip
"""Types without untrusted text, or checked individually; any other type may contain some."""


log = logging.getLogger(__name__)

MAX_LINE = 32 * 1024 * 1024
"""Bytes of one line; longer ones are dropped."""

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
    """A response has an id and no method, a request has both, a notification only a method."""

    id: RpcId | None = None
    method: str = ""
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: RpcError | None = None

    @property
    def thread(self) -> str:
        """The thread it belongs to, or an empty string."""
        try:
            params = msgspec.json.decode(self.params, type=_ThreadParams)
        except JSON_ERRORS:
            return ""
        return params.thread_id or params.conversation_id or ""


class LineSplitter:
    """Splits bytes into lines, dropping lines that are too long."""

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
                log.warning("dropped a line of more than %d bytes from codex", MAX_LINE)
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
    """Return None for a line that is not a protocol message."""
    try:
        message = _decoder.decode(line)
    except JSON_ERRORS:
        return None
    return message if message.method or message.id is not None else None


def encode_line(message: Json) -> bytes:
    return msgspec.json.encode(message) + b"\n"
