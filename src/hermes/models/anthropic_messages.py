"""The wire to Anthropic's messages API, and to those who speak its language."""

import msgspec

from hermes.models.anthropic_keys import key_headers
from hermes.models.driver import Served
from hermes.models.wire.anthropic_request import AnthropicRequestCodec
from hermes.models.wire.anthropic_stream import AnthropicStream, Event


class AnthropicWire(AnthropicRequestCodec):
    """Implements `wire.stream.Wire`."""

    def __init__(self, served: Served) -> None:
        super().__init__(
            served.model,
            served.provider,
            served.profile,
            served.max_output,
            served.extra,
            served.cache_ttl,
        )
        self._betas = served.profile.betas
        self._decoder = msgspec.json.Decoder(Event, strict=False)

    def path(self, base_url: str) -> str:
        return "/messages" if base_url.endswith("/v1") else "/v1/messages"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return key_headers(key, base_url, self._betas)

    def stream(self) -> AnthropicStream:
        return AnthropicStream(self._decoder)
