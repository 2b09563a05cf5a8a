"""Have codex tell one of its threads in short: a turn of its own, in which nobody is asked."""

import logging

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from hermes.ports.runtime import Shortened
from hermes.runtimes.codex import names
from hermes.runtimes.codex.errors import Told, died, failed, silent
from hermes.runtimes.codex.hearing import Hearing
from hermes.runtimes.codex.kept import Filled
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import Patience
from hermes.runtimes.codex.threads import Opened
from hermes.runtimes.codex.wire import Incoming, Json
from hermes.schema.errors import ModelError

log = logging.getLogger(__name__)


class Compacting:
    """`turn` and `filled` tell afterwards where the thread stands.

    `retire` says that its process is better not used again.
    """

    def __init__(self, server: AppServer, thread: Opened, patience: Patience) -> None:
        self._server = server
        self._thread = thread
        self._patience = patience
        self._hearing = Hearing(thread.model, thread.provider)
        self._hearing.spending.total = server.spent.get(thread.id)
        self._before = thread.filled.tokens
        self.retire = False

    @property
    def turn(self) -> str:
        return self._hearing.turn

    @property
    def filled(self) -> Filled:
        return self._hearing.spending.filled

    async def run(self) -> Shortened:
        """Raises `ModelError`; then the thread is as it was."""
        hearing = self._hearing
        params: Json = {"threadId": self._thread.id}
        with self._server.listening(self._thread.id) as incoming:
            try:
                await self._server.call(names.THREAD_COMPACT, params, self._patience.turn)
                with anyio.move_on_after(self._patience.deadline):
                    await self._follow(incoming)
            finally:
                if hearing.end is None:
                    await self._give_up()
        if hearing.end is None:
            raise silent(names.THREAD_COMPACT, self._patience.deadline)
        if hearing.end.status != "completed":
            raise failed(hearing.end.error or hearing.trouble or Told(), await self._server.said())
        if hearing.spending.total is not None:
            self._server.spent[self._thread.id] = hearing.spending.total
        return Shortened(
            before=self._before,
            after=self.filled.tokens,
            usage=hearing.spending.take(),
            model=self._thread.model,
            provider=self._thread.provider,
        )

    async def _follow(self, incoming: MemoryObjectReceiveStream[Incoming]) -> None:
        while self._hearing.end is None:
            try:
                message = await incoming.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self.retire = True
                raise died(await self._server.said()) from None
            if message.id is not None:
                await self._server.refuse(message.id, "the thread is being shortened")
                continue
            self._hearing.feed(message)
            if message.method == names.USAGE_UPDATED and not self._before:
                self._before = self.filled.tokens

    async def _give_up(self) -> None:
        """The next turn shall not meet it half done."""
        if self._server.dead:
            return
        if not self.turn:
            self.retire = True
            return
        params: Json = {"threadId": self._thread.id, "turnId": self.turn}
        with anyio.CancelScope(shield=True):
            try:
                await self._server.call(names.TURN_INTERRUPT, params, self._patience.interrupt)
            except ModelError as error:
                log.warning("codex did not stop shortening a thread: %s", error)
                self.retire = True


def said(done: Shortened) -> str:
    """One line for people."""
    return (
        f"Codex has shortened what it remembers of this conversation: about {done.before:,} tokens "
        f"became {done.after:,}."
    )
