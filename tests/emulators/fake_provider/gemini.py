"""The dialect of the native Gemini API for the fake provider."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from hermes.kit.sse import frame
from hermes.testing.fake_openai.frames import JsonObject, split_text
from hermes.testing.fake_openai.script import ErrorAnswer, Fault, Reply, TokenCounts
from hermes.testing.fake_openai.server import RecordedRequest

SIGNATURE = "CiQB0e2Kbm9jaytzaWduYXR1cmU="

_FINISHES = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
_RETRY = "type.googleapis.com/google.rpc.RetryInfo"
_REFUSALS: dict[str, tuple[int, str, str]] = {
    "unauthorized": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "forbidden": (403, "PERMISSION_DENIED", "The caller does not have permission"),
    "out_of_credit": (402, "FAILED_PRECONDITION", "Your prepayment credits are depleted."),
    "model_not_found": (404, "NOT_FOUND", "models/mock-model is not found for API version v1beta."),
    "rate_limited": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    "context_too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1048999) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "policy": (400, "INVALID_ARGUMENT", "The prompt was blocked: PROHIBITED_CONTENT"),
    "bad_request": (
        400,
        "INVALID_ARGUMENT",
        'Invalid JSON payload received. Unknown name "foo": Cannot find field.',
    ),
    "server_error": (500, "INTERNAL", "An internal error has occurred."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
}


class GeminiDialect:
    """Implements `Dialect` for the Gemini API."""

    def models(self, names: Sequence[str]) -> bytes:
        rows = [{"name": f"models/{name}", "inputTokenLimit": 1_048_576} for name in names]
        return msgspec.json.encode({"models": rows})

    def is_admitted(self, exchange: RecordedRequest, key: str) -> bool:
        return exchange.headers.get("x-goog-api-key") == key

    def refusal(self, fault: Fault) -> ErrorAnswer:
        if not fault.named:
            return ErrorAnswer(
                fault.status, fault.body or _error(fault.status, "INTERNAL", "Mock"), {}
            )
        status, kind, message = _REFUSALS[fault.named]
        return ErrorAnswer(status, fault.body or _error(status, kind, message), {})

    def failure(self, fault: Fault) -> bytes:
        return frame(self.refusal(fault).body.encode())

    def frames(self, reply: Reply, exchange: RecordedRequest, number: int) -> list[bytes]:
        return list(_frames(reply, exchange.path, number))


def _error(status: int, kind: str, message: str) -> str:
    error: JsonObject = {"code": status, "message": message, "status": kind}
    if status == 429:
        error["details"] = [{"@type": _RETRY, "retryDelay": "7s"}]
    return msgspec.json.encode({"error": error}).decode()


def _frames(reply: Reply, path: str, number: int) -> Iterator[bytes]:
    """Yield the frames; the first is empty because `Fault.after` does not count it."""
    model = path.rpartition("/")[2].partition(":")[0]

    def event(parts: Sequence[object], finish: str = "", spent: TokenCounts | None = None) -> bytes:
        candidate: JsonObject = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        whole: JsonObject = {"candidates": [candidate], "modelVersion": model}
        whole["responseId"] = f"mock{number}"
        if spent:
            whole["usageMetadata"] = _usage(spent)
        return frame(msgspec.json.encode(whole))

    yield event([])
    for piece in split_text(reply.reasoning, reply.chunk):
        yield event([{"text": piece, "thought": True}])
    for piece in split_text(reply.text, reply.chunk):
        yield event([{"text": piece}])
    for index, call in enumerate(reply.calls):
        function_call: JsonObject = {"name": call.name, "args": Raw(call.wire_arguments.encode())}
        if call.id:
            function_call["id"] = call.id
        signature = {"thoughtSignature": SIGNATURE} if reply.reasoning and not index else {}
        yield event([{"functionCall": function_call, **signature}])
    yield event([{"text": ""}], _FINISHES[reply.finish_reason], reply.usage)


def _usage(spent: TokenCounts) -> JsonObject:
    thought = spent.reasoning or 0
    usage: JsonObject = {
        "promptTokenCount": spent.prompt,
        "candidatesTokenCount": spent.completion - thought,
        "totalTokenCount": spent.prompt + spent.completion,
    }
    if spent.cached:
        usage["cachedContentTokenCount"] = spent.cached
    if thought:
        usage["thoughtsTokenCount"] = thought
    return usage
