"""Error answers as the providers of this world send them, by name."""

from typing import NamedTuple

import msgspec

from hermes.testing.mock_openai.script import Fault


class Answer(NamedTuple):
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

_LIMITED = _openai(
    "Rate limit reached for mock-model: Limit 3, Used 3, Requested 1.",
    "requests",
    "rate_limit_exceeded",
)


def named_answers() -> dict[str, Answer]:
    """The named faults: each a status, a body and headers."""
    return {
        "unauthorized": Answer(
            401,
            _openai(
                "Incorrect API key provided: sk-moc**key.",
                "invalid_request_error",
                "invalid_api_key",
            ),
            {},
        ),
        "out_of_credit": Answer(
            402, _openai("Insufficient Balance", "unknown_error", "invalid_request_error"), {}
        ),
        "forbidden": Answer(
            403, _openai("You are not allowed to sample from this model", "permission_error"), {}
        ),
        "model_not_found": Answer(
            404,
            _openai(
                "The model `mock-model` does not exist or you do not have access to it.",
                "invalid_request_error",
                "model_not_found",
            ),
            {},
        ),
        "too_large": Answer(413, "Request Entity Too Large", {"content-type": "text/plain"}),
        "rate_limited": Answer(429, _LIMITED, {}),
        "rate_limited_seconds": Answer(429, _LIMITED, {"retry-after": "4"}),
        "rate_limited_ms": Answer(429, _LIMITED, {"retry-after-ms": "1500"}),
        "context_too_long": Answer(
            400,
            _openai(
                "This model's maximum context length is 8192 tokens. However, your messages "
                "resulted in 9001 tokens. Please reduce the length of the messages.",
                "invalid_request_error",
                "context_length_exceeded",
            ),
            {},
        ),
        "policy": Answer(
            400,
            _openai(
                "Your request was rejected by the safety system.",
                "invalid_request_error",
                "content_policy_violation",
            ),
            {},
        ),
        "bad_request": Answer(
            400,
            _openai(
                "Invalid type for 'messages[0].content': expected a string.",
                "invalid_request_error",
                "invalid_type",
            ),
            {},
        ),
        "server_error": Answer(
            500,
            _openai("The server had an error while processing your request.", "server_error"),
            {},
        ),
        "bad_gateway": Answer(502, _HTML, {"content-type": "text/html"}),
        "unavailable": Answer(
            503, _openai("Service unavailable.", "service_unavailable_error"), {}
        ),
        "overloaded": Answer(529, _openai("Overloaded", "overloaded_error"), {}),
    }


def answer_for(fault: Fault) -> Answer:
    """The named answer, with whatever the fault says by hand on top of it."""
    if not fault.named:
        return Answer(fault.status, fault.body or _openai("Mock fault", "mock"), fault.headers)
    known = named_answers()
    if fault.named not in known:
        raise KeyError(f"no fault is named {fault.named!r}; there are: {', '.join(known)}")
    found = known[fault.named]
    return Answer(found.status, fault.body or found.body, {**found.headers, **fault.headers})
