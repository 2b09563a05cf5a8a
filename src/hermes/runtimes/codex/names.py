"""The words of the app-server's protocol that we say or understand; a test asks the real one."""

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

REQUESTS = frozenset(
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
RESOLVED = "serverRequest/resolved"
ERROR = "error"
WARNING = "warning"

NOTES = frozenset(
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
        RESOLVED,
        ERROR,
        WARNING,
    }
)
"""What we are told and listen to; anything else is let pass."""

DELTAS = frozenset({TEXT_DELTA, REASONING_DELTA, SUMMARY_DELTA, OUTPUT_DELTA, MCP_PROGRESS})
"""Of those, what may be dropped when there is too much of it."""

ASKS_COMMAND = "item/commandExecution/requestApproval"
ASKS_CHANGE = "item/fileChange/requestApproval"
ASKS_PERMISSIONS = "item/permissions/requestApproval"
ASKS_INPUT = "item/tool/requestUserInput"
ASKS_FORM = "mcpServer/elicitation/request"
ASKS_TOOL = "item/tool/call"
ASKS_TIME = "currentTime/read"

ASKED = frozenset(
    {
        ASKS_COMMAND,
        ASKS_CHANGE,
        ASKS_PERMISSIONS,
        ASKS_INPUT,
        ASKS_FORM,
        ASKS_TOOL,
        ASKS_TIME,
    }
)
"""What we are asked and can answer."""

ITEMS = frozenset(
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

AGENTS = frozenset({"collabAgentToolCall", "subAgentActivity"})
"""Agents of codex's own work in threads that we do not hear, also after such an item has ended."""

HARMLESS = frozenset(
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
