"""`cron/jobs.json` of the public system is read, kept in step, and stays valid for it."""

import json
from pathlib import Path

import pytest

from hermes.cron.job_changes import JobChange
from hermes.schema.errors import NotFound, UsageError
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.scripted_model import answer_script
from support.cron import cron_harness

PUBLIC_JOB = {
    "id": "0123456789ab",
    "name": "Morning",
    "prompt": "Read the news",
    "skills": [],
    "skill": None,
    "model": None,
    "provider": None,
    "provider_snapshot": "openrouter",
    "model_snapshot": "some/model",
    "base_url": None,
    "script": None,
    "no_agent": False,
    "context_from": None,
    "schedule": {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *"},
    "schedule_display": "0 9 * * *",
    "repeat": {"times": None, "completed": 4},
    "enabled": True,
    "state": "scheduled",
    "paused_at": None,
    "paused_reason": None,
    "created_at": "2026-01-30T08:00:00.123456+01:00",
    "next_run_at": "2026-02-01T09:00:00+01:00",
    "last_run_at": "2026-01-31T09:00:10+01:00",
    "last_status": "ok",
    "last_error": None,
    "last_delivery_error": None,
    "deliver": "telegram",
    "origin": {"platform": "telegram", "chat_id": "7", "chat_name": "Me", "thread_id": None},
    "enabled_toolsets": None,
    "workdir": None,
    "something_new": {"kept": [1, 2]},
}


def write(folder: Path, *jobs: object) -> Path:
    path = folder / "cron" / "jobs.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"jobs": jobs, "updated_at": "2026-01-31T09:00:00+01:00"}))
    return path


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text())["jobs"]


async def test_file_of_the_public_system_is_taken_over_and_keeps_its_fields(tmp_path: Path) -> None:
    path = write(tmp_path, PUBLIC_JOB, {"id": 7, "broken": True})
    async with cron_harness(tmp_path) as cron:
        (job,) = await cron.service.jobs()
        assert (job.name, job.repeat.completed, job.timezone) == ("Morning", 4, "UTC")
        await cron.service.pause("morning", "holiday")
        paused, broken = read(path)
        assert (paused["state"], paused["paused_reason"]) == ("paused", "holiday")
        assert paused["something_new"] == {"kept": [1, 2]}
        assert paused["model_snapshot"] == "some/model"
        assert set(PUBLIC_JOB) <= set(paused)
        assert broken == {"id": 7, "broken": True}


async def test_invalid_job_does_not_stop_the_others(tmp_path: Path) -> None:
    local = {
        **PUBLIC_JOB,
        "next_run_at": "2026-02-01T09:00:00",
        "created_at": "2026-01-30T08:00:00",
    }
    wrong = [
        {"schedule": {"kind": "cron", "expr": "x y"}},
        {"schedule": {"kind": "cron", "expr": "99 * * * *"}},
        {"schedule": {"kind": "interval", "minutes": 0}},
        {"timezone": "Mars/Base"},
    ]
    entries = [{**PUBLIC_JOB, "id": f"{n:012x}", **one} for n, one in enumerate(wrong)]
    write(tmp_path, *entries, local)
    async with cron_harness(tmp_path, answer_script("hi")) as cron:
        async with cron.serving():
            await cron.clock.advance(3600 * 24)
        *broken, served = await cron.service.jobs(disabled=True)
        assert [job.state for job in broken] == ["error"] * 4
        assert served.last_status == "ok"


async def test_changes_of_others_are_taken_over_while_serving(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("hi")) as cron:
        mine = await cron.create("every 1h", name="mine")
        path = tmp_path / "cron" / "jobs.json"
        async with cron.serving():
            ours = read(path)
            ours[0]["prompt"] = "changed by hand"
            write(tmp_path, *ours, PUBLIC_JOB)
            await cron.service.jobs()
            await wait_until_idle()
            assert (await cron.service.find(mine.id)).prompt == "changed by hand"
            assert (await cron.service.find("Morning")).deliver == "telegram"
            write(tmp_path, PUBLIC_JOB)
            with pytest.raises(NotFound):
                await cron.service.find(mine.id)


async def test_fire_of_the_public_system_is_not_repeated(tmp_path: Path) -> None:
    clock = FakeClock()
    async with cron_harness(tmp_path, answer_script("hi"), clock=clock) as cron:
        job = await cron.create("every 1h")
        path = tmp_path / "cron" / "jobs.json"
        (entry,) = read(path)
        clock.skip(3700)
        entry["next_run_at"] = (clock.now()).isoformat().replace("13:01:40", "14:00:00")
        write(tmp_path, entry)
        async with cron.serving():
            await wait_until_idle()
            assert await cron.states(job) == []


async def test_impossible_numbers_in_the_file_do_not_stop_the_others(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("hi"), clock=FakeClock()) as cron:
        job = await cron.create("every 1h")
        (good,) = read(tmp_path / "cron" / "jobs.json")
        good["policy"] = {"max_lateness": 1e18, "jitter": 1e-3}
        schedule = {"kind": "interval", "minutes": 1e18}
        write(tmp_path, good, {**good, "id": "b", "next_run_at": None, "schedule": schedule})
        async with cron.serving():
            await cron.clock.advance(3601)
            assert await cron.states(job) == ["completed"]
            broken = await cron.service.find("b")
            assert (broken.state, broken.enabled) == ("error", False)


@pytest.mark.parametrize("content", ["{", '{"jobs": [{"a": ' + "[" * 100_000])
async def test_unreadable_file_is_kept_aside_and_written_anew(tmp_path: Path, content: str) -> None:
    async with cron_harness(tmp_path) as cron:
        await cron.create("every 1h", name="mine")
        path = tmp_path / "cron" / "jobs.json"
        path.write_text(content)
        assert [job.name for job in await cron.service.jobs()] == ["mine"]
        assert [entry["name"] for entry in read(path)] == ["mine"]
        (kept,) = path.parent.glob("jobs.json.broken-*")
        assert kept.read_text() == content


async def test_missing_file_loses_no_job(tmp_path: Path) -> None:
    async with cron_harness(tmp_path) as cron:
        await cron.create("every 1h", name="mine")
        path = tmp_path / "cron" / "jobs.json"
        path.unlink()
        assert [job.name for job in await cron.service.jobs()] == ["mine"]
        assert [entry["name"] for entry in read(path)] == ["mine"]


@pytest.mark.parametrize(
    "change",
    [
        JobChange(schedule="every 1h"),
        JobChange(schedule="nonsense", prompt="x"),
        JobChange(schedule="every 1h", prompt="x", no_agent=True),
        JobChange(schedule="every 1h", script="../outside.sh"),
        JobChange(schedule="every 1h", script="missing.sh"),
        JobChange(schedule="every 1h", prompt="x", timezone="Mars/Base"),
        JobChange(schedule="every 1h", prompt="x", workdir="relative"),
        JobChange(schedule="every 1h", prompt="x", workdir="/nonexistent"),
        JobChange(schedule="every 1h", prompt="x", name="n" * 201),
    ],
)
async def test_invalid_job_is_rejected(tmp_path: Path, change: JobChange) -> None:
    async with cron_harness(tmp_path) as cron:
        with pytest.raises(UsageError):
            await cron.service.create(change)
        assert await cron.service.jobs(disabled=True) == []


async def test_schedule_change_enables_a_completed_job_but_not_a_paused_one(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("hi")) as cron:
        done = await cron.create("10m")
        async with cron.serving():
            await cron.clock.advance(601)
        again = await cron.service.update(done.id, JobChange(schedule="every 1h"))
        assert (again.enabled, again.repeat.times) == (True, None)
        await cron.service.pause(done.id)
        still = await cron.service.update(done.id, JobChange(schedule="every 2h"))
        assert (still.enabled, still.state) == (False, "paused")
        assert (await cron.service.resume(done.id)).enabled
