"""The embedded model: waits for the engine, then sends the request to it."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from itertools import takewhile
from typing import Protocol

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import fenced, one_line
from hermes.models.embedded.engine import EngineAddress, EngineProcess
from hermes.models.embedded.small_profile import small_profile
from hermes.models.embedded.turn_state import ToolStep, call_arguments, turn_state_of
from hermes.models.embedded.weights import ModelFolder, Weights
from hermes.models.embedded.wire import EmbeddedWire, repeats_calls
from hermes.models.endpoint import Endpoint, EndpointSettings
from hermes.models.images import ImageUrls
from hermes.models.providers import EMBEDDED, ServedModel
from hermes.models.wire_model import WireModel
from hermes.ports.model import ModelChunk, ModelRequest
from hermes.schema.errors import Unreachable
from hermes.schema.events import Notice, TextDelta
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, text_of

PAGE_NOT_OPENED = (
    "Note: {page} was not opened, so this answer does not use it. To ask about it, paste its text, "
    "or save it as a file in the working directory."
)
NOT_REMEMBERED = (
    "Note: this will not be remembered in later conversations, because the embedded model has no "
    "memory. Choose a larger model with: hermes model"
)
IDLE_TIMEOUT = 900.0
"""Seconds without output: a long prompt is processed for minutes before the first token."""


class EngineQueue(Protocol):
    """The part of the engine pool that a model needs."""

    def is_loaded(self, weights: Weights, folder: ModelFolder) -> bool: ...

    def acquire(
        self, weights: Weights, folder: ModelFolder
    ) -> AbstractAsyncContextManager[EngineProcess]: ...


class EmbeddedModel:
    """Implements `ports.model.Model`. The caller owns the engine."""

    def __init__(
        self,
        weights: Weights,
        folder: ModelFolder,
        engine: Callable[[], EngineQueue],
        images: ImageUrls,
        clock: Clock,
    ) -> None:
        self.name, self.provider, self.window = weights.name, EMBEDDED, weights.window
        self._weights = weights
        self._folder = folder
        self._engine = engine
        self._images = images
        self._clock = clock
        self._served = ServedModel(
            model=weights.name,
            provider=EMBEDDED,
            window=weights.window,
            profile=small_profile(),
            local=True,
        )

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]:
        return aclosing(self._chunks(request))

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[ModelChunk]:
        """Announce loading. Answers that need no model need no engine either."""
        forced = request.constraints.required or request.constraints.name
        if answer := None if forced else answer_without_model(request, self.name):
            if answer.text:
                yield TextDelta(answer.text)
            yield answer
            return
        engine = self._engine()
        loaded = engine.is_loaded(self._weights, self._folder)
        if not loaded and self._folder.has_weights(self._weights):
            yield Notice(f"Loading the model {self.name} ...", passing=True)
        async with (
            engine.acquire(self._weights, self._folder) as running,
            aclosing(self._answer(running, request)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _answer(
        self, running: EngineProcess, request: ModelRequest
    ) -> AsyncGenerator[ModelChunk]:
        """Use one connection per answer: closing it stops the engine.

        If the model repeats a call it just made, it is asked again for something else.
        """
        if running.address is None:
            raise running.failure(when="before it was asked")
        try:
            repeated: Sequence[ToolCall] = ()
            for first in (True, False):
                async with self._connect(running.address, request, repeated) as chunks:
                    repeated = ()
                    async for chunk in chunks:
                        if isinstance(chunk, Assistant) and first and repeats_calls(request, chunk):
                            repeated = chunk.calls
                            continue
                        for one in append_missing(request, chunk):
                            yield one
                if not repeated:
                    return
        except Unreachable as error:
            if await _has_exited(running):
                raise running.failure(when="in mid-answer") from error
            raise

    @asynccontextmanager
    async def _connect(
        self, address: EngineAddress, request: ModelRequest, again: Sequence[ToolCall] = ()
    ) -> AsyncGenerator[AsyncIterator[ModelChunk]]:
        endpoint = Endpoint(EndpointSettings(base_url=address.base_url, idle=IDLE_TIMEOUT))
        wire = EmbeddedWire(self._served, request=request, repeated=again)
        model = WireModel(endpoint, self._served, self._images, self._clock, wire, address.token)
        try:
            async with model.stream(request) as chunks:
                yield chunks
        finally:
            await endpoint.client.aclose()


def append_missing(request: ModelRequest, chunk: ModelChunk) -> Sequence[ModelChunk]:
    """Append tool output that the answer does not mention, and notes.

    Notes are added about pages in the question that were not opened, and about things that cannot
    be remembered. The answer itself has been streamed already and cannot be changed.
    """
    if not isinstance(chunk, Assistant) or chunk.calls or chunk.stop is not Stop.END:
        return [chunk]
    turn = turn_state_of(request.messages)
    found = turn.missing_results(chunk.text)
    # Markdown would join separate lines.
    found = fenced(found) if "\n" in found else found
    more = [found, *(PAGE_NOT_OPENED.format(page=one) for one in turn.unopened_pages)]
    if turn.is_not_remembered and all(one.name != "memory" for one in request.tools):
        more.append(NOT_REMEMBERED)
    if not any(more):
        return [chunk]
    rest = "\n\n".join(filter(None, more))
    rest = f"\n\n{rest}" if chunk.text.strip() else rest
    return [TextDelta(rest), structs.replace(chunk, parts=(*chunk.parts, Text(rest)))]


async def _has_exited(running: EngineProcess) -> bool:
    """The connection closes a moment before the process is reaped."""
    with anyio.move_on_after(2.0):
        await running.dead.wait()
    return running.dead.is_set()


MAX_REASON = 200
_MAX_COMMAND = 300
_ESCALATION_OFFER = re.compile(r'call again with escalate="(?P<how>network|outside)"')
_READ_ONLY = re.compile(r"read-only file system", re.IGNORECASE)
"""Commands without permission report that; only the sandbox makes folders read-only."""
_REFUSED = re.compile(r"(?:\w+: )?Not done: (?P<why>.+)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MODEL_INSTRUCTIONS = ("Ask ", "Do not ", "Find ", "Look ", "Say ", "Stop", "Tell ")
"""How sentences begin that are instructions to the model, not to users."""


class _FailedOutput(Struct):
    output: str = ""
    note: str = ""


def answer_without_model(request: ModelRequest, model: str) -> Assistant | None:
    """Return the answer to a result that needs no model, or None."""
    last = request.messages[-1] if request.messages else None
    if not isinstance(last, Result) or not last.failed:
        return None
    step = turn_state_of(request.messages).steps[-1]
    part: Text | ToolCall | None
    if refused := _REFUSED.match(text_of(last)):
        sentences = _SENTENCE_END.split(refused["why"].strip())
        why = takewhile(lambda one: not one.startswith(_MODEL_INSTRUCTIONS), sentences)
        part, stop = Text(f"{_describe_step(step)} was not done: {' '.join(why)}"), Stop.END
    else:
        part, stop = _escalated_call(request, step, text_of(last)), Stop.TOOLS
    if part is None:
        return None
    return Assistant(new_id("msg"), (part,), stop, model=model, provider=EMBEDDED)


def _escalated_call(request: ModelRequest, step: ToolStep, output: str) -> ToolCall | None:
    """Return the same command with a request to run it outside the sandbox."""
    name = step.call.name
    spec = next((one for one in request.tools if one.name == name), None)
    if spec is None or "escalate" not in spec.schema.get("properties", {}):
        return None
    try:
        failed = msgspec.json.decode(output, type=_FailedOutput)
        args = msgspec.json.decode(step.call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    offer = _ESCALATION_OFFER.search(failed.note)
    if offer is None or (offer["how"] == "outside" and not _READ_ONLY.search(failed.output)):
        return None
    lines = failed.output.strip().splitlines()
    why = next((one for one in lines if _READ_ONLY.search(one)), lines[-1] if lines else "")
    reason = one_line(f"The sandbox blocked it: {why}", MAX_REASON)
    wanted = {**args, "escalate": offer["how"], "reason": reason}
    return ToolCall(new_id("call"), name, Raw(msgspec.json.encode(wanted)))


def _describe_step(step: ToolStep) -> str:
    args = call_arguments(step.call)
    argument = args.get("command") or args.get("path")
    if not isinstance(argument, str):
        return step.call.name or "It"
    shown = f"`{one_line(argument, _MAX_COMMAND)}`"
    return shown if "command" in args else f"{step.call.name} {shown}"
