"""The wire to Gemini's own API."""

from urllib.parse import quote

import msgspec

from hermes.models.driver import Served
from hermes.models.wire.gemini_request import GeminiRequestCodec
from hermes.models.wire.gemini_stream import Event, GeminiStream


def version_of(base_url: str) -> str:
    """The version, unless the address names one."""
    return "" if "/v1" in base_url else "/v1"


class GeminiWire(GeminiRequestCodec):
    """Implements `wire.stream.Wire`."""

    def __init__(self, served: Served) -> None:
        super().__init__(
            served.model, served.provider, served.profile, served.max_output, served.extra
        )
        self._name = quote(served.model.removeprefix("models/"), safe="-._~")
        self._decoder = msgspec.json.Decoder(Event, strict=False)

    def path(self, base_url: str) -> str:
        return f"{version_of(base_url)}/models/{self._name}:streamGenerateContent?alt=sse"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def stream(self) -> GeminiStream:
        return GeminiStream(self._decoder)
