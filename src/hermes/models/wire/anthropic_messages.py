"""Encode requests for Anthropic's Messages API."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, assert_never

from msgspec import Raw, Struct, field

from hermes.models.images import ImageUrlMap, InlineImage, LinkedImage, image_content, part_text
from hermes.models.providers import EffortFormat, nearest_effort
from hermes.models.urls import anthropic_headers
from hermes.models.wire.anthropic_stream import (
    REDACTED,
    THINKING,
    AnthropicStream,
    ReasoningSignature,
)
from hermes.models.wire.codec import RequestCodec, portable_call_id, read_signature
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Text,
    ToolCall,
    User,
)
from hermes.schema.tools import ToolSpec

Block: TypeAlias = dict[str, Any]

CACHED_MESSAGES = 3
"""How many of the last messages get a cache marker; the system prompt has the fourth."""
ANSWER_TOKENS = 4096
"""Tokens for the answer itself, in addition to the reasoning budget."""

_UNCACHED_TYPES = frozenset({THINKING, REDACTED})


class RoleMessage(Struct):
    role: str
    content: list[Block]


class AnthropicWire(RequestCodec):
    """Implements `wire.codec.Wire`."""

    rejection_patterns: ClassVar[Mapping[str, str]] = {
        "display": r"display",
        "output_config": r"output_config|effort",
        "thinking": r"(?:not support|unsupported|not permitted).{0,60}thinking"
        r"|thinking.{0,60}(?:not support|unsupported|not permitted)",
    }

    stream = AnthropicStream

    _mark: Block = field(default_factory=dict[str, Any])
    """Marks a block that the provider caches."""

    def __post_init__(self) -> None:
        self._mark["type"] = "ephemeral"
        if self._served.cache_ttl != "5m":
            self._mark["ttl"] = self._served.cache_ttl

    def path(self, base_url: str) -> str:
        return "/messages" if base_url.endswith("/v1") else "/v1/messages"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return anthropic_headers(key, base_url, self._served.profile.betas)

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        messages = self._turns(request, images)
        return self._encoder.encode(self._head(request) | {"messages": messages})

    def _head(self, request: ModelRequest) -> Block:
        limit = (
            request.max_output or self._served.max_output or self._served.profile.default_max_output
        )
        head: Block = {"model": self._served.model, "max_tokens": limit, "stream": True}
        if request.effort and self._allows_thinking(request):
            head |= self._effort(request.effort, limit)
        if request.system.strip():
            head["system"] = [{"type": "text", "text": request.system, "cache_control": self._mark}]
        if request.tools:
            head["tools"] = Raw(self._encode_tools(request.tools))
            head |= _tool_choice(request.constraints)
        return {**head, **self._served.extra}

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        return {"name": spec.name, "description": spec.description, "input_schema": spec.schema}

    def _effort(self, wanted: str, limit: int) -> Block:
        profile = self._served.profile
        if wanted == "none" or not self._accepts("thinking"):
            return {}
        if profile.effort is EffortFormat.BUDGET:
            budget = profile.budget(wanted)
            thinking = {"type": "enabled", "budget_tokens": budget}
            return {"thinking": thinking, "max_tokens": max(limit, budget + ANSWER_TOKENS)}
        if profile.effort is not EffortFormat.ADAPTIVE:
            return {}
        head: Block = {"thinking": {"type": "adaptive"}}
        if self._accepts("display"):
            head["thinking"]["display"] = "summarized"
        nearest = nearest_effort(wanted, profile.efforts)
        if nearest and self._accepts("output_config"):
            head["output_config"] = {"effort": nearest}
        return head

    def _allows_thinking(self, request: ModelRequest) -> bool:
        """Return whether thinking can be enabled.

        It conflicts with a forced call, and the API requires reasoning before every call since
        the last user message.
        """
        if request.constraints.required or request.constraints.name:
            return False
        for message in reversed(request.messages):
            if isinstance(message, User):
                return True
            if isinstance(message, Assistant) and message.calls:
                thoughts = (part for part in message.parts if isinstance(part, Reasoning))
                if not any(self._thought(part, message) for part in thoughts):
                    return False
        return True

    def _turns(self, request: ModelRequest, images: ImageUrlMap | None) -> list[RoleMessage]:
        turns: list[RoleMessage] = []
        for message in request.messages:
            role = "assistant" if isinstance(message, Assistant) else "user"
            blocks = self._blocks(message, images or {})
            if not blocks:
                continue
            if turns and turns[-1].role == role:
                turns[-1].content += blocks
            else:
                turns.append(RoleMessage(role, blocks))
        if turns and turns[0].role == "assistant":
            turns.insert(0, RoleMessage("user", [_text("[The conversation continues.]")]))
        self._mark_cached(turns)
        return turns

    def _mark_cached(self, turns: Sequence[RoleMessage]) -> None:
        left = CACHED_MESSAGES
        for turn in reversed(turns):
            block = next(
                (b for b in reversed(turn.content) if b["type"] not in _UNCACHED_TYPES), None
            )
            if block is not None:
                block["cache_control"] = self._mark
                left -= 1
            if not left:
                return

    def _blocks(self, message: Message, images: ImageUrlMap) -> list[Block]:
        match message:
            case User():
                return self._content_blocks(message.parts, images)
            case Assistant():
                return [
                    block
                    for part in message.parts
                    if (block := self._assistant_block(part, message))
                ]
            case Result():
                return [self._result(message, images)]
            case _:
                assert_never(message)

    def _content_blocks(self, parts: Sequence[Text | Media], images: ImageUrlMap) -> list[Block]:
        blocks: list[Block] = []
        for part in parts:
            if self._sends_image(part):
                blocks.append(_image(part, images))
            elif (text := part_text(part)).strip():
                blocks.append(_text(text))
        return blocks

    def _assistant_block(
        self, part: Text | Reasoning | ToolCall, message: Assistant
    ) -> Block | None:
        match part:
            case Text():
                return _text(part.text) if part.text.strip() else None
            case Reasoning():
                return self._thought(part, message)
            case ToolCall():
                return {
                    "type": "tool_use",
                    "id": portable_call_id(part.id),
                    "name": part.name,
                    "input": part.args,
                }
            case _:
                assert_never(part)

    def _thought(self, part: Reasoning, message: Assistant) -> Block | None:
        """Only the model that signed the reasoning can read it again."""
        signature = read_signature(part.signature, ReasoningSignature)
        if signature is None or not self._owns(message):
            return None
        if signature.type == REDACTED and signature.data:
            return {"type": REDACTED, "data": signature.data}
        if signature.type == THINKING and signature.signature:
            return {"type": THINKING, "thinking": part.text, "signature": signature.signature}
        return None

    def _result(self, result: Result, images: ImageUrlMap) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": portable_call_id(result.call)}
        if blocks := self._content_blocks(result.parts, images):
            only = blocks[0] if len(blocks) == 1 else {}
            block["content"] = only.get("text") or blocks
        if result.failed:
            block["is_error"] = True
        return block


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(media: Media, images: ImageUrlMap) -> Block:
    match image_content(media, images):
        case InlineImage(media_type, data):
            source = {"type": "base64", "media_type": media_type, "data": data}
            return {"type": "image", "source": source}
        case LinkedImage(url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case text:
            return _text(text)


def _tool_choice(wanted: OutputConstraints) -> Block:
    choice: Block = {"type": "auto"}
    if wanted.name:
        choice = {"type": "tool", "name": wanted.name}
    elif wanted.required:
        choice = {"type": "any"}
    if wanted.single:
        choice["disable_parallel_tool_use"] = True
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}
