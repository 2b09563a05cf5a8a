"""After a crash: calls that never got a result are told as interrupted, never run again."""

from collections.abc import Sequence

from hermes.agent.calls import interrupted
from hermes.agent.repair import unanswered_calls
from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.ports.store import Append, Settle, Store, Write
from hermes.schema.messages import Message
from hermes.schema.tools import Effect


async def close_lost_calls(
    store: Store, clock: Clock, session: str, history: Sequence[Message]
) -> list[Message]:
    """The history with an end for every call, which is durable when this returns."""
    lost = unanswered_calls(history)
    if not lost:
        return list(history)
    begun = {intent.call: intent for intent in await store.open_intents(session)}
    writes: list[Write] = []
    results: list[Message] = []
    for call, _ in lost:
        # What has no intent was a reader or had not begun: nothing was changed either way.
        intent = begun.get(call)
        effect = intent.effect if intent else Effect.READ
        result = interrupted(call, effect, started=True)
        results.append(result)
        run = intent.run if intent else ""
        writes += [Append(session, run, result, clock.now()), Settle(session, call)]
    passing("recovery.before_close")
    await store.commit(*writes)
    passing("recovery.after_close")
    return [*history, *results]
