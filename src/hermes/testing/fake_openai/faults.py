"""Error responses of real providers, by name."""

from typing import NamedTuple

import msgspec

from hermes.testing.fake_openai.script import Fault


class ErrorAnswer(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]


def _openai(message: str, kind: str, code: str | None = None) -> str:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return msgspec.json.encode({"error": error}).decode()


_HTML = """<html>
<head><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx/1.24.0</center></body>
</html>
"""

_RATE_LIMITED = _openai(
    "Rate limit reached for mock-model: Limit 3, Used 3, Requested 1.",
    "requests",
    "rate_limit_exceeded",
)


def named_answers() -> dict[str, ErrorAnswer]:
    """Return the error responses by fault name."""
    return {
        "unauthorized": ErrorAnswer(
            401,
            _openai(
                "Incorrect API key provided: sk-moc**key.",
                "invalid_request_error",
                "invalid_api_key",
            ),
            {},
        ),
        "out_of_credit": ErrorAnswer(
            402, _openai("Insufficient Balance", "unknown_error", "invalid_request_error"), {}
        ),
        "forbidden": ErrorAnswer(
            403, _openai("You are not allowed to sample from this model", "permission_error"), {}
        ),
        "model_not_found": ErrorAnswer(
            404,
            _openai(
                "The model `mock-model` does not exist or you do not have access to it.",
                "invalid_request_error",
                "model_not_found",
            ),
            {},
        ),
        "too_large": ErrorAnswer(413, "Request Entity Too Large", {"content-type": "text/plain"}),
        "rate_limited": ErrorAnswer(429, _RATE_LIMITED, {}),
        "rate_limited_seconds": ErrorAnswer(429, _RATE_LIMITED, {"retry-after": "4"}),
        "rate_limited_ms": ErrorAnswer(429, _RATE_LIMITED, {"retry-after-ms": "1500"}),
        "context_too_long": ErrorAnswer(
            400,
            _openai(
                "This model's maximum context length is 8192 tokens. However, your messages "
                "resulted in 9001 tokens. Please reduce the length of the messages.",
                "invalid_request_error",
                "context_length_exceeded",
            ),
            {},
        ),
        "policy": ErrorAnswer(
            400,
            _openai(
                "Your request was rejected by the safety system.",
                "invalid_request_error",
                "content_policy_violation",
            ),
            {},
        ),
        "bad_request": ErrorAnswer(
            400,
            _openai(
                "Invalid type for 'messages[0].content': expected a string.",
                "invalid_request_error",
                "invalid_type",
            ),
            {},
        ),
        "server_error": ErrorAnswer(
            500,
            _openai("The server had an error while processing your request.", "server_error"),
            {},
        ),
        "bad_gateway": ErrorAnswer(502, _HTML, {"content-type": "text/html"}),
        "unavailable": ErrorAnswer(
            503, _openai("Service unavailable.", "service_unavailable_error"), {}
        ),
        "overloaded": ErrorAnswer(529, _openai("Overloaded", "overloaded_error"), {}),
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
