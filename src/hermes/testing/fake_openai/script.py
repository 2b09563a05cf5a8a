"""Scripts for the fake server, and the error responses of real providers by name."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

_HTML = """<html>
<head><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx/1.24.0</center></body>
</html>
"""
_INVALID = "invalid_request_error"
_RATE_LIMITED = (
    429,
    "Rate limit reached for mock-model: Limit 3, Used 3, Requested 1.",
    "requests",
    "rate_limit_exceeded",
)
_ERRORS: dict[str, tuple[int, str, str, str | None]] = {
    "unauthorized": (401, "Incorrect API key provided: sk-moc**key.", _INVALID, "invalid_api_key"),
    "out_of_credit": (402, "Insufficient Balance", "unknown_error", _INVALID),
    "forbidden": (403, "You are not allowed to sample from this model", "permission_error", None),
    "model_not_found": (
        404,
        "The model `mock-model` does not exist or you do not have access to it.",
        _INVALID,
        "model_not_found",
    ),
    "rate_limited": _RATE_LIMITED,
    "rate_limited_seconds": _RATE_LIMITED,
    "rate_limited_ms": _RATE_LIMITED,
    "context_too_long": (
        400,
        (
            "This model's maximum context length is 8192 tokens. However, your messages "
            "resulted in 9001 tokens. Please reduce the length of the messages."
        ),
        _INVALID,
        "context_length_exceeded",
    ),
    "policy": (
        400,
        "Your request was rejected by the safety system.",
        _INVALID,
        "content_policy_violation",
    ),
    "bad_request": (
        400,
        "Invalid type for 'messages[0].content': expected a string.",
        _INVALID,
        "invalid_type",
    ),
    "server_error": (
        500,
        "The server had an error while processing your request.",
        "server_error",
        None,
    ),
    "unavailable": (503, "Service unavailable.", "service_unavailable_error", None),
    "overloaded": (529, "Overloaded", "overloaded_error", None),
}
_ERROR_HEADERS = {
    "rate_limited_seconds": {"retry-after": "4"},
    "rate_limited_ms": {"retry-after-ms": "1500"},
}


class Call(Struct, forbid_unknown_fields=True):
    """One tool call; `arguments` given as an object are encoded, a string is sent unchanged.

    `namespace` is only used by the Responses API.
    """

    name: str
    arguments: str | dict[str, Any] = "{}"
    id: str | None = None
    namespace: str = ""

    @property
    def wire_arguments(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class TokenCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """The token counts to report; None values are omitted."""

    prompt: int = 10
    completion: int = 5
    cached: int | None = None
    reasoning: int | None = None


class Fault(Struct, forbid_unknown_fields=True):
    """How an answer fails.

    `status`: an error response; `named` selects a known one, `body` and `headers` override it.
    `cut`: the connection breaks after `after` chunks; `hang`: the stream stalls after them.
    `garbage`: bytes that are not an event; `bad_json`: a chunk that is not JSON;
    `error_event`: an error object inside the stream; `no_end`: the stream ends without a
    finish reason and without [DONE]; `no_done`: a finish reason, but no [DONE].
    """

    kind: Literal[
        "status", "cut", "hang", "garbage", "bad_json", "error_event", "no_end", "no_done"
    ]
    after: int = 0
    status: int = 500
    named: str = ""
    body: str = ""
    headers: dict[str, str] = {}


class Reply(Struct, forbid_unknown_fields=True):
    """One answer; `chunk` is the number of characters per delta, or 0 for a single delta.

    `first_byte` and `pace` are delays in seconds before the answer and after each chunk. An answer
    with a `gate` waits for `FakeOpenAiServer.open_gate`.
    """

    text: str = ""
    calls: list[Call] = []
    reasoning: str = ""
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] = (
        "reasoning_content"
    )
    finish: str = ""
    usage: TokenCounts | None = TokenCounts()
    first_byte: float = 0.0
    gate: str = ""
    pace: float = 0.0
    chunk: int = 8
    headers: dict[str, str] = {}
    fault: Fault | None = None

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


class Rule(Struct, forbid_unknown_fields=True):
    """Applies when the last user text contains `contains`.

    The first of `steps` answers the user, the second the results of the first one's calls, and
    so on; the last one repeats.
    """

    contains: str
    steps: list[Reply]


class Script(Struct, forbid_unknown_fields=True):
    """Answers with `replies` in order, then with the first matching rule, else with `default`."""

    replies: list[Reply] = []
    rules: list[Rule] = []
    default: Reply = msgspec.field(default_factory=lambda: Reply(text="Hello from the mock model."))
    models: tuple[str, ...] = ("mock-model",)
    api_key: str = ""


def load_script(path: Path) -> Script:
    return msgspec.json.decode(path.read_bytes(), type=Script)


class ErrorAnswer(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]


def _openai(message: str, kind: str, code: str | None = None) -> str:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return msgspec.json.encode({"error": error}).decode()


def named_answers() -> dict[str, ErrorAnswer]:
    """Return the error responses by fault name."""
    return {
        "too_large": ErrorAnswer(413, "Request Entity Too Large", {"content-type": "text/plain"}),
        "bad_gateway": ErrorAnswer(502, _HTML, {"content-type": "text/html"}),
        **{
            name: ErrorAnswer(status, _openai(message, kind, code), _ERROR_HEADERS.get(name, {}))
            for name, (status, message, kind, code) in _ERRORS.items()
        },
    }


def error_answer(fault: Fault) -> ErrorAnswer:
    """Return the response for a fault; its own body and headers override the named ones."""
    if not fault.named:
        return ErrorAnswer(fault.status, fault.body or _openai("Mock fault", "mock"), fault.headers)
    known = named_answers()
    if fault.named not in known:
        raise KeyError(f"unknown fault {fault.named!r}; known faults: {', '.join(known)}")
    found = known[fault.named]
    return ErrorAnswer(found.status, fault.body or found.body, {**found.headers, **fault.headers})
