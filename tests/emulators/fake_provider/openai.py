"""The dialects of OpenAI's chat completions and Responses APIs for the fake provider."""

from collections.abc import Iterator, Sequence

from hermes.kit.sse import frame
from hermes.testing.fake_openai.frames import (
    DONE,
    JsonObject,
    event_frame,
    model_list,
    split_text,
    stream_frames,
)
from hermes.testing.fake_openai.script import ErrorAnswer, Fault, Reply, TokenCounts, error_answer
from hermes.testing.fake_openai.server import RecordedRequest


class OpenAiDialect:
    """The common part of both OpenAI dialects."""

    def models(self, names: Sequence[str]) -> bytes:
        return model_list(tuple(names))

    def is_admitted(self, exchange: RecordedRequest, key: str) -> bool:
        return exchange.headers.get("authorization") == f"Bearer {key}"

    def refusal(self, fault: Fault) -> ErrorAnswer:
        return error_answer(fault)


class ChatDialect(OpenAiDialect):
    """Implements `Dialect` for chat completions."""

    def failure(self, fault: Fault) -> bytes:
        return frame(error_answer(fault).body.encode())

    def frames(self, reply: Reply, exchange: RecordedRequest, number: int) -> list[bytes]:
        model = str(exchange.json.get("model"))
        return [*stream_frames(reply, model, number, usage=True), DONE]


ENCRYPTED = "gAAAAABmock-encrypted-thought=="

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesDialect(OpenAiDialect):
    """Implements `Dialect` for the Responses API."""

    def failure(self, fault: Fault) -> bytes:
        error = {"code": fault.named or "server_error", "message": fault.body or "Mock fault"}
        return event_frame("response.failed", response=_response([], "failed") | {"error": error})

    def frames(self, reply: Reply, exchange: RecordedRequest, number: int) -> list[bytes]:
        return list(_ResponseFrames(reply, str(exchange.json.get("model")), number).frames())


def _response(
    output: list[JsonObject], status: str, model: str = "mock", number: int = 0
) -> JsonObject:
    return {
        "id": f"resp_mock{number}",
        "object": "response",
        "created_at": 1_767_225_600,
        "status": status,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }


class _ResponseFrames:
    def __init__(self, reply: Reply, model: str, number: int) -> None:
        self._reply = reply
        self._model = model
        self._number = number
        self._sequence = 0

    def _event(self, kind: str, **fields: object) -> bytes:
        self._sequence += 1
        return event_frame(kind, sequence_number=self._sequence, **fields)

    def frames(self) -> Iterator[bytes]:
        started = _response([], "in_progress", self._model, self._number)
        before = self._event("response.created", response=started)
        before += self._event("response.in_progress", response=started)
        output = self._items()
        for index, item in enumerate(output):
            first, *more = self._item_frames(item, index)
            yield before + first
            yield from more[:-1]
            before = more[-1]
        yield before
        yield self._last(output)

    def _last(self, output: list[JsonObject]) -> bytes:
        reason = _INCOMPLETE.get(self._reply.finish_reason)
        status = "incomplete" if reason else "completed"
        whole = _response(output, status, self._model, self._number)
        if reason:
            whole["incomplete_details"] = {"reason": reason}
        if self._reply.usage is not None:
            whole["usage"] = _usage(self._reply.usage)
        return self._event(f"response.{whole['status']}", response=whole)

    def _items(self) -> list[JsonObject]:
        reply, items = self._reply, list[JsonObject]()
        if reply.reasoning:
            summary = [{"type": "summary_text", "text": reply.reasoning}]
            reasoning: JsonObject = {"id": f"rs_{self._number}", "type": "reasoning"}
            items.append({**reasoning, "summary": summary, "encrypted_content": ENCRYPTED})
        if reply.text:
            part: JsonObject = {"type": "output_text", "text": reply.text, "annotations": []}
            message: JsonObject = {"id": f"msg_{self._number}", "type": "message"}
            items.append({**message, "role": "assistant", "status": "completed", "content": [part]})
        for index, call in enumerate(reply.calls):
            function_call: JsonObject = {
                "id": f"fc_{self._number}_{index}",
                "type": "function_call",
            }
            function_call |= {"call_id": call.id or f"call_{index}", "name": call.name}
            items.append({**function_call, "arguments": call.wire_arguments, "status": "completed"})
        return items

    def _item_frames(self, item: JsonObject, place: int) -> Iterator[bytes]:
        where: JsonObject = {"item_id": item["id"], "output_index": place}
        blank: JsonObject
        match item["type"]:
            case "reasoning":
                kind, text = "reasoning_summary_text", self._reply.reasoning
                blank = {"summary": [], "encrypted_content": None}
                part = self._event(
                    "response.reasoning_summary_part.added",
                    **where,
                    summary_index=0,
                    part={"type": "summary_text", "text": ""},
                )
                where |= {"summary_index": 0}
            case "message":
                kind, text = "output_text", self._reply.text
                blank = {"content": [], "status": "in_progress"}
                part = self._event(
                    "response.content_part.added",
                    **where,
                    content_index=0,
                    part={"type": "output_text", "text": "", "annotations": []},
                )
                where |= {"content_index": 0, "logprobs": []}
            case _:
                kind, text, part = "function_call_arguments", item["arguments"], b""
                blank = {"arguments": "", "status": "in_progress"}
        added: JsonObject = {"output_index": place, "item": item | blank}
        yield self._event("response.output_item.added", **added) + part
        for piece in split_text(text, self._reply.chunk):
            yield self._event(f"response.{kind}.delta", **where, delta=piece)
        yield self._event("response.output_item.done", output_index=place, item=item)


def _usage(spent: TokenCounts) -> JsonObject:
    return {
        "input_tokens": spent.prompt,
        "input_tokens_details": {"cached_tokens": spent.cached or 0, "cache_write_tokens": 0},
        "output_tokens": spent.completion,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning or 0},
        "total_tokens": spent.prompt + spent.completion,
    }
