"""Listen to one answer as it comes, and remember what was heard of it if it breaks off."""

from hermes.kit.ids import new_id
from hermes.ports.model import Model, Request
from hermes.ports.sink import Emit
from hermes.schema.errors import ModelError
from hermes.schema.events import StreamReset, TextDelta
from hermes.schema.messages import Assistant, Stop, Text, Usage


class AnswerStream:
    """One request. Whatever ends it, `heard` has what there is of the answer."""

    def __init__(self, model: Model, emit: Emit) -> None:
        self._model = model
        self._emit = emit
        self._words: list[str] = []
        self._whole: Assistant | None = None

    async def listen(self, request: Request) -> Assistant:
        """Pass the deltas on; returns the whole. Raises `ModelError` when there is none."""
        async with self._model.stream(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Assistant):
                    self._whole = chunk
                    break
                if isinstance(chunk, TextDelta):
                    self._words.append(chunk.text)
                elif isinstance(chunk, StreamReset):
                    self._words.clear()
                await self._emit(chunk)
        if self._whole is None:
            what = f"{self._model.name} ended its stream without an answer."
            raise ModelError(what, hint="Try again.")
        return self._whole

    def heard(self) -> Assistant | None:
        """The answer if it came whole, else the words that people may have read already."""
        words = "".join(self._words)
        if self._whole is not None or not words.strip():
            return self._whole
        model = self._model
        parts = (Text(words),)
        return Assistant(new_id("msg"), parts, Stop.CANCELLED, Usage(), model.name, model.provider)
