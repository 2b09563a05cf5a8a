"""The form of a job: only what was edited is changed."""

import re

import pytest
from msgspec import UNSET, structs

from hermes.cron.job_changes import JobChange
from hermes.ports.jobs import (
    Job,
    JobPolicy,
    Overlap,
    Repeat,
    Schedule,
    ScheduleKind,
)
from hermes.schema.errors import UsageError
from hermes.web.job_form import JobForm, job_change, job_form

POLICY = JobPolicy(timeout=90.5, retries=2)
JOB = Job(
    id="j1",
    schedule=Schedule(kind=ScheduleKind.INTERVAL),
    schedule_display="every 2h",
    name="tea",
    prompt="Make tea.",
    skill="kettle",
    model="small",
    repeat=Repeat(times=3),
    timezone="Europe/Berlin",
    policy=POLICY,
)


def sent(**edited: str) -> JobForm:
    """What the form of the job sends, as a browser reads it from the page."""
    html = str(job_form("/jobs/j1/change", JOB))
    values = dict.fromkeys(structs.asdict(JobForm(name="", schedule="", prompt="")), "")
    for tag in re.findall(r"<input [^>]*>", html):
        name, value = (re.search(rf'{key}="([^"]*)"', tag) for key in ("name", "value"))
        assert name is not None
        values[name[1]] = value[1] if value else ""
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', html):
        chosen = re.search(r'<option value="(\w+)" selected', options)
        assert chosen is not None
        values[name] = chosen[1]
    values["prompt"] = "Make tea."
    return JobForm(**(values | edited))


def test_unedited_form_changes_nothing() -> None:
    assert job_change(sent(), JOB) == JobChange()


def test_form_without_the_folded_part_leaves_it_as_it_is() -> None:
    form = JobForm(name="tea", schedule="every 2h", prompt="Make green tea.")
    assert job_change(form, JOB) == JobChange(prompt="Make green tea.")


def test_edited_fields_are_changed() -> None:
    form = sent(model="", skills="kettle, cups,", repeat="", timezone="", script="brew.sh",
                overlap="queue", timeout="", retries="", spend_cap="0.5")  # fmt: skip
    changed = job_change(form, JOB)
    assert changed.model is None
    assert changed.skills == ("kettle", "cups")
    assert (changed.repeat, changed.timezone, changed.script) == (0, "", "brew.sh")
    assert changed.policy == JobPolicy(overlap=Overlap.QUEUE, spend_cap=0.5)
    assert (changed.schedule, changed.name, changed.provider) == (UNSET, UNSET, UNSET)


@pytest.mark.parametrize(
    ("name", "value"),
    [("retries", "1.5"), ("repeat", "many"), ("timeout", "-1"), ("spend_cap", "nan"),
     ("jitter", "1e99"), ("overlap", "sometimes")],
)  # fmt: skip
def test_wrong_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError):
        job_change(sent(**{name: value}), JOB)
