"""Jobs that events fire: a changed file, a webhook, the heartbeat's list."""

import os
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.cron.doctor import find_problems
from hermes.cron.heartbeat import FILE, ensure_heartbeat, open_tasks
from hermes.cron.incidents import IncidentState
from hermes.cron.job_changes import JobChange
from hermes.cron.triggers import file_state
from hermes.ports.jobs import (
    HEARTBEAT_JOB,
    JOB_CALLS,
    SCHEDULED_JOBS,
    FireTrigger,
    JobCall,
    JobPolicy,
    Overlap,
)
from hermes.ports.store import EnqueueItem, ItemStatus, QueueItem
from hermes.schema.errors import ModelError, NotFound, UsageError
from hermes.schema.messages import Trust, User, text_of
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.scripted_model import Script, answer_script
from support.cron import CronHarness, cron_harness

PARALLEL = JobPolicy(overlap=Overlap.PARALLEL)


async def call(cron: CronHarness, job: str, text: str, key: str = "call-1") -> None:
    """As the gateway stores the call of a webhook route."""
    body = Raw(msgspec.json.encode(JobCall(text)))
    await cron.store.commit(EnqueueItem(QueueItem(key=key, queue=JOB_CALLS, topic=job, body=body)))
    cron.bus.wake(SCHEDULED_JOBS)


async def test_changed_file_fires_once_also_after_a_downtime(tmp_path: Path) -> None:
    file = tmp_path / "inbox" / "list.txt"
    file.parent.mkdir()
    file.write_text("one")
    scripts: list[Script] = [answer_script("seen"), answer_script("seen again")]
    async with cron_harness(tmp_path, *scripts) as cron:
        job = await cron.create(f"on change of {file}", "look")
        assert job.next_run_at is None
        async with cron.serving():
            assert await cron.states() == []  # what is there at first is no change
        file.write_text("one and two")
        async with cron.serving():
            assert await cron.states() == ["completed"]
            cron.bus.wake(SCHEDULED_JOBS)
            await wait_until_idle()
            assert await cron.states() == ["completed"]
            await cron.clock.advance(61)
            file.unlink()
            cron.bus.wake(SCHEDULED_JOBS)
            await wait_until_idle()
        assert await cron.states() == ["completed", "completed"]
        assert cron.delivery.sent == ["seen", "seen again"]
        (note,) = [
            message
            for message in cron.model.requests[0].messages
            if isinstance(message, User) and message.trust is Trust.DATA
        ]
        assert text_of(note).startswith(f"{file} has changed.")
        changed = await cron.service.find(job.id)
        assert (changed.state, changed.enabled) == ("scheduled", True)
        with pytest.raises(UsageError, match="absolute"):
            await cron.create("on change of list.txt", "look")


async def test_call_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("seen")) as cron:
        job = await cron.create("on webhook", "look")
        async with cron.serving():
            row = QueueItem(key="bad", queue=JOB_CALLS, topic=job.id, body=Raw(b"[1]"))
            await cron.store.commit(EnqueueItem(row))
            await call(cron, job.id, "hello")
            await wait_until_idle()
        assert await cron.states() == ["completed"]
        status, reason = await cron.store.queues.status("bad")
        assert status is ItemStatus.PARKED
        assert "cannot be read" in reason


async def test_job_that_changes_its_watched_file_fires_less_and_less_often(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    async with cron_harness(tmp_path, *[answer_script("changed") for _ in range(5)]) as cron:
        await cron.create(f"on change of {file}", "look")
        async with cron.serving():
            for number, minutes in enumerate([0, 1, 2]):
                file.write_text("x" * (number + 1))
                cron.bus.wake(SCHEDULED_JOBS)
                await wait_until_idle()
                if minutes:
                    assert (await cron.states())[-1] == "claimed"
                    await cron.clock.advance(minutes * 60 + 1)
                assert await cron.states() == ["completed"] * (number + 1)


async def test_job_with_another_path_or_resumed_does_not_fire_for_the_old_state(
    tmp_path: Path,
) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    async with cron_harness(tmp_path) as cron:
        job = await cron.create(f"on change of {file}", "look")
        async with cron.serving():
            other.write_text("x")
            await cron.service.update(job.id, JobChange(schedule=f"on change of {other}"))
            await wait_until_idle()
            await cron.service.pause(job.id)
            other.write_text("changed")
            await cron.service.resume(job.id)
            await wait_until_idle()
        assert await cron.states() == []


def test_state_of_a_folder_with_any_names_and_of_an_impossible_path(tmp_path: Path) -> None:
    before = file_state(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("x")
    assert file_state(tmp_path) not in {before, "missing"}
    assert file_state(tmp_path / "a\0b") == "missing"


async def test_folder_that_was_replaced_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "inbox"
    async with cron_harness(tmp_path, answer_script("seen")) as cron:
        await cron.create(f"on change of {folder / 'list.txt'}", "look")
        async with cron.serving():
            folder.mkdir()
            await cron.clock.advance(11)  # the watch begins
            (folder / "list.txt").write_text("x")
            with anyio.fail_after(20):
                while await cron.states() != ["completed"]:
                    await anyio.lowlevel.checkpoint()


async def test_call_of_a_webhook_fires_the_job_it_names_once(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("built")) as cron:
        job = await cron.create("on webhook", "build it", name="build")
        await call(cron, "build", "commit abc")
        await call(cron, "build", "commit abc")  # the same key
        await call(cron, "no such job", "x", key="call-2")
        async with cron.serving():
            await wait_until_idle()
        (fire,) = await cron.history(job)
        assert (fire.state, fire.trigger, fire.data) == (
            "completed",
            FireTrigger.EVENT,
            "commit abc",
        )
        assert cron.delivery.sent == ["built"]
        await cron.service.pause(job.id)
        await call(cron, job.id, "commit def", key="call-3")
        async with cron.serving():
            await wait_until_idle()
        last = (await cron.history(job))[-1]
        assert (last.state, last.reason) == ("skipped", "the job is paused")


async def test_job_by_webhook_fires_as_often_as_it_may(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("one"), answer_script("two")) as cron:
        job = await cron.create("on webhook", "build it", repeat=2, policy=PARALLEL)
        for number in range(3):
            await call(cron, job.id, "x", key=f"call-{number}")
        async with cron.serving():
            await wait_until_idle()
        assert await cron.states(job) == ["completed", "completed", "skipped"]
        assert (await cron.service.find(job.id)).state == "completed"
        with pytest.raises(UsageError, match="no runs left"):
            await cron.service.resume(job.id)


async def test_heartbeat_asks_the_model_only_if_something_is_listed(tmp_path: Path) -> None:
    file = tmp_path / FILE
    async with cron_harness(tmp_path, answer_script("watered")) as cron:
        await ensure_heartbeat(cron.service, file, "30m")
        with pytest.raises(NotFound):
            await cron.service.find(HEARTBEAT_JOB)
        file.write_text("# Plants\n\n<!-- - water them -->\n- [x] buy a pot\n")
        for _ in range(2):
            await ensure_heartbeat(cron.service, file, "30m")
        async with cron.serving():
            await cron.clock.advance(1801)
            assert await cron.states() == ["completed"]
            assert cron.model.requests == []
            assert cron.delivery.sent == []
            file.write_text("# Plants\n- [ ] water them\n")
            await cron.clock.advance(1800)
        assert cron.delivery.sent == ["watered"]
        assert "- [ ] water them" in text_of(cron.model.requests[0].messages[-1])
        assert await cron.talk.sessions() != []


def test_list_of_the_heartbeat_is_empty_without_open_lines() -> None:
    assert open_tasks("# Title\n\n- [x] done\n<!-- a\nb -->\n") == ""
    assert open_tasks("# Title\ndo this") == "# Title\ndo this"


async def test_incidents_are_failures_in_a_row_until_a_success(tmp_path: Path) -> None:
    broken: Script = [ModelError("no such thing")]
    scripts: list[Script] = [broken, broken, answer_script("ok"), broken]  # three are kept
    async with cron_harness(tmp_path, *scripts) as cron:
        job = await cron.create("every 1h", policy=JobPolicy(alert_after=2))
        async with cron.serving():
            for _ in range(3):
                await cron.clock.advance(3600.5)
            (oldest,) = await cron.service.incidents()
            assert (oldest.state, oldest.failures) == (IncidentState.RESOLVED, 2)
            await cron.clock.advance(3600)
        newest, _ = await cron.service.incidents()
        assert (newest.state, newest.failures) == (IncidentState.DETECTED, 1)
        assert "no such thing" in newest.reason
        await cron.service.acknowledge(newest.id)
        states = [one.state for one in await cron.service.incidents(job.id)]
        assert states == [IncidentState.CLOSED, IncidentState.CLOSED]
        problems = await find_problems(cron.service, "")
        assert [one.text for one in problems] == [
            f"It failed once: {(await cron.history(job))[-1].reason}"
        ]


async def test_doctor_lists_missing_parts(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "a.sh"
    script.write_text("echo")
    async with cron_harness(tmp_path, clock=FakeClock()) as cron:
        assert await find_problems(cron.service, "not served") == []
        folder = tmp_path / "work"
        folder.mkdir()
        await cron.create(
            "every 1h", script="a.sh", workdir=str(folder), context_from=("another",), name="j"
        )
        folder.rmdir()
        texts = [one.text for one in await find_problems(cron.service, "not served")]
        assert texts[0] == "not served"
        assert f"The working directory {folder} does not exist." in texts
        assert any("another" in text for text in texts)
        script.unlink()
        texts = [one.text for one in await find_problems(cron.service, "not served")]
        assert any("no script" in text for text in texts)


async def test_doctor_lists_a_lasting_cause_once_and_tells_namesakes_apart(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, clock=FakeClock()) as cron:
        folder = tmp_path / "work"
        folder.mkdir()
        jobs = [await cron.create("every 1h", name="j", workdir=str(folder)) for _ in range(2)]
        folder.rmdir()
        async with cron.serving():
            await cron.clock.advance(3600.5)
        problems = await find_problems(cron.service, "")
        reason = f"It failed once: The working directory {folder} does not exist."
        expected = {(f"j ({job.id})", reason) for job in jobs}
        assert {(one.job, one.text) for one in problems} == expected
        assert len(problems) == 2
