"""One person's talk with the agent, as a surface sees it: say, retry, undo, start anew, resume."""

from collections.abc import Sequence

import anyio
from msgspec import Struct, structs

from hermes.agent.plan import Steer, no_steering
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id, new_session_id
from hermes.ports.sink import Emit
from hermes.ports.store import Archive, ChangeSession, Hide, Store
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Assistant, Media, Text, Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUse, Session, SessionChange, Stored
from hermes.session.runner import Runner, Turn


class Origin(Struct, frozen=True, kw_only=True):
    """What a new session of this conversation is given."""

    source: str = "cli"
    cwd: str = ""
    principal: str = OWNER
    model: str = ""
    provider: str = ""


class Conversation:
    """Holds the current session. It is written to disk with its first message, not before."""

    def __init__(self, store: Store, clock: Clock, runner: Runner, origin: Origin) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._origin = origin
        self._archive: Archive = store.seen_by(origin.principal)
        self._scope: anyio.CancelScope | None = None
        self._new = True
        self.session = self._fresh()

    @property
    def started(self) -> bool:
        return not self._new

    async def say(
        self, parts: Sequence[Text | Media], listen: Emit, steer: Steer = no_steering
    ) -> Outcome:
        """One turn. It can be ended from outside with `interrupt`."""
        turn = Turn(
            session=self.session,
            asked=User(new_id("msg"), tuple(parts), Trust.OWNER),
            listen=listen,
            new=self._new,
            steer=steer,
        )
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                return await self._runner.run(turn)
            finally:
                self._scope = None
                with anyio.CancelScope(shield=True):
                    await self._reload()
        return Outcome.CANCELLED

    def interrupt(self) -> bool:
        """End the running turn; False when there is none."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    def start_new(self) -> None:
        self._new = True
        self.session = self._fresh()

    async def resume(self, name: str) -> Session:
        self.session = await self._archive.find(name)
        self._new = False
        return self.session

    async def resume_latest(self, source: str | None = None) -> Session:
        latest = await self._archive.latest(source)
        if latest is None:
            raise NotFound("There is no session to continue yet.", hint="Just start talking.")
        return await self.resume(latest.id)

    async def messages(self) -> Sequence[Stored]:
        return [] if self._new else await self._archive.messages(self.session.id)

    async def usage(self) -> Sequence[ModelUse]:
        return [] if self._new else await self._archive.usage(self.session.id)

    async def undo(self, turns: int = 1) -> list[User]:
        """Take back the last turns; returns what was asked in them, oldest first."""
        asked = [row for row in await self.messages() if _is_question(row)]
        taken = asked[-turns:] if turns > 0 else []
        if not taken:
            raise UsageError("There is nothing to take back.")
        await self._store.commit(Hide(self.session.id, taken[0].seq))
        return [row.message for row in taken if isinstance(row.message, User)]

    async def retry(self, listen: Emit, steer: Steer = no_steering) -> Outcome:
        """Take the last question back and ask it again."""
        (question,) = await self.undo(1)
        return await self.say(question.parts, listen, steer)

    async def change(self, change: SessionChange) -> None:
        """Set fields of the session: at once when it is on disk, else with its first message."""
        if self._new:
            wanted = {name: value for name, value in structs.asdict(change).items() if value}
            self.session = structs.replace(self.session, **wanted)
            return
        await self._store.commit(ChangeSession(self.session.id, change))
        await self._reload()

    async def _reload(self) -> None:
        try:
            self.session = await self._archive.get(self.session.id)
        except NotFound:
            return
        self._new = False

    def _fresh(self) -> Session:
        now = self._clock.now()
        origin = self._origin
        return Session(
            id=new_session_id(now),
            started_at=now,
            source=origin.source,
            principal=origin.principal,
            cwd=origin.cwd,
            model=origin.model,
            provider=origin.provider,
        )


def _is_question(row: Stored) -> bool:
    message = row.message
    return isinstance(message, User) and message.trust is not Trust.HOUSE


def recap(rows: Sequence[Stored], exchanges: int) -> list[tuple[str, str]]:
    """The last questions and answers as (who, words), for somebody who comes back."""
    spoken = [
        ("you" if isinstance(row.message, User) else "hermes", text_of(row.message))
        for row in rows
        if _is_question(row) or isinstance(row.message, Assistant)
    ]
    return [(who, words) for who, words in spoken if words.strip()][-2 * exchanges :]
