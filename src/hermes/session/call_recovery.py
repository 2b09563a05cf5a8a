"""After a crash: calls that never got a result are told as interrupted, never run again.

Only one that has done nothing but wait for a person is left to be made, with those behind it.
"""

from collections.abc import Collection, Sequence

from hermes.agent.history import open_calls, unanswered_calls
from hermes.agent.tool_calls import interrupted_result
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.ports.approvals import RecoveredQuestions
from hermes.ports.store import AppendMessage, Fence, SettleIntent, Store, Write
from hermes.schema.messages import Message, Result, Text
from hermes.schema.tools import Effect

NOTHING_RECOVERED = RecoveredQuestions()


async def close_lost_calls(
    store: Store,
    clock: Clock,
    fence: Fence,
    history: Sequence[Message],
    left: RecoveredQuestions = NOTHING_RECOVERED,
    *,
    begun_only: bool = False,
) -> list[Message]:
    """The history with an end for every call, which is durable when this returns.

    Calls that go on have none yet: `open_calls` finds them. `begun_only`: nor have those that did
    nothing here, which may have been handed to somebody who still brings what came of them.
    """
    session, lost = fence.session, unanswered_calls(history)
    if not lost:
        return list(history)
    begun = {intent.call: intent for intent in await store.open_intents(session)}
    goes_on = _resumable_calls(history, left, begun)
    writes: list[Write] = []
    results: list[Message] = []
    if begun_only:
        goes_on |= {call for call, _ in lost if call not in begun and call not in left.told}
    for call in [call for call, _ in lost if call not in goes_on]:
        # What has no intent was a reader or had not begun: nothing was changed either way.
        intent = begun.get(call)
        effect = intent.effect if intent else Effect.READ
        result = _failed_result(left.told[call], call) if call in left.told else None
        result = result or interrupted_result(call, effect, started=True)
        results.append(result)
        run = intent.run if intent else ""
        writes += [AppendMessage(session, run, result, clock.now()), SettleIntent(session, call)]
    if writes:
        failpoint("recovery.before_close")
        await store.commit(*writes, fence=fence)
        failpoint("recovery.after_close")
    return [*history, *results]


def _resumable_calls(
    history: Sequence[Message], left: RecoveredQuestions, begun: Collection[str]
) -> set[str]:
    """Those of the last answer from the first on that waits, unless they have begun."""
    calls = [call.id for call in open_calls(history)]
    first = next((place for place, call in enumerate(calls) if call in left.waiting), len(calls))
    return {call for call in calls[first:] if call in left.waiting or call not in begun}


def _failed_result(text: str, call: str) -> Result:
    return Result(new_id("msg"), call, (Text(text),), failed=True)
