"""A server that speaks OpenAI's chat completions event by event, for `mock_wire`."""

from collections.abc import Sequence

from hermes.kit.sse import frame
from hermes.testing.mock_openai.faults import Answer, answer_for
from hermes.testing.mock_openai.frames import DONE, model_list, stream_frames
from hermes.testing.mock_openai.script import Fault, Reply
from hermes.testing.mock_openai.server import Exchange


class OpenAiDialect:
    """What both wires of OpenAI's have in common."""

    def models(self, names: Sequence[str]) -> bytes:
        return model_list(tuple(names))

    def is_admitted(self, exchange: Exchange, key: str) -> bool:
        return exchange.headers.get("authorization") == f"Bearer {key}"

    def refusal(self, fault: Fault) -> Answer:
        return answer_for(fault)


class ChatDialect(OpenAiDialect):
    """Implements `mock_wire.Dialect`."""

    def failure(self, fault: Fault) -> bytes:
        return frame(answer_for(fault).body.encode())

    def frames(self, reply: Reply, exchange: Exchange, number: int) -> list[bytes]:
        model = str(exchange.json.get("model"))
        return [*stream_frames(reply, model, number, usage=True), DONE]
