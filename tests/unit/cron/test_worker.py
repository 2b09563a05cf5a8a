"""Jobs fire when they are due, once, and their results are delivered."""

from datetime import timedelta
from pathlib import Path

from hermes.cron.fire_runner import SOURCE
from hermes.cron.job_text import fire_line
from hermes.ports.jobs import FireState, Job, JobPolicy, Overlap
from hermes.ports.store import OpenSession
from hermes.schema.errors import ModelError, Unreachable
from hermes.schema.messages import Usage, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.session.turn_request import TurnRequest
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.scripted_model import Pause, Script, answer_script
from support.cron import CronHarness, cron_harness
from support.turns import assistant_message, tool_call


async def latest(harness: CronHarness, job: Job) -> Job:
    return await harness.service.find(job.id)


async def test_job_fires_at_its_times_and_sleeps_in_between(tmp_path: Path) -> None:
    scripts: list[Script] = [answer_script("one"), answer_script("[SILENT]")]
    async with cron_harness(tmp_path, *scripts) as cron:
        job = await cron.create("every 1h", "report", name="report")
        async with cron.serving():
            await cron.clock.advance(10)
            cron.clock.slept.clear()
            await cron.clock.advance(3589)
            assert await cron.states() == []
            assert cron.clock.slept == []
            await cron.clock.advance(2)
            assert cron.delivery.sent == ["one"]
            await cron.clock.advance(3600)
        assert await cron.states() == ["completed", "completed"]
        assert cron.delivery.sent == ["one"]
        fires = await cron.history()
        assert [fire.at - job.created_at for fire in fires] == [  # type: ignore[operator]
            timedelta(hours=1),
            timedelta(hours=2),
        ]
        request = cron.model.requests[0]
        assert text_of(request.messages[-1]) == "report"
        assert "[SILENT]" in request.system
        changed = await latest(cron, job)
        assert (changed.last_status, changed.state) == ("ok", "scheduled")
        assert '"last_status": "ok"' in (tmp_path / "cron" / "jobs.json").read_text()
        outputs = sorted((tmp_path / "cron" / "output" / job.id).glob("*.md"))
        assert "one" in outputs[0].read_text()


async def test_single_fire_ends_the_job(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("now")) as cron:
        job = await cron.create("30m")
        async with cron.serving():
            await cron.clock.advance(1801)
        changed = await latest(cron, job)
        assert (changed.state, changed.enabled, changed.next_run_at) == ("completed", False, None)
        assert await cron.service.jobs() == []


async def test_fires_of_a_downtime_are_made_up_for_or_named_as_missed(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("late")) as cron:
        await cron.create("every 10m")
        cron.clock.skip(3600 * 5 + 60)
        async with cron.serving():
            await wait_until_idle()
        missed, fired = await cron.history()
        assert (missed.state, missed.count) == (FireState.MISSED, 29)
        assert fired.state is FireState.COMPLETED
        assert cron.clock.now() - fired.at == timedelta(minutes=1)


async def test_late_single_fire_is_missed_visibly(tmp_path: Path) -> None:
    async with cron_harness(tmp_path) as cron:
        job = await cron.create("10m")
        cron.clock.skip(3600 * 5)
        async with cron.serving():
            await wait_until_idle()
        assert await cron.states() == ["missed"]
        changed = await latest(cron, job)
        assert (changed.state, changed.last_status) == ("completed", "missed")
        (notice,) = cron.delivery.sent
        assert notice.startswith(f"The job {job.name} did not run at ")


async def test_clock_set_forward_and_back_repeats_nothing(tmp_path: Path) -> None:
    scripts = [answer_script(str(number)) for number in range(10)]
    async with cron_harness(tmp_path, *scripts) as cron:
        await cron.create("0 * * * *")
        async with cron.serving():
            await cron.clock.advance(1)
            cron.clock.step(3600)  # noticed at once, not an hour later
            await wait_until_idle()
            assert await cron.states() == ["completed"]
            cron.clock.step(-3600)
            await cron.clock.advance(3600)
            assert await cron.states() == ["completed"]
            await cron.clock.advance(3600)
            assert await cron.states() == ["completed", "completed"]


async def test_clock_that_was_years_ahead_does_not_stop_the_job(tmp_path: Path) -> None:
    scripts = [answer_script(str(number)) for number in range(10)]
    async with cron_harness(tmp_path, *scripts) as cron:
        await cron.create("0 * * * *")
        async with cron.serving():
            cron.clock.step(86400 * 3650)
            await wait_until_idle()
            cron.clock.step(-86400 * 3650)
            before = len(cron.model.requests)
            await cron.clock.advance(3601)
            assert len(cron.model.requests) == before + 1


async def test_interrupted_fire_continues_in_its_session(tmp_path: Path) -> None:
    clock = FakeClock()
    async with cron_harness(tmp_path, ["thinking", Pause.FOREVER], clock=clock) as first:
        job = await first.create("10m", "long work")
        async with first.serving():
            await clock.advance(601)
            assert await first.states() == ["running"]
        (fire,) = await first.history(job)
    async with cron_harness(tmp_path, answer_script("done"), clock=clock) as second:
        async with second.serving():
            await clock.advance(1)
        (ended,) = await second.history(job)
        assert (ended.state, ended.session, ended.attempt) == ("completed", fire.session, 2)
        assert second.delivery.sent == ["done"]
        stored = await second.store.archive_for(OWNER).messages(fire.session)
        questions = [text_of(row.message) for row in stored if text_of(row.message) == "long work"]
        assert len(questions) == 1


async def test_two_workers_on_one_store_fire_once(tmp_path: Path) -> None:
    clock = FakeClock()
    scripts = [answer_script(str(number)) for number in range(20)]
    async with (
        cron_harness(tmp_path, *scripts, clock=clock, beats=True) as one,
        cron_harness(tmp_path, *scripts, clock=clock, beats=True) as other,
    ):
        for number in range(5):
            await one.create("every 30m", f"job {number}")
        async with one.serving(), other.serving(lock="another"):
            await clock.advance(1801)
            await clock.advance(1800)
        assert await one.states() == ["completed"] * 10
        assert len(one.model.requests) + len(other.model.requests) == 10


async def test_worker_waits_while_another_program_holds_the_lock(tmp_path: Path) -> None:
    clock = FakeClock()
    async with (
        cron_harness(tmp_path, answer_script("a"), clock=clock) as one,
        cron_harness(tmp_path, answer_script("b"), clock=clock) as other,
    ):
        await one.create("10m")
        async with other.serving(), one.serving():
            await clock.advance(601)
            assert (len(one.model.requests), len(other.model.requests)) == (0, 1)


async def test_failures_are_retried_and_reported_after_the_limit(tmp_path: Path) -> None:
    broken = [ModelError("no such thing")]
    policy = JobPolicy(retries=1, retry_delay=60, alert_after=2)
    async with cron_harness(tmp_path, *[broken] * 6) as cron:
        job = await cron.create("every 1h", policy=policy)
        async with cron.serving():
            await cron.clock.advance(3601)
            (fire,) = await cron.history()
            assert (fire.state, fire.attempt) == (FireState.CLAIMED, 1)
            await cron.clock.advance(61)
            assert await cron.states() == ["failed"]
            assert cron.delivery.sent == []
            await cron.clock.advance(3600)
        assert (await latest(cron, job)).failure_streak == 2
        assert len(cron.delivery.sent) == 1
        assert "2 times in a row" in cron.delivery.sent[0]


async def test_unreachable_model_is_tried_again_later(tmp_path: Path) -> None:
    scripts: list[Script] = [[Unreachable("down")], [Unreachable("down")], answer_script("up")]
    async with cron_harness(tmp_path, *scripts) as cron:
        await cron.create("10m")
        async with cron.serving():
            await cron.clock.advance(601)
            assert await cron.states() == ["claimed"]
            await cron.clock.advance(300)
            await cron.clock.advance(900)
        assert await cron.states() == ["completed"]
        assert cron.delivery.sent == ["up"]


async def test_overlapping_fire_is_skipped_or_runs_beside(tmp_path: Path) -> None:
    hanging: list[Script] = [["x", Pause.FOREVER] for _ in range(4)]
    async with cron_harness(tmp_path, *hanging) as cron:
        skipping = await cron.create("every 5m")
        beside = await cron.create("every 5m", policy=JobPolicy(overlap=Overlap.PARALLEL))
        async with cron.serving():
            await cron.clock.advance(301)
            await cron.clock.advance(300)
            assert await cron.states(skipping) == ["running", "skipped"]
            assert await cron.states(beside) == ["running", "running"]


async def test_queued_fire_runs_after_the_one_before_it(tmp_path: Path) -> None:
    scripts: list[Script] = [["x", Pause.FOREVER], answer_script("second")]
    async with cron_harness(tmp_path, *scripts) as cron:
        policy = JobPolicy(overlap=Overlap.QUEUE, timeout=400)
        await cron.create("every 5m", policy=policy, repeat=2)
        async with cron.serving():
            await cron.clock.advance(301)
            await cron.clock.advance(300)
            assert await cron.states() == ["running", "claimed"]
            await cron.clock.advance(130)
        assert await cron.states() == ["failed", "completed"]


async def test_run_ends_at_its_limits(tmp_path: Path) -> None:
    scripts: list[Script] = [["x", Pause.FOREVER], ["x", Pause.FOREVER]]
    async with cron_harness(tmp_path, *scripts) as cron:
        timed = await cron.create("10m", policy=JobPolicy(timeout=30))
        idle = await cron.create("10m")
        async with cron.serving():
            await cron.clock.advance(601)
            await cron.clock.advance(31)
            assert await cron.states(timed) == ["failed"]
            await cron.clock.advance(600)
        (fire,) = await cron.history(idle)
        assert "Nothing happened for 600 seconds" in fire.reason


async def test_script_feeds_or_replaces_the_agent(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "say.sh").write_text("echo found 3 things")
    (tmp_path / "scripts" / "calm.sh").write_text("""echo nothing; echo '{"wakeAgent": false}'""")
    (tmp_path / "scripts" / "fail.sh").write_text("echo broken; exit 3")
    async with cron_harness(tmp_path, answer_script("I see 3.")) as cron:
        await cron.create("10m", "look", script="say.sh")
        await cron.create("11m", "", script="say.sh", no_agent=True)
        await cron.create("12m", "look", script="calm.sh")
        await cron.create("13m", "look", script="fail.sh")
        for minutes in (10, 1, 1, 1):
            await cron.clock.advance(minutes * 60 + 1)
            await cron.worker().run_once()
        assert await cron.states() == ["completed", "completed", "completed", "failed"]
        texts = [text_of(message) for message in cron.model.requests[0].messages]
        assert any("found 3 things" in text for text in texts), texts
        assert cron.delivery.sent[:2] == ["I see 3.", "found 3 things"]
        assert "code 3" in cron.delivery.sent[2]


async def test_job_gets_the_last_output_of_another(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("42 mails"), answer_script("ok")) as cron:
        await cron.create("10m", name="mails")
        await cron.create("20m", context_from=("mails",), skills=("summary",))
        async with cron.serving():
            await cron.clock.advance(601)
            await cron.clock.advance(601)
        texts = [text_of(message) for message in cron.model.requests[1].messages]
        assert any("42 mails" in text for text in texts)
        assert "skill summary" in texts[-1]


async def test_attached_job_continues_one_session(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("one"), answer_script("two")) as cron:
        await cron.create("every 10m", attach_to_session=True)
        async with cron.serving():
            await cron.clock.advance(601)
            await cron.clock.advance(600)
        first, second = await cron.history()
        assert first.session == second.session
        assert len(cron.model.requests[1].messages) > len(cron.model.requests[0].messages)


async def test_attached_job_does_not_continue_another_persons_session(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("one")) as cron:
        job = await cron.create("every 10m", attach_to_session=True)
        key = f"{SOURCE}:{job.id}"
        other = Session(id="other", started_at=cron.clock.now(), key=key, principal="guest")
        await cron.store.commit(OpenSession(other))
        async with cron.serving():
            await cron.clock.advance(601)
        (fire,) = await cron.history()
        assert fire.state is FireState.COMPLETED
        own = await cron.store.archive_for(OWNER).get(fire.session)
        assert (own.id != "other", own.principal) == (True, OWNER)
        assert not await cron.store.archive_for("guest").messages("other")


async def test_old_fires_sessions_and_files_are_deleted(tmp_path: Path) -> None:
    scripts = [answer_script(str(number)) for number in range(6)]
    async with cron_harness(tmp_path, *scripts) as cron:
        job = await cron.create("every 10m")
        async with cron.serving():
            for _ in range(6):
                await cron.clock.advance(601)
        assert len(await cron.history()) == 3
        assert len(await cron.talk.sessions()) == 3
        assert len([*(tmp_path / "cron" / "output" / job.id).glob("*.md")]) == 3


async def test_run_ends_when_it_costs_too_much(tmp_path: Path) -> None:
    call = assistant_message("looking", tool_call("nothing"), usage=Usage(10, 10))
    async with cron_harness(tmp_path, [call], [call], answer_script("never")) as cron:
        await cron.create("10m", policy=JobPolicy(spend_cap=0.007))
        async with cron.serving():
            await cron.clock.advance(601)
        (fire,) = await cron.history()
        assert "limit of $0.007" in fire.reason
        assert len(cron.model.requests) <= 3


async def test_fire_waits_for_the_turns_of_chats_but_not_for_long(tmp_path: Path) -> None:
    scripts = [answer_script("first"), answer_script("second")]
    async with cron_harness(tmp_path, *scripts) as cron:
        await cron.create("every 1h")
        now = cron.clock.now()
        chat = TurnRequest(session=Session(id="chat", started_at=now), message=None)
        async with cron.serving():
            with cron.talk.runner.foreground.running(chat):
                await cron.clock.advance(3600.1)
                assert await cron.states() == ["claimed"]
            await cron.clock.advance(0.05)
            assert await cron.states() == ["claimed"]
            await cron.clock.advance(0.1)
            assert await cron.states() == ["completed"]
            with cron.talk.runner.foreground.running(chat):
                await cron.clock.advance(3601)
                assert await cron.states() == ["completed", "completed"]


async def test_fire_that_waits_to_start_is_left_to_the_next_gateway(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("late")) as cron:
        await cron.create("every 1h")
        now = cron.clock.now()
        chat = TurnRequest(session=Session(id="chat", started_at=now), message=None)
        async with cron.serving() as worker:
            with cron.talk.runner.foreground.running(chat):
                await cron.clock.advance(3600.1)
                worker.drain()
            await cron.clock.advance(1)
            assert cron.model.requests == []
        async with cron.serving():
            await cron.clock.advance(1)
        assert await cron.states() == ["completed"]


async def test_model_is_the_jobs_own_then_that_of_all_jobs_then_that_of_its_creation(
    tmp_path: Path,
) -> None:
    scripts = [answer_script(str(number)) for number in range(3)]
    async with cron_harness(tmp_path, *scripts) as cron:
        await cron.create("10m", model="mine", provider="p", reasoning_effort="low")
        await cron.create("20m")
        await cron.create("30m")
        for default in ("shared", "shared", ""):
            cron.default_model = default
            async with cron.serving():
                await cron.clock.advance(601)
        used = [(one.model, one.effort) for one in cron.talk.planner.sessions]
        assert used == [("mine", "low"), ("shared", ""), ("now", "")]


async def test_model_of_all_jobs_is_not_asked_of_a_jobs_own_provider(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("one")) as cron:
        cron.default_model = "shared"
        await cron.create("10m", provider="p")
        async with cron.serving():
            await cron.clock.advance(601)
        (session,) = cron.talk.planner.sessions
        assert (session.model, session.provider) == ("now", "p")


async def test_answer_that_cannot_be_delivered_is_not_a_failure_of_the_job(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("one")) as cron:
        cron.delivery.problem = "no home channel"
        job = await cron.create("every 10m")
        async with cron.serving():
            await cron.clock.advance(601)
        changed = await latest(cron, job)
        assert (changed.last_status, changed.failure_streak) == ("delivery_failed", 0)
        (fire,) = await cron.history(job)
        assert fire_line(fire).endswith("  completed, not delivered: no home channel")
        assert changed.last_delivery_error == "no home channel"
