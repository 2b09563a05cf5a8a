"""Encode a reply as OpenAI does: as chunks of a stream or as a complete response."""

from collections.abc import Iterator
from typing import Any

import msgspec

from hermes.kit.sse import frame
from hermes.testing.fake_openai.script import Call, Reply, TokenCounts

DONE = frame(b"[DONE]")
_CREATED = 1_767_225_600

JsonObject = dict[str, Any]


def stream_frames(reply: Reply, model: str, number: int, *, usage: bool) -> Iterator[bytes]:
    """Yield all events up to the finish reason and the usage, without [DONE]."""
    head: JsonObject = {
        "id": f"chatcmpl-mock{number}",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": model,
    }

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return frame(msgspec.json.encode({**head, "choices": [choice]}))

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(reply.reasoning, reply.chunk):
        yield chunk(_reasoning(reply, piece))
    for piece in pieces(reply.text, reply.chunk):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        yield chunk({"tool_calls": [_call_head(call, index, number)]})
        for piece in pieces(call.wire_arguments, reply.chunk):
            part = {"index": index, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [part]})
    yield chunk({}, reply.finish_reason)
    if usage and reply.usage is not None:
        last: JsonObject = {**head, "choices": [], "usage": usage_object(reply.usage)}
        yield frame(msgspec.json.encode(last))


def completion(reply: Reply, model: str, number: int) -> bytes:
    """Return the response to a request without streaming."""
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message |= _reasoning(reply, reply.reasoning)
    if reply.calls:
        message["tool_calls"] = [_whole_call(call, i, number) for i, call in enumerate(reply.calls)]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": reply.finish_reason,
    }
    body: JsonObject = {
        "id": f"chatcmpl-mock{number}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": model,
        "choices": [choice],
    }
    if reply.usage is not None:
        body["usage"] = usage_object(reply.usage)
    return msgspec.json.encode(body)


def model_list(models: tuple[str, ...]) -> bytes:
    rows = [
        {"id": name, "object": "model", "created": _CREATED, "owned_by": "mock"} for name in models
    ]
    return msgspec.json.encode({"object": "list", "data": rows})


def usage_object(spent: TokenCounts) -> JsonObject:
    usage: JsonObject = {
        "prompt_tokens": spent.prompt,
        "completion_tokens": spent.completion,
        "total_tokens": spent.prompt + spent.completion,
    }
    if spent.cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": spent.cached}
    if spent.reasoning is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": spent.reasoning}
    return usage


def pieces(text: str, size: int) -> Iterator[str]:
    if not text:
        return
    size = size or len(text)
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _reasoning(reply: Reply, piece: str) -> JsonObject:
    if reply.reasoning_field != "reasoning_details":
        return {reply.reasoning_field: piece}
    detail = {"type": "reasoning.text", "text": piece, "format": "unknown", "index": 0}
    return {"reasoning": piece, "reasoning_details": [detail]}


def _call_head(call: Call, index: int, number: int) -> JsonObject:
    whole = _whole_call(call, index, number)
    return {"index": index, **whole, "function": {"name": call.name, "arguments": ""}}


def _whole_call(call: Call, index: int, number: int) -> JsonObject:
    function = {"name": call.name, "arguments": call.wire_arguments}
    return {
        "id": call.id or f"call_mock{number}_{index}",
        "type": "function",
        "function": function,
    }
