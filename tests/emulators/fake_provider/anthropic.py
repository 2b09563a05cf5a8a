"""The dialect of Anthropic's Messages API for the fake provider."""

from collections.abc import Iterator, Sequence

import msgspec

from hermes.kit.sse import frame
from hermes.testing.fake_openai.frames import JsonObject, event_frame, split_text
from hermes.testing.fake_openai.script import Call, ErrorAnswer, Fault, Reply, TokenCounts
from hermes.testing.fake_openai.server import RecordedRequest

SIGNATURE = "EqQBCkYIBxgCKkBmock+signature/of=a=thought"

_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def _error(kind: str, message: str) -> str:
    error = {"type": kind, "message": message}
    body = {"type": "error", "error": error, "request_id": "req_mock"}
    return msgspec.json.encode(body).decode()


_REFUSALS: dict[str, tuple[int, str, str]] = {
    "unauthorized": (401, "authentication_error", "invalid x-api-key"),
    "out_of_credit": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API.",
    ),
    "forbidden": (
        403,
        "permission_error",
        "Your API key does not have permission to use the specified resource.",
    ),
    "model_not_found": (404, "not_found_error", "model: mock-model"),
    "too_large": (413, "request_too_large", "Request exceeds the maximum size"),
    "rate_limited": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 40,000 tokens per minute.",
    ),
    "context_too_long": (
        400,
        "invalid_request_error",
        "prompt is too long: 213462 tokens > 200000 maximum",
    ),
    "policy": (400, "invalid_request_error", "Output blocked by content filtering policy"),
    "bad_request": (400, "invalid_request_error", "messages.1.content.0.type: Field required"),
    "server_error": (500, "api_error", "Internal server error"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
}


class AnthropicDialect:
    """Implements `Dialect` for the Messages API."""

    def models(self, names: Sequence[str]) -> bytes:
        rows = [{"type": "model", "id": name, "display_name": name} for name in names]
        return msgspec.json.encode({"data": rows, "has_more": False})

    def is_admitted(self, exchange: RecordedRequest, key: str) -> bool:
        """Accept the key as a bearer token (sent by the SDK) or as `x-api-key` (documented)."""
        bearer = exchange.headers.get("authorization", "").removeprefix("Bearer ")
        return exchange.headers.get("x-api-key", bearer) == key

    def refusal(self, fault: Fault) -> ErrorAnswer:
        if not fault.named:
            return ErrorAnswer(fault.status, fault.body or _error("api_error", "Mock fault"), {})
        status, kind, message = _REFUSALS[fault.named]
        return ErrorAnswer(status, fault.body or _error(kind, message), {"request-id": "req_mock"})

    def failure(self, fault: Fault) -> bytes:
        return frame(self.refusal(fault).body.encode(), event="error")

    def frames(self, reply: Reply, exchange: RecordedRequest, number: int) -> list[bytes]:
        return list(_frames(reply, str(exchange.json.get("model")), number))


def _frames(reply: Reply, model: str, number: int) -> Iterator[bytes]:
    """Yield the frames; the first holds everything before the first piece of the answer."""
    spent = reply.usage or TokenCounts(0, 0)
    head: JsonObject = {
        "id": f"msg_mock{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _counted(spent) | {"output_tokens": 1},
    }
    before = event_frame("message_start", message=head) + event_frame("ping")
    index = 0
    if reply.reasoning:
        yield before + _started(index, type="thinking", thinking="", signature="")
        for piece in split_text(reply.reasoning, reply.chunk):
            yield _delta(index, type="thinking_delta", thinking=piece)
        signature = _delta(index, type="signature_delta", signature=SIGNATURE)
        before, index = signature + event_frame("content_block_stop", index=index), index + 1
    if reply.text:
        yield before + _started(index, type="text", text="")
        for piece in split_text(reply.text, reply.chunk):
            yield _delta(index, type="text_delta", text=piece)
        before, index = event_frame("content_block_stop", index=index), index + 1
    yield before
    for n, call in enumerate(reply.calls):
        yield from _call_frames(call, index + n, f"toolu_mock{number}_{n}", reply.chunk)
    stop = {"stop_reason": _STOPS[reply.finish_reason], "stop_sequence": None}
    usage: JsonObject = {"output_tokens": spent.completion}
    if spent.reasoning:
        usage["output_tokens_details"] = {"thinking_tokens": spent.reasoning}
    yield event_frame("message_delta", delta=stop, usage=usage)
    yield event_frame("message_stop")


def _call_frames(call: Call, index: int, identity: str, size: int) -> Iterator[bytes]:
    yield _started(index, type="tool_use", id=call.id or identity, name=call.name, input={})
    for piece in ("", *split_text(call.wire_arguments, size)):
        yield _delta(index, type="input_json_delta", partial_json=piece)
    yield event_frame("content_block_stop", index=index)


def _started(index: int, **block: object) -> bytes:
    return event_frame("content_block_start", index=index, content_block=block)


def _delta(index: int, **delta: object) -> bytes:
    return event_frame("content_block_delta", index=index, delta=delta)


def _counted(spent: TokenCounts) -> JsonObject:
    read = spent.cached or 0
    return {
        "input_tokens": spent.prompt - read,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": read,
    }
