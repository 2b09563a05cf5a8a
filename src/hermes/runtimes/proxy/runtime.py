"""Ask another gateway for a turn, and pass its words on as they come."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.kit.sse import SseTooLong
from hermes.ports.runtime import Ending, Errand, Tell
from hermes.runtimes.proxy.errors import BODY, broken, cut_off, refused, told
from hermes.runtimes.proxy.wire import (
    ONE_EVENT,
    Hearing,
    NotAStream,
    Question,
    Told,
    TooLong,
    far_session,
    question_of,
)
from hermes.schema.errors import ModelError, PolicyRefused
from hermes.schema.events import Outcome, Said, TextDelta
from hermes.schema.messages import Stop

PATH = "/v1/chat/completions"
_TROUBLE = (aiohttp.ClientError, TimeoutError, OSError)


class Far(Struct, frozen=True, kw_only=True):
    """Where the other gateway is. A turn there may take as long as it likes.

    `read` bounds only its silence, `connect` the wait for a connection, and `grace` the wait
    for what may follow a complete answer, or for a run to be stopped. Where the turn is a run:
    a line without a byte for `alive` seconds is a dead one, a link may be down for `patience`,
    and the turn as a whole may take `total`, if that is not 0.
    """

    url: str
    key: str = ""
    connect: float = 30.0
    read: float = 1800.0
    grace: float = 5.0
    alive: float = 90.0
    patience: float = 120.0
    total: float = 0.0
    one_event: int = ONE_EVENT


class ProxyRuntime:
    """Implements `ports.runtime.Runtime`. Each turn has a connection of its own."""

    name = "The far gateway"

    def __init__(self, far: Far) -> None:
        self._far = far

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        hearing = Hearing(self._far.one_event)
        try:
            await self._listen(errand, hearing, tell)
        except BaseException:
            if hearing.text.strip():
                await tell(Said(hearing.partial()))
            raise
        answer = hearing.answer()
        await tell(Said(answer))
        return _ending(answer.stop)

    async def close(self) -> None:
        """Nothing stays open between turns."""

    async def _listen(self, errand: Errand, hearing: Hearing, tell: Tell) -> None:
        """Until the far side says that this is all. Raises `ModelError` when it does not."""
        far = self._far
        question = question_of(errand)
        async with self._asked(question, self._headers(errand)) as response:
            if response.status != 200:
                raise refused(response.status, await _beginning(response, far.connect), far.key)
            async with aclosing(_pieces(response)) as pieces:
                try:
                    while not hearing.done and (piece := await self._next(pieces, hearing)):
                        if words := hearing.feed(piece):
                            await tell(TextDelta(words))
                except _Lost as error:
                    if not hearing.whole:
                        raise broken(error.cause, far.read, far.key) from error
                except Told as error:
                    raise told(error.body, far.key) from error
                except (NotAStream, SseTooLong, TooLong) as error:
                    raise cut_off(f"the far gateway sent a broken stream: {error}") from error
        _check(hearing)

    async def _next(self, pieces: AsyncGenerator[bytes], hearing: Hearing) -> bytes:
        """Empty at the end; nothing is waited for much longer than the answer's own."""
        with anyio.move_on_after(self._far.grace if hearing.whole else None):
            return await anext(pieces, b"")
        return b""

    @asynccontextmanager
    async def _asked(
        self, question: Question, headers: dict[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        far = self._far
        patience = aiohttp.ClientTimeout(total=None, sock_connect=far.connect, sock_read=far.read)
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(aiohttp.ClientSession(timeout=patience))
                asking = session.post(
                    far.url + PATH,
                    json=msgspec.to_builtins(question),
                    headers=headers,
                    allow_redirects=False,
                )
                response = await stack.enter_async_context(asking)
            except (*_TROUBLE, ValueError) as error:
                raise broken(error, far.read, far.key) from error
            yield response

    def _headers(self, errand: Errand) -> dict[str, str]:
        # Without a key for asking again: with one, hanging up would not stop one of ours.
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "X-Hermes-Session-Id": far_session(errand.scope),
        }
        if self._far.key:
            headers["Authorization"] = f"Bearer {self._far.key}"
        return headers


def _check(hearing: Hearing) -> None:
    if not hearing.whole:
        heard = "after a part of the answer" if hearing.text else "before an answer"
        raise cut_off(f"the stream of the far gateway ended {heard}")
    if hearing.gave_up:
        raise cut_off("the far gateway gave up in mid-answer")
    if not hearing.text.strip():
        raise ModelError("⚠️ Proxy error: the answer is empty.", hint="Ask again.")


def _ending(stop: Stop) -> Ending:
    if stop is Stop.REFUSED:
        error = PolicyRefused("The far gateway declined to answer.", hint="Put it in other words.")
        return Ending(Outcome.FAILED, error.sentence, error.code)
    if stop is Stop.LENGTH:
        return Ending(Outcome.EXHAUSTED, "The answer ends here: it reached its limit.", "truncated")
    return Ending(Outcome.DONE)


class _Lost(Exception):
    """The connection broke while the answer was read."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    except _TROUBLE as error:
        raise _Lost(error) from error


async def _beginning(response: aiohttp.ClientResponse, seconds: float) -> bytes:
    """As much of an error's body as comes within these bounds, however it ends."""
    body = b""
    with anyio.move_on_after(seconds), suppress(_Lost):
        async with aclosing(_pieces(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= BODY:
                    break
    return body[:BODY]
