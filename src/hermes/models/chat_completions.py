"""A model behind an OpenAI-compatible chat completions API."""

import msgspec

from hermes.kit.clock import Clock
from hermes.models.driver import Served, WireModel
from hermes.models.endpoint import Endpoint
from hermes.models.images import Images
from hermes.models.wire.chat_request import ChatRequestCodec
from hermes.models.wire.chat_stream import ChatStream, StreamChunk

__all__ = ["ChatCompletions", "ChatWire", "Served"]


class ChatWire(ChatRequestCodec):
    """Implements `wire.stream.Wire`."""

    def __init__(self, served: Served) -> None:
        super().__init__(
            served.model, served.provider, served.profile, served.max_output, served.extra
        )
        self._auth_header = served.auth_header
        self._decoder = msgspec.json.Decoder(StreamChunk, strict=False)

    def path(self, base_url: str) -> str:
        return "/chat/completions"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        if not key:
            return {}
        name = self._auth_header
        return {name: f"Bearer {key}" if name == "authorization" else key}

    def stream(self) -> ChatStream:
        return ChatStream(self._decoder)


class ChatCompletions(WireModel):
    def __init__(
        self, endpoint: Endpoint, served: Served, images: Images, clock: Clock, key: str = ""
    ) -> None:
        super().__init__(endpoint, served, images, clock, ChatWire(served), key)
