"""Encode a reply as OpenAI does, for chat completions and for the Responses API."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from hermes.kit.sse import frame
from hermes.testing.fake_openai.script import Call, Reply, TokenCounts

DONE = frame(b"[DONE]")
_CREATED = 1_767_225_600

JsonObject = dict[str, Any]
_MODEL_ITEMS = frozenset({"function_call", "custom_tool_call", "reasoning"})


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
    for piece in split_text(reply.reasoning, reply.chunk):
        yield chunk(_reasoning(reply, piece))
    for piece in split_text(reply.text, reply.chunk):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        yield chunk({"tool_calls": [_call_head(call, index, number)]})
        for piece in split_text(call.wire_arguments, reply.chunk):
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


def split_text(text: str, size: int) -> Iterator[str]:
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
    return {"id": call.id or f"call_mock{number}_{index}", "type": "function", "function": function}


class _Part(Struct):
    text: str = ""


class RequestItem(Struct):
    """A message of a chat request, or an item of a Responses request."""

    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None

    @property
    def is_answer(self) -> bool:
        return self.role == "assistant" or self.type in _MODEL_ITEMS

    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else "".join(part.text for part in content)


class _StreamOptions(Struct):
    include_usage: bool = False


class ChatBody(Struct):
    """The fields of a chat completions request that the fake server uses."""

    model: str = ""
    messages: list[RequestItem] = []
    stream: bool = False
    stream_options: _StreamOptions | None = None

    def last(self) -> tuple[str, int]:
        """Return the last user text and the number of model steps after it."""
        users = [index for index, item in enumerate(self.messages) if item.role == "user"]
        last = users[-1] if users else 0
        text = self.messages[last].text() if self.messages else ""
        return text, sum(item.role == "assistant" for item in self.messages[last:])

    def response(self, reply: Reply, number: int) -> bytes:
        return completion(reply, self.model, number)

    def frames(self, reply: Reply, number: int) -> Iterator[bytes]:
        usage = self.stream_options is not None and self.stream_options.include_usage
        return stream_frames(reply, self.model, number, usage=usage)


class ResponsesBody(Struct):
    """The fields of a Responses request that the fake server uses."""

    model: str = ""
    input: str | list[RequestItem] = ""
    stream: bool = False

    def last(self) -> tuple[str, int]:
        """Return the last user text and the number of model steps after it."""
        if isinstance(self.input, str):
            return self.input, 0
        items = self.input
        users = [index for index, item in enumerate(items) if item.role == "user"]
        if not users:
            return "", 0
        since = [item.is_answer for item in items[users[-1] + 1 :]]
        steps = sum(after and not before for before, after in pairwise([False, *since]))
        return items[users[-1]].text(), steps

    def response(self, reply: Reply, number: int) -> bytes:
        return msgspec.json.encode(_whole(reply, self.model, number))

    def frames(self, reply: Reply, number: int) -> Iterator[bytes]:
        return response_frames(reply, self.model, number)


def response_frames(reply: Reply, model: str, number: int) -> Iterator[bytes]:
    """Yield the events of the stream, the last one being `response.completed`."""
    begun: JsonObject = {
        "id": f"resp_mock{number}",
        "object": "response",
        "status": "in_progress",
        "output": [],
    }
    yield event_frame("response.created", response=begun)
    for index, item in enumerate(_items(reply, number)):
        yield from _item_frames(item, index, reply)
    yield event_frame("response.completed", response=_whole(reply, model, number))


def failure_frame(code: str, message: str) -> bytes:
    error = {"code": code, "message": message}
    return event_frame(
        "response.failed", response={"id": "resp_mock", "status": "failed", "error": error}
    )


def _item_frames(item: JsonObject, place: int, reply: Reply) -> Iterator[bytes]:
    name = {"item_id": item["id"], "output_index": place}
    is_call = item["type"] == "function_call"
    blank: JsonObject = item if is_call else {**item, "content": [], "summary": []}
    yield event_frame("response.output_item.added", output_index=place, item=blank)
    if item["type"] == "message":
        for piece in split_text(reply.text, reply.chunk):
            yield event_frame("response.output_text.delta", **name, content_index=0, delta=piece)
    elif item["type"] == "reasoning":
        for piece in split_text(reply.reasoning, reply.chunk):
            yield event_frame(
                "response.reasoning_summary_text.delta", **name, summary_index=0, delta=piece
            )
    yield event_frame("response.output_item.done", output_index=place, item=item)


def _items(reply: Reply, number: int) -> list[JsonObject]:
    items: list[JsonObject] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_mock{number}", "summary": summary})
    if reply.text:
        content: list[JsonObject] = [{"type": "output_text", "text": reply.text, "annotations": []}]
        message: JsonObject = {"type": "message", "id": f"msg_mock{number}", "role": "assistant"}
        items.append({**message, "status": "completed", "content": content})
    for index, call in enumerate(reply.calls):
        item: JsonObject = {
            "type": "function_call",
            "id": f"fc_mock{number}_{index}",
            "call_id": call.id or f"call_mock{number}_{index}",
            "name": call.name,
            "arguments": call.wire_arguments,
        }
        items.append({**item, "namespace": call.namespace} if call.namespace else item)
    return items


def _whole(reply: Reply, model: str, number: int) -> JsonObject:
    whole: JsonObject = {
        "id": f"resp_mock{number}",
        "object": "response",
        "status": "completed",
        "model": model,
        "output": _items(reply, number),
    }
    if reply.usage is not None:
        whole["usage"] = _usage(reply.usage)
    return whole


def _usage(spent: TokenCounts) -> JsonObject:
    return {
        "input_tokens": spent.prompt,
        "input_tokens_details": {"cached_tokens": spent.cached or 0},
        "output_tokens": spent.completion,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning or 0},
        "total_tokens": spent.prompt + spent.completion,
    }


def event_frame(kind: str, **fields: object) -> bytes:
    return frame(msgspec.json.encode({"type": kind, **fields}), event=kind)
