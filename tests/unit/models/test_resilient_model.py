from collections.abc import Callable, Sequence

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.kit.retry import Backoff
from hermes.models.key_pool import KeyRing
from hermes.models.resilient_model import KeyedModel, ResilientModel, RetryPolicy
from hermes.ports.model import ModelRequest
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
    Unreachable,
)
from hermes.schema.events import Notice, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, Trust, User
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import StreamRecord, read_stream
from hermes.testing.scripted_model import Pause, ScriptedModel, ScriptStep, answer_script
from support.turns import SCOPE, FakeTool, assistant_message, run_scripted_turn, tool_call

OK = answer_script("fine")


def request_for(run: str = "r1", *after: Message) -> ModelRequest:
    return ModelRequest("", [User("u", (Text("hi"),)), *after], run=run)


def fail(error: type[ModelError], wait: float | None = None, hint: str = "") -> list[ScriptStep]:
    return [error("try again", wait=wait, hint=hint)]


def model(name: str, *scripts: Sequence[ScriptStep]) -> ScriptedModel:
    return ScriptedModel(*scripts, name=name, provider=f"{name}-co")


def chain(clock: FakeClock, *models: ScriptedModel, **policy: float) -> ResilientModel:
    limits = RetryPolicy(backoff=Backoff(jitter=0.0), **policy)  # type: ignore[arg-type]
    return ResilientModel([KeyedModel(one) for one in models], clock, limits)


def notices(record: StreamRecord) -> list[str]:
    return [chunk.text for chunk in record.chunks if isinstance(chunk, Notice)]


class Keyed:
    """A provider where every key has its own script."""

    def __init__(
        self, clock: FakeClock, *models: ScriptedModel, **scripts: Sequence[Sequence[ScriptStep]]
    ) -> None:
        self.by_key = {key: model("keyed", *script) for key, script in scripts.items()}
        first = next(iter(self.by_key.values()))
        ring = KeyRing(tuple(scripts))
        routes = [KeyedModel(first, ring, self.by_key), *map(KeyedModel, models)]
        self.model = ResilientModel(routes, clock, RetryPolicy(backoff=Backoff(jitter=0.0)))

    def requests(self) -> dict[str, int]:
        return {key: len(one.requests) for key, one in self.by_key.items()}


async def test_good_answer_is_unchanged():
    clock, one = FakeClock(auto=True), model("one", OK)
    record = await read_stream(chain(clock, one), request_for())
    assert record.chunks == OK
    assert clock.slept == []


@pytest.mark.parametrize("error", [RateLimited, Overloaded, Unreachable])
async def test_temporary_errors_are_retried_with_backoff(error: type[ModelError]):
    clock, one = FakeClock(auto=True), model("one", fail(error), fail(error), OK)
    record = await read_stream(chain(clock, one), request_for())
    assert record.text == "fine"
    assert clock.slept == [2.0, 4.0]
    assert [text.partition(", ")[2] for text in notices(record)] == [
        "trying again in 2 s (2 of 3)",
        "trying again in 4 s (3 of 3)",
    ]


async def test_provider_retry_delay_is_used():
    clock, one = FakeClock(auto=True), model("one", fail(RateLimited, wait=17.5), OK)
    record = await read_stream(chain(clock, one), request_for())
    assert clock.slept == [17.5]
    assert notices(record) == ["one-co: rate limited, trying again in 18 s (2 of 3)"]


async def test_long_retry_delay_is_not_waited_for():
    clock, one = FakeClock(auto=True), model("one", fail(RateLimited, wait=3600.0), OK)
    with pytest.raises(RateLimited, match="try again") as caught:
        await read_stream(chain(clock, one), request_for())
    assert clock.slept == []
    assert caught.value.hint.startswith("Retry after 60 minutes. ")
    assert caught.value.hint.endswith("hermes model")


async def test_final_error_has_attempts_and_a_hint():
    clock, one = FakeClock(auto=True), model("one", *[fail(Overloaded)] * 3)
    with pytest.raises(Overloaded) as caught:
        await read_stream(chain(clock, one), request_for())
    assert str(caught.value) == "try again (gave up after 3 attempts)"
    assert "hermes model" in caught.value.hint
    assert len(one.requests) == 3


async def test_deltas_of_a_broken_answer_are_reset():
    broken: list[ScriptStep] = [TextDelta("half"), Unreachable("gone")]
    clock, one = FakeClock(auto=True), model("one", broken, fail(Overloaded), OK)
    record = await read_stream(chain(clock, one), request_for())
    assert [type(chunk) for chunk in record.chunks] == [
        TextDelta,
        StreamReset,
        Notice,
        Notice,
        TextDelta,
        Assistant,
    ]
    assert record.text == record.answer.text == "fine"


@pytest.mark.parametrize("error", [ContextTooLong, PolicyRefused, BadRequest])
async def test_permanent_errors_are_not_retried(error: type[ModelError]):
    clock = FakeClock(auto=True)
    one, two = model("one", fail(error, hint="do this")), model("two", OK)
    with pytest.raises(error) as caught:
        await read_stream(chain(clock, one, two), request_for())
    assert (str(caught.value), caught.value.hint) == ("try again", "do this")
    assert two.requests == []


@pytest.mark.parametrize("error", [Unauthorized, OutOfCredit, ModelNotFound])
async def test_unretryable_errors_go_to_the_fallback(error: type[ModelError]):
    clock = FakeClock(auto=True)
    one, two = model("one", fail(error)), model("two", OK)
    record = await read_stream(chain(clock, one, two), request_for())
    assert record.text == "fine"
    assert clock.slept == []
    assert len(notices(record)) == 1
    assert notices(record)[0].endswith("switching to two at two-co")


async def test_single_refusal_is_raised_unchanged():
    clock, one = FakeClock(auto=True), model("one", fail(Unauthorized, hint="set the key"))
    with pytest.raises(Unauthorized) as caught:
        await read_stream(chain(clock, one), request_for())
    assert (str(caught.value), caught.value.hint) == ("try again", "set the key")


async def test_fallbacks_are_tried_in_order_and_named_in_the_error():
    clock = FakeClock(auto=True)
    models = [model(name, *[fail(Overloaded)] * 3) for name in ("one", "two")]
    three = model("three", fail(Unauthorized))
    with pytest.raises(Unauthorized) as caught:
        await read_stream(chain(clock, *models, three), request_for())
    assert "7 attempts with one at one-co, two at two-co, three at three-co" in str(caught.value)


async def test_attempts_are_bounded_over_the_whole_chain():
    clock = FakeClock(auto=True)
    models = [model(f"m{n}", *[fail(Overloaded)] * 3) for n in range(9)]
    with pytest.raises(Overloaded, match="8 attempts"):
        await read_stream(chain(clock, *models), request_for())
    assert sum(len(one.requests) for one in models) == 8


async def test_run_stays_with_the_model_that_answered():
    clock = FakeClock(auto=True)
    one, two = model("one", fail(OutOfCredit), OK), model("two", OK, OK, OK, OK)
    resilient = chain(clock, one, two)
    await read_stream(resilient, request_for("u1"))
    await clock.sleep(3600)
    call, result = Assistant("a", (), Stop.TOOLS), Result("r", "c", (Text("x"),))
    steered = User("n", (Text("rather so"),), Trust.OWNER)
    await read_stream(resilient, request_for("u1", call, result))
    await read_stream(resilient, request_for("u1", call, result, steered))
    assert (len(one.requests), len(two.requests)) == (1, 3)
    await read_stream(resilient, request_for("u2"))
    assert (len(one.requests), len(two.requests)) == (2, 3)


async def test_requests_of_a_turn_have_its_run_id():
    asking, _ = await run_scripted_turn(
        [assistant_message(tool_call("look"))], OK, tools=[FakeTool("look")]
    )
    assert [request.run for request in asking.requests] == [SCOPE.run, SCOPE.run]


async def test_requests_without_a_run_are_independent():
    clock = FakeClock(auto=True)
    one, two = model("one", fail(OutOfCredit), OK), model("two", OK)
    resilient = chain(clock, one, two)
    await read_stream(resilient, request_for(""))
    await clock.sleep(3600)
    await read_stream(resilient, request_for(""))
    assert (len(one.requests), len(two.requests)) == (2, 1)


async def test_preferred_model_returns_after_its_cooldown():
    clock = FakeClock(auto=True)
    one, two = model("one", fail(OutOfCredit), OK), model("two", OK, OK)
    resilient = chain(clock, one, two)
    await read_stream(resilient, request_for("u1"))
    await clock.sleep(59)
    await read_stream(resilient, request_for("u2"))
    assert len(one.requests) == 1
    await clock.sleep(2)
    await read_stream(resilient, request_for("u3"))
    assert len(one.requests) == 2


async def test_model_on_cooldown_is_the_last_resort():
    clock = FakeClock(auto=True)
    one, two = model("one", fail(OutOfCredit), OK), model("two", OK, fail(ModelNotFound))
    resilient = chain(clock, one, two)
    await read_stream(resilient, request_for("u1"))
    assert (await read_stream(resilient, request_for("u2"))).text == "fine"
    assert len(one.requests) == 2


@pytest.mark.parametrize("error", [Unauthorized, OutOfCredit, RateLimited])
async def test_other_key_is_tried_without_a_wait(error: type[ModelError]):
    clock = FakeClock(auto=True)
    keyed = Keyed(clock, a=[fail(error)], b=[OK])
    record = await read_stream(keyed.model, request_for())
    assert record.text == "fine"
    assert clock.slept == []
    assert notices(record)[0].endswith("trying another key")


async def test_refused_key_is_used_again_after_its_cooldown():
    clock = FakeClock(auto=True)
    keyed = Keyed(clock, a=[fail(Unauthorized), OK], b=[OK, OK])
    await read_stream(keyed.model, request_for("u1"))
    await clock.sleep(3000)
    await read_stream(keyed.model, request_for("u2"))
    assert keyed.requests() == {"a": 1, "b": 2}
    await clock.sleep(1000)
    await read_stream(keyed.model, request_for("u3"))
    assert keyed.requests() == {"a": 2, "b": 2}


async def test_rate_limit_of_all_keys_waits_then_falls_back():
    clock = FakeClock(auto=True)
    two = model("two", OK)
    keyed = Keyed(clock, two, a=[fail(RateLimited)] * 3, b=[fail(RateLimited)] * 3)
    record = await read_stream(keyed.model, request_for())
    assert record.text == "fine"
    assert len(two.requests) == 1
    assert clock.slept == [2.0, 4.0]


async def test_fallback_error_does_not_affect_other_keys():
    clock = FakeClock(auto=True)
    two = model("two", fail(Unauthorized))
    keyed = Keyed(clock, two, a=[fail(ModelNotFound), OK])
    with pytest.raises(Unauthorized):
        await read_stream(keyed.model, request_for("u1"))
    await clock.sleep(61)
    assert (await read_stream(keyed.model, request_for("u2"))).text == "fine"


async def test_waits_can_be_cancelled():
    clock, one = FakeClock(), model("one", fail(Overloaded), OK)
    resilient = chain(clock, one)
    record = StreamRecord()
    async with anyio.create_task_group() as group:
        group.start_soon(read_stream, resilient, request_for(), record)
        await clock.advance(1.9)
        assert clock.sleepers == 1
        group.cancel_scope.cancel()
    assert clock.sleepers == 0
    assert len(one.requests) == 1


async def test_notice_shows_the_actual_wait():
    clock, one = FakeClock(), model("one", fail(Overloaded), OK)
    record = StreamRecord()
    async with anyio.create_task_group() as group:
        group.start_soon(read_stream, chain(clock, one), request_for(), record)
        await clock.advance(1.9)
        assert len(one.requests) == 1
        await clock.advance(0.1)
    assert record.text == "fine"


async def test_closing_early_closes_the_model_stream():
    one = model("one", [TextDelta("a"), Pause.FOREVER])
    async with chain(FakeClock(), one).stream(request_for()) as chunks:
        async for _ in chunks:
            break
    assert one.abandoned_streams == 1


async def test_stream_without_an_answer_is_an_error():
    clock = FakeClock(auto=True)
    one = model("one", [TextDelta("a")], OK)
    record = await read_stream(chain(clock, one), request_for())
    assert record.text == "fine"


async def test_requests_keep_the_minimum_gap():
    clock, one = FakeClock(auto=True), model("one", OK, OK, OK)
    resilient = ResilientModel([KeyedModel(one, min_interval=5.0)], clock)
    for turn in ("u1", "u2"):
        await read_stream(resilient, request_for(turn))
    assert clock.slept == [5.0]
    await clock.sleep(60)
    await read_stream(resilient, request_for("u3"))
    assert clock.slept == [5.0, 60]


async def test_name_is_the_first_models_and_close_is_forwarded():
    closed: list[str] = []

    async def close() -> None:
        closed.append("yes")

    one, two = model("one"), model("two")
    resilient = ResilientModel([KeyedModel(one), KeyedModel(two)], FakeClock(), close=close)
    assert (resilient.name, resilient.provider, resilient.window) == ("one", "one-co", 200_000)
    await resilient.aclose()
    assert closed == ["yes"]
    with pytest.raises(ValueError, match="at least one"):
        ResilientModel([], FakeClock())


ERRORS = st.sampled_from(
    [
        RateLimited,
        Overloaded,
        Unreachable,
        Unauthorized,
        OutOfCredit,
        ModelNotFound,
        BadRequest,
        None,
    ]
)
FAILURES = st.lists(st.tuples(ERRORS, st.booleans(), st.none() | st.floats(0, 200)), max_size=30)


def random_failures(
    failures: list[tuple[type[ModelError] | None, bool, float | None]],
) -> Callable[[], list[ScriptStep]]:
    left = iter(failures)

    def step() -> list[ScriptStep]:
        error, speaks, wait = next(left, (None, False, None))
        steps: list[ScriptStep] = [TextDelta("half")] if speaks else []
        return [*steps, error("failures", wait=wait)] if error else OK

    return step


@given(FAILURES, st.integers(1, 4), st.integers(1, 3))
@settings(deadline=None)
def test_any_failures_end_within_bounds(failures, models: int, keys: int):
    """One answer or one error, bounded attempts, and deltas that add up."""
    clock, step = FakeClock(auto=True), random_failures(failures)
    players = [ScriptedModel(*[lambda _: step()] * 50, name=f"m{n}") for n in range(models)]
    routes = [KeyedModel(one, KeyRing([f"k{n}" for n in range(keys)])) for one in players]
    record = StreamRecord()

    async def run() -> None:
        try:
            await read_stream(ResilientModel(routes, clock), request_for(), record)
        except ModelError as error:
            assert error.code  # noqa: PT017
            assert not any(isinstance(chunk, Assistant) for chunk in record.chunks)
        else:
            assert record.text == record.answer.text == "fine"

    anyio.run(run)
    assert sum(len(one.requests) for one in players) <= RetryPolicy().attempts
    assert all(wait <= RetryPolicy().max_wait for wait in clock.slept)


async def test_replaced_model_is_closed_when_idle():
    closed = 0

    async def close() -> None:
        nonlocal closed
        closed += 1

    one = model("a", answer_script("one"), answer_script("two"), answer_script("three"))
    chain = ResilientModel([KeyedModel(one)], FakeClock(), close=close)
    await read_stream(chain)
    assert closed == 0
    async with chain.stream(request_for()) as chunks:
        await chain.close_when_idle()
        assert [chunk async for chunk in chunks]
        assert closed == 0
    assert closed == 1
    await read_stream(chain)
    assert closed == 2
