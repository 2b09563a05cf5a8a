"""Compare our protocol names with the schema of the real codex."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.runtimes.codex import protocol


@pytest.fixture(scope="module")
def schema(program: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("schema")
    command = [program, "app-server", "generate-json-schema", "--experimental", "--out", str(out)]
    env = {"HOME": str(out), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, check=True, env=env, capture_output=True, timeout=60)
    return out


def read(path: Path) -> dict[str, Any]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])


def methods(path: Path) -> set[str]:
    return {one["properties"]["method"]["enum"][0] for one in read(path)["oneOf"]}


def test_our_requests_exist(schema: Path) -> None:
    assert methods(schema / "ClientRequest.json") >= protocol.CLIENT_REQUESTS
    assert protocol.INITIALIZED in methods(schema / "ClientNotification.json")


def test_our_notifications_exist(schema: Path) -> None:
    assert methods(schema / "ServerNotification.json") >= protocol.NOTIFICATIONS


def test_server_requests_are_handled(schema: Path) -> None:
    server_methods = methods(schema / "ServerRequest.json")
    assert server_methods >= protocol.SERVER_REQUESTS
    left = {
        "account/chatgptAuthTokens/refresh",
        "attestation/generate",
        "applyPatchApproval",
        "execCommandApproval",
    }
    assert server_methods - protocol.SERVER_REQUESTS == left


def test_item_types_are_known(schema: Path) -> None:
    item = read(schema / "v2" / "ItemCompletedNotification.json")["definitions"]["ThreadItem"]
    kinds = {one["properties"]["type"]["enum"][0] for one in item["oneOf"]}
    assert kinds >= protocol.ITEM_TYPES
    assert kinds - protocol.ITEM_TYPES == {"hookPrompt", "functionCallOutput"}
    assert kinds >= protocol.AGENT_ITEMS
    # A new type must be classified: can it contain untrusted text?
    assert kinds - protocol.TRUSTED_ITEMS == {
        "collabAgentToolCall",
        "exitedReviewMode",
        "functionCallOutput",
        "hookPrompt",
        "imageView",
        "mcpToolCall",
        "subAgentActivity",
        "webSearch",
    }
    assert kinds >= protocol.TRUSTED_ITEMS


def test_token_usage_fields_exist(schema: Path) -> None:
    known = read(schema / "v2" / "ThreadTokenUsageUpdatedNotification.json")["definitions"]
    usage = set(known["ThreadTokenUsage"]["properties"])
    assert usage >= {"last", "total", "modelContextWindow"}
    assert set(known["TokenUsageBreakdown"]["properties"]) >= {
        "totalTokens",
        "inputTokens",
        "cachedInputTokens",
        "outputTokens",
        "reasoningOutputTokens",
    }


FIELDS = {
    "v2/ThreadStartParams.json": {
        "cwd",
        "approvalPolicy",
        "sandbox",
        "developerInstructions",
        "model",
        "config",
        "dynamicTools",
    },
    "v2/ThreadResumeParams.json": {"threadId", "excludeTurns", "developerInstructions", "config"},
    "v2/ThreadForkParams.json": {
        "threadId",
        "lastTurnId",
        "excludeTurns",
        "cwd",
        "approvalPolicy",
        "developerInstructions",
        "model",
        "config",
    },
    "v2/ThreadCompactStartParams.json": {"threadId"},
    "v2/ThreadInjectItemsParams.json": {"threadId", "items"},
    "v2/ThreadBackgroundTerminalsCleanParams.json": {"threadId"},
    "v2/TurnStartParams.json": {"threadId", "input", "clientUserMessageId", "effort"},
    "v2/TurnSteerParams.json": {"threadId", "expectedTurnId", "input", "clientUserMessageId"},
    "v2/TurnInterruptParams.json": {"threadId", "turnId"},
    "CommandExecutionRequestApprovalResponse.json": {"decision"},
    "FileChangeRequestApprovalResponse.json": {"decision"},
    "PermissionsRequestApprovalResponse.json": {"permissions", "scope"},
    "ToolRequestUserInputResponse.json": {"answers"},
    "McpServerElicitationRequestResponse.json": {"action", "content"},
    "DynamicToolCallResponse.json": {"contentItems", "success"},
    "CurrentTimeReadResponse.json": {"currentTimeAt"},
}


@pytest.mark.parametrize("file", FIELDS)
def test_parameters_match_the_schema(schema: Path, file: str) -> None:
    known = set(read(schema / file)["properties"])
    assert known >= FIELDS[file]
