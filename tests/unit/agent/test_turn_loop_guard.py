"""Agents that repeat themselves are stopped; agents that wait, retry or work are not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, cycle, islice

from msgspec import Struct

from hermes.agent.loop_guard import GuardLimits, LoopGuard
from hermes.schema.events import Outcome
from hermes.schema.messages import Media, Result, Text, text_of
from hermes.schema.tools import Effect
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.cases import cases
from support.turns import FakeTool, assistant_message, run_scripted_turn, tool_call

SOON = 8
"""Number of steps within which a loop must be detected."""


class Act(Struct, frozen=True):
    """One call and its result."""

    tool: str
    args: dict[str, object]
    effect: Effect
    text: str
    failed: bool = False
    took: float = 0.0
    picture: str = ""


Steps = Iterable[Sequence[Act]]


def read(path: object, text: str = "contents", *, failed: bool = False, took: float = 0.0) -> Act:
    return Act("read", {"path": path}, Effect.READ, text, failed, took)


def find(query: object, text: str = "no matches", *, failed: bool = False) -> Act:
    return Act("find", {"query": query}, Effect.READ, text, failed)


def write(path: object, what: object = "x", text: str = "written", *, failed: bool = False) -> Act:
    return Act("write", {"path": path, "content": what}, Effect.WRITE, text, failed)


def run(command: object, text: str = "", *, failed: bool = False, took: float = 0.0) -> Act:
    return Act("run", {"command": command}, Effect.OUTSIDE, text, failed, took)


def look(picture: str, text: str = "a screen") -> Act:
    return Act("look", {}, Effect.READ, text, picture=picture)


def sleep(seconds: float) -> Act:
    return run(f"sleep {seconds}", took=seconds)


def again(*acts: Act) -> Iterator[list[Act]]:
    return cycle([act] for act in acts)


def each(make: Callable[[int], Act]) -> Iterator[list[Act]]:
    return ([make(n)] for n in count())


CIRCLES: dict[str, Steps] = {
    "one file": again(read("a")),
    "two files": again(read("a"), read("b")),
    "three files": again(read("a"), read("b"), read("c")),
    "one search": again(find("x")),
    "two searches": again(find("x"), find("y")),
    "a file and a search": again(read("a"), find("x")),
    "files side by side": cycle([[read("a"), read("b"), read("c")]]),
    "files in other order": cycle([[read("a"), read("b")], [read("b"), read("a")]]),
    "the same picture": again(look("0" * 64)),
    "an answer that flips": again(read("a", "yes"), read("a", "no")),
    "a failing read": again(read("a", "no such file", failed=True)),
    "a failing command": again(run("make", "error 2", failed=True)),
    "a failing command with the time in it": each(lambda n: run("make", f"{n}: no", failed=True)),
    "two failing commands": again(run("a", "no", failed=True), run("b", "no", failed=True)),
    "three failing commands": again(*(run(n, "no", failed=True) for n in "abc")),
    "two failing tools": again(run("a", "no", failed=True), read("a", "no", failed=True)),
    "three failing tools": again(
        run("a", "no", failed=True), read("a", "no", failed=True), find("a", "no", failed=True)
    ),
    "failing with ever new arguments": each(lambda n: read(n, f"no file {n}", failed=True)),
    "one unknown tool": each(lambda n: Act("raed", {"n": n}, Effect.READ, "unknown", True)),
    "ever new unknown tools": each(lambda n: Act(f"t{n}", {}, Effect.READ, f"no t{n}", True)),
    "broken arguments": again(Act("write", {}, Effect.WRITE, "not JSON", True)),
    "a call that is cut off": each(lambda n: write("a", f"long {n}", "cut off", failed=True)),
    "a patch that does not apply": again(write("a", "patch", "no match", failed=True)),
    "timeouts": again(run("serve", "took longer than 300 s", failed=True, took=300.0)),
    "writing the same": again(write("a")),
    "writing two things": again(write("a"), write("b")),
    "writing and reading": again(write("a"), read("a")),
    "there and back and look": again(write("a", "1"), write("a", "2"), read("a", "2")),
    "writing and failing": again(write("a"), run("test", "1 failed", failed=True)),
    "reading and failing": again(read("a"), run("test", "1 failed", failed=True)),
    "listing": again(run("ls", "a b c")),
    "listing beside reading": cycle([[run("ls", "a b c"), read("a")]]),
    "failing side by side": cycle([[read("a", "no", failed=True), read("b", "no", failed=True)]]),
}

ONE_FAILURE = run("curl localhost", "refused", failed=True)
DOWN = [[ONE_FAILURE]]

HONEST: dict[str, Steps] = {
    "waiting inside a command": [[run("sleep 30; gh run view", "pending", took=30)]] * 40,
    "waiting between looks": [[read("log")], [sleep(5)]] * 20,
    "waiting between two looks": [[read("log"), run("ps", "1")], [sleep(5)]] * 20,
    "waiting for a server": [*DOWN, [sleep(2)]] * 20,
    "waiting with a tool that waits": [[read("process", "running", took=30)]] * 30,
    "waiting with a growing back-off": [
        step for n in range(20) for step in ([*DOWN[0]], [sleep(2.0 + n)])
    ],
    "a long command many times": [[run("deploy", "ok", took=120)]] * 20,
    "a few impatient looks": [[run("gh run view", "pending")]] * 7,
    "impatient, then patient": ([[run("gh run view", "pending")]] * 6 + [[sleep(60)]]) * 5,
    "looks at something that changes": list(islice(each(lambda n: run("date", f"{n}")), 40)),
    "a log that grows": list(islice(each(lambda n: read("log", f"{n} lines")), 40)),
    "pictures of a screen that changes": list(islice(each(lambda n: look(f"{n:064}")), 40)),
    "many files": list(islice(each(read), 60)),
    "pages of one file": list(islice(each(lambda n: read(f"a:{n}")), 60)),
    "many searches in vain": list(islice(each(find), 60)),
    "many edits": list(islice(each(lambda n: write("a", n)), 60)),
    "edit and test, still red": [
        step for n in range(20) for step in ([write("a", n)], [run("t", "1 failed", failed=True)])
    ],
    "edit and look again": [step for n in range(20) for step in ([write("a", n)], [read("b")])],
    "edit and status": [step for n in range(20) for step in ([write("a", n)], [run("st", "M")])],
    "edit, read, test": [
        step
        for n in range(15)
        for step in ([write("a", n)], [read("a", f"{n}")], [run("t", "no", failed=True)])
    ],
    "four failures, then it works": [*DOWN * 4, [run("curl localhost", "ok")]],
    "failures and a wait, again and again": [*DOWN * 4, [sleep(10)]] * 5,
    "guessing seven names, then one fits": [
        *([read(n, f"no {n}", failed=True)] for n in range(7)),
        [read("x", "here")],
        *([read(n, f"no {n}", failed=True)] for n in range(10, 17)),
    ],
    "many guesses at once": [
        [read(n, f"no {n}", failed=True) for n in range(20)],
        [read(n, f"no {n}", failed=True) for n in range(20, 40)],
        [find("x", "here")],
    ],
    "everything fails at once, then not": [
        [read("a", "no", failed=True), find("b", "no", failed=True), *DOWN[0]]
    ]
    * 4
    + [[read("a")]],
    "a flaky test run often": [[run("t", "passed")], [run("t", "1 failed", failed=True)]] * 7,
    "a second look at each file": [
        step for n in range(15) for step in ([read(n)], [read(n)], [read(n + 100)])
    ],
    "two looks at two files, then work": [[read("a")], [read("b")]] * 2 + [[write("a", "new")]],
    "red builds, each thought about": [
        step
        for n in range(4)
        for step in ([run("make", "error", failed=True)], [read(n, f"file {n}")])
    ]
    + [[write("a", "fix")], [run("make", "error", failed=True)]],
    "the same failure beside work": [
        step for n in range(10) for step in ([read("x", "no", failed=True), write("a", n)],)
    ],
    "repeating oneself within one answer": [[read("a")] * 12, [write("a", 1)] * 12],
    "nothing at all": [],
}


def drive(steps: Steps, limits: GuardLimits, most: int) -> tuple[int, list[str], str]:
    """The number of steps taken, the texts given to the model, and the verdict."""
    guard = LoopGuard(limits)
    texts: list[str] = []
    taken = 0
    for step in islice(steps, most):
        taken += 1
        for act in step:
            parts = (Text(act.text), *([Media(act.picture, "image/png")] if act.picture else []))
            call = tool_call(act.tool, **act.args)
            result = Result("m", call.id, parts, act.failed)
            texts.append(text_of(guard.observe(call, act.effect, result, act.took)))
        guard.end_step()
        if guard.verdict:
            break
    return taken, texts, guard.verdict


def test_scenario_tables_are_large_enough() -> None:
    assert len(CIRCLES) >= 30
    assert len(HONEST) >= 30


@cases("name", CIRCLES)
def test_loop_is_hinted_at_and_stopped(name: str) -> None:
    # The table's iterators are endless, so each is used by this test alone.
    taken, texts, verdict = drive(CIRCLES[name], GuardLimits(), 90)
    assert verdict
    assert taken <= SOON, verdict
    hints = [text for text in texts if text.endswith("]")]
    if name != "ever new unknown tools":
        assert hints


@cases("name", HONEST)
def test_productive_work_is_never_stopped(name: str) -> None:
    steps = list(HONEST[name])
    taken, _, verdict = drive(steps, GuardLimits(), 200)
    assert not verdict
    assert taken == len(steps)


def test_stopping_can_be_disabled() -> None:
    _, texts, verdict = drive(again(read("a")), GuardLimits(stops=False), 20)
    assert not verdict
    assert "same result 20 times" in texts[-1]


def test_hints_can_be_disabled() -> None:
    taken, texts, verdict = drive(again(read("a")), GuardLimits(warns=False), 20)
    assert verdict
    assert set(texts[:taken]) == {"contents"}


def test_hint_keeps_the_original_result() -> None:
    guard = LoopGuard(GuardLimits(warn_same_failure=1))
    call = tool_call("read")
    before = Result(
        "m1", call.id, (Text("no"), Media("0" * 64, "image/png")), True, "shown", foreign=True
    )
    after = guard.observe(call, Effect.READ, before)
    assert after.parts[:2] == before.parts
    assert (after.id, after.call, after.failed, after.shown) == ("m1", call.id, True, "shown")
    assert len(after.parts) == 3
    assert after.foreign


def test_verdict_is_the_first_reason() -> None:
    guard = LoopGuard(GuardLimits())
    call = tool_call("read", path="a")
    for _ in range(20):
        guard.observe(call, Effect.READ, Result("m", call.id, (Text("x"),)))
        guard.end_step()
    assert guard.verdict == "the same read call gave the same result 5 times"


async def test_waiting_is_measured_with_the_plan_clock() -> None:
    clock = FakeClock(auto=True)

    async def wait(args: dict[str, object], context: object) -> str:
        await clock.sleep(30)
        return "still running"

    steps = [[assistant_message(tool_call("wait"))] for _ in range(20)]
    _, recorder = await run_scripted_turn(
        *steps, answer_script("over"), tools=[FakeTool("wait", wait)], clock=clock
    )
    assert recorder.ended.outcome is Outcome.DONE
