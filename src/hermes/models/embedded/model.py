"""The embedded model as a model of the house: in line for the engine, then asked as any other."""

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
from hermes.models.embedded.catalog import PROVIDER, Weights
from hermes.models.embedded.engine import EngineAddress, EngineProcess
from hermes.models.embedded.folder import ModelFolder
from hermes.models.embedded.small_profile import small_profile
from hermes.models.embedded.turn_state import ToolStep, turn_state_of
from hermes.models.embedded.wire import EmbeddedWire, repeats_calls
from hermes.models.endpoint import Endpoint
from hermes.models.endpoint import EndpointSettings as Address
from hermes.models.images import ImageUrls
from hermes.models.wire_model import ServedModel, WireModel
from hermes.ports.model import ModelChunk, ModelRequest
from hermes.schema.errors import Unreachable
from hermes.schema.events import Notice, TextDelta
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, text_of

PAGE_NOT_OPENED = (
    "Note: {page} was not opened, so nothing here comes from it. To ask about it, paste its text, "
    "or save it as a file in this folder."
)
NOT_REMEMBERED = (
    "Note: later talks will not know this. The model that runs here has no memory of its own; "
    "larger models have: `hermes model` chooses one."
)
IDLE_TIMEOUT = 900.0
"""Seconds of silence: a long text is read for minutes before the first word comes."""


class EngineQueue(Protocol):
    """As much of the engines as a model needs: to be let in, in turn."""

    def is_loaded(self, weights: Weights, place: ModelFolder) -> bool: ...

    def turn(
        self, weights: Weights, place: ModelFolder
    ) -> AbstractAsyncContextManager[EngineProcess]: ...


class EmbeddedModel:
    """Implements `ports.model.Model`. The engine belongs to whoever made it."""

    def __init__(
        self,
        weights: Weights,
        place: ModelFolder,
        engine: Callable[[], EngineQueue],
        images: ImageUrls,
        clock: Clock,
    ) -> None:
        self._weights = weights
        self._place = place
        self._engine = engine
        self._images = images
        self._clock = clock
        self._served = ServedModel(
            model=weights.name,
            provider=PROVIDER,
            window=weights.window,
            profile=small_profile(),
            local=True,
        )

    @property
    def name(self) -> str:
        return self._weights.name

    @property
    def provider(self) -> str:
        return PROVIDER

    @property
    def window(self) -> int:
        return self._weights.window

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelChunk]]:
        async with aclosing(self._stream_in_order(request)) as chunks:
            yield chunks

    async def _stream_in_order(self, request: ModelRequest) -> AsyncGenerator[ModelChunk]:
        """Whoever waits for a gigabyte is told so. What needs no thought needs no engine either."""
        if ours := None if _forces_call(request) else answer_without_model(request, self.name):
            if ours.text:
                yield TextDelta(ours.text)
            yield ours
            return
        engine = self._engine()
        loaded = engine.is_loaded(self._weights, self._place)
        if not loaded and self._place.has(self._weights):
            yield Notice(f"Loading the model {self.name} ...", passing=True)
        async with (
            engine.turn(self._weights, self._place) as running,
            aclosing(self._heard(running, request)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _heard(
        self, running: EngineProcess, request: ModelRequest
    ) -> AsyncGenerator[ModelChunk]:
        """A connection for each answer: closing it is what stops the engine.

        A call that was just made is not made again: it is asked for something else instead.
        """
        if running.ear is None:
            raise running.failure(when="before it was asked")
        try:
            again: Sequence[ToolCall] = ()
            async with self._asked(running.ear, request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Assistant) and repeats_calls(request, chunk):
                        again = chunk.calls
                        continue
                    for one in append_missing(request, chunk):
                        yield one
            if again:
                async with self._asked(running.ear, request, again) as chunks:
                    async for chunk in chunks:
                        for one in append_missing(request, chunk):
                            yield one
        except Unreachable as error:
            if await _has_exited(running):
                raise running.failure(when="in mid-answer") from error
            raise

    @asynccontextmanager
    async def _asked(
        self, ear: EngineAddress, request: ModelRequest, again: Sequence[ToolCall] = ()
    ) -> AsyncGenerator[AsyncIterator[ModelChunk]]:
        endpoint = Endpoint(Address(base_url=ear.base_url, idle=IDLE_TIMEOUT))
        wire = EmbeddedWire(self._served, request, again)
        model = WireModel(endpoint, self._served, self._images, self._clock, wire, ear.token)
        try:
            async with model.stream(request) as chunks:
                yield chunks
        finally:
            await endpoint.aclose()


def append_missing(request: ModelRequest, chunk: ModelChunk) -> Sequence[ModelChunk]:
    """An answer that says nothing of what was found is followed by it.

    So is one to a question about a page that nobody opened: by that, whatever it says of the page;
    and one to a wish to remember something, where nothing can be remembered.
    What was said cannot be taken back: people and programs have read it already.
    """
    if not isinstance(chunk, Assistant) or chunk.calls or chunk.stop is not Stop.END:
        return [chunk]
    turn = turn_state_of(request.messages)
    found = turn.lacking(chunk.text)
    # Lines by themselves would run together where answers are read as Markdown.
    found = fenced(found) if "\n" in found else found
    more = [found, *(PAGE_NOT_OPENED.format(page=one) for one in turn.unopened_pages)]
    if turn.is_not_remembered and all(one.name != "memory" for one in request.tools):
        more.append(NOT_REMEMBERED)
    if not any(more):
        return [chunk]
    rest = "\n\n".join(filter(None, more))
    rest = f"\n\n{rest}" if chunk.text.strip() else rest
    return [TextDelta(rest), structs.replace(chunk, parts=(*chunk.parts, Text(rest)))]


def _forces_call(request: ModelRequest) -> bool:
    """Whether somebody wants a certain call."""
    return request.calling.must or bool(request.calling.name)


async def _has_exited(running: EngineProcess) -> bool:
    """The connection ends a moment before the process is known to be gone."""
    with anyio.move_on_after(2.0):
        await running.dead.wait()
    return running.dead.is_set()


MAX_REASON = 200
_MAX_COMMAND = 300
_ESCALATION_OFFER = re.compile(r'call again with escalate="(?P<how>network|outside)"')
_READ_ONLY = re.compile(r"read-only file system", re.IGNORECASE)
"""Who may not write somewhere hears of permissions; only the wall makes folders read-only."""
_REFUSED = re.compile(r"(?:\w+: )?Not done: (?P<why>.+)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MODEL_INSTRUCTIONS = ("Ask ", "Do not ", "Find ", "Look ", "Say ", "Stop", "Tell ")
"""How sentences begin that say what to do next: they are not for people."""


class _FailedOutput(Struct):
    output: str = ""
    note: str = ""


def answer_without_model(request: ModelRequest, model: str) -> Assistant | None:
    """The answer to a result that needs no thought; None where the model is to be asked."""
    last = request.messages[-1] if request.messages else None
    if not isinstance(last, Result) or not last.failed:
        return None
    step = turn_state_of(request.messages).steps[-1]
    refused = _REFUSED.match(text_of(last))
    if refused:
        words = f"{_describe_step(step)} was not done: {_user_sentences(refused['why'])}"
        return Assistant(new_id("msg"), (Text(words),), Stop.END, model=model, provider=PROVIDER)
    call = _escalated_call(request, step, text_of(last))
    if call is None:
        return None
    return Assistant(new_id("msg"), (call,), Stop.TOOLS, model=model, provider=PROVIDER)


def _escalated_call(request: ModelRequest, step: ToolStep, told: str) -> ToolCall | None:
    """The same command again, as whoever asks for leave to go through the wall calls it."""
    name = step.call.name
    spec = next((one for one in request.tools if one.name == name), None)
    if spec is None or "escalate" not in spec.schema.get("properties", {}):
        return None
    try:
        failed = msgspec.json.decode(told, type=_FailedOutput)
        args = msgspec.json.decode(step.call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    offer = _ESCALATION_OFFER.search(failed.note)
    if offer is None or (offer["how"] == "outside" and not _READ_ONLY.search(failed.output)):
        return None
    lines = failed.output.strip().splitlines()
    why = next((one for one in lines if _READ_ONLY.search(one)), lines[-1] if lines else "")
    reason = one_line(f"The sandbox held it back: {why}", MAX_REASON)
    wanted = {**args, "escalate": offer["how"], "reason": reason}
    return ToolCall(new_id("call"), name, Raw(msgspec.json.encode(wanted)))


def _user_sentences(why: str) -> str:
    sentences = _SENTENCE_END.split(why.strip())
    return " ".join(takewhile(lambda one: not one.startswith(_MODEL_INSTRUCTIONS), sentences))


def _describe_step(step: ToolStep) -> str:
    try:
        args = msgspec.json.decode(step.call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        args = {}
    given = args.get("command") or args.get("path")
    if not isinstance(given, str):
        return step.call.name or "It"
    shown = f"`{one_line(given, _MAX_COMMAND)}`"
    return shown if "command" in args else f"{step.call.name} {shown}"
