"""The wire to OpenAI's responses API, and to those who speak its language."""

import msgspec

from hermes.models.driver import Served
from hermes.models.wire.responses_request import ResponsesRequestCodec
from hermes.models.wire.responses_stream import Event, ResponsesStream
from hermes.models.wire.stream import AnswerStream
from hermes.ports.model import Request
from hermes.schema.messages import Assistant


class ResponsesWire(ResponsesRequestCodec):
    """Implements `wire.stream.Wire`."""

    def __init__(self, served: Served) -> None:
        super().__init__(
            served.model, served.provider, served.profile, served.max_output, served.extra
        )
        self._decoder = msgspec.json.Decoder(Event, strict=False)

    def path(self, base_url: str) -> str:
        return "/responses"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def heard(self, request: Request, stream: AnswerStream, answer: Assistant) -> None:
        if isinstance(stream, ResponsesStream) and stream.finish_reason == "completed":
            self.kept.remember(answer, request.messages, stream.response)

    def stream(self) -> ResponsesStream:
        return ResponsesStream(self._decoder)
