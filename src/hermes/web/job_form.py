"""Render the form of a job, and compute the change that an edited form requests."""

from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from hermes.cron.job_changes import JobChange
from hermes.ports.jobs import (
    Job,
    JobPolicy,
    MissedFires,
    Overlap,
    Schedule,
    ScheduleKind,
    Unreachable,
)
from hermes.schema.errors import UsageError
from hermes.web.form_fields import field, form, labelled
from hermes.web.html import Html, h
from hermes.web.texts import text

MAX_NUMBER = 1e9
_PLAIN = ("name", "schedule", "prompt", "deliver")
_NULLABLE = ("model", "provider", "script")
_CHOICES: dict[str, type[StrEnum]] = {
    "missed": MissedFires,
    "overlap": Overlap,
    "unreachable": Unreachable,
}
_COUNTS = ("retries", "alert_after")
_AMOUNTS = ("max_lateness", "jitter", "timeout", "retry_delay", "spend_cap")
_NEW = Job(id="", schedule=Schedule(kind=ScheduleKind.ONCE))


class JobForm(Struct, frozen=True, kw_only=True):
    """The form's fields as sent by the page; omitted fields stay unchanged."""

    name: str
    schedule: str
    prompt: str
    deliver: str = "local"
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    skills: str | UnsetType = UNSET
    script: str | UnsetType = UNSET
    repeat: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    missed: str | UnsetType = UNSET
    overlap: str | UnsetType = UNSET
    unreachable: str | UnsetType = UNSET
    retries: str | UnsetType = UNSET
    alert_after: str | UnsetType = UNSET
    max_lateness: str | UnsetType = UNSET
    jitter: str | UnsetType = UNSET
    timeout: str | UnsetType = UNSET
    retry_delay: str | UnsetType = UNSET
    spend_cap: str | UnsetType = UNSET


def job_change(sent: JobForm, job: Job | None) -> JobChange:
    """Return only changed fields, because setting the same schedule again would restart it.

    Raises `UsageError`.
    """
    shown = _shown(job or _NEW)
    submitted = {
        name: value
        for name, value in structs.asdict(sent).items()
        if value is not UNSET and value != shown[name]
    }
    changed: dict[str, Any] = {name: submitted[name] for name in _PLAIN if name in submitted}
    changed |= {name: submitted[name].strip() or None for name in _NULLABLE if name in submitted}
    if "skills" in submitted:
        names = (one.strip() for one in submitted["skills"].split(","))
        changed["skills"] = tuple(one for one in names if one)
    if "repeat" in submitted:
        changed["repeat"] = int(_number("repeat", submitted["repeat"]) or 0)
    if "timezone" in submitted:
        changed["timezone"] = submitted["timezone"].strip()
    before = (job or _NEW).policy
    policy = _policy(before, submitted)
    return JobChange(**changed, policy=UNSET if policy == before else policy)


def _policy(policy: JobPolicy, submitted: dict[str, str]) -> JobPolicy:
    changed: dict[str, Any] = {}
    for name, kind in _CHOICES.items():
        if name in submitted:
            changed[name] = _chosen(name, kind, submitted[name])
    for name in (*_COUNTS, *_AMOUNTS):
        if name in submitted:
            value = _number(name, submitted[name])
            # An empty field means the default of a new job.
            value = getattr(_NEW.policy, name) if value is None else value
            changed[name] = int(value) if name in _COUNTS else value
    return structs.replace(policy, **changed)


def _chosen(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    try:
        return kind(value)
    except ValueError as error:
        raise _wrong(name, text("bad_choice")) from error


def _number(name: str, words: str) -> float | None:
    """None if nothing was typed."""
    if not words.strip():
        return None
    try:
        value = float(words)
    except ValueError:
        value = -1.0
    if not 0 <= value < MAX_NUMBER or (name not in _AMOUNTS and value != int(value)):
        raise _wrong(name, text("bad_number"))
    return value


def _wrong(name: str, reason: str) -> UsageError:
    label = text(f"job_{name}")
    return UsageError(f"{label}: {reason}")


def _shown(job: Job) -> dict[str, str]:
    """The fields as the form shows them."""
    policy = job.policy
    numbers = {name: getattr(policy, name) for name in (*_COUNTS, *_AMOUNTS)}
    return {
        "name": job.name,
        "schedule": job.schedule_display,
        "prompt": job.prompt or "",
        "deliver": job.deliver,
        "model": job.model or "",
        "provider": job.provider or "",
        "skills": ", ".join(job.all_skills),
        "script": job.script or "",
        "repeat": "" if job.repeat.times is None else str(job.repeat.times),
        "timezone": job.timezone,
        **{name: getattr(policy, name).value for name in _CHOICES},
        **{name: "" if value is None else f"{value:.15g}" for name, value in numbers.items()},
    }


def job_form(address: str, job: Job | None = None) -> Html:
    """Render the common fields, and the others in a folded section."""
    shown = _shown(job or _NEW)
    usual = [
        field(f"job_{name}", name, shown[name], required=True, dir="auto")
        for name in ("name", "schedule", "deliver")
    ]
    prompt = h("textarea", shown["prompt"], name="prompt", rows="3", dir="auto")
    others = [
        field(f"job_{name}", name, shown[name], dir="auto", autocomplete="off")
        for name in (*_NULLABLE, "skills", "timezone")
    ]
    choices = [_choice(name, kind, shown[name]) for name, kind in _CHOICES.items()]
    numbers = [
        field(f"job_{name}", name, shown[name], type="number", min="0",
              step="any" if name in _AMOUNTS else "1")
        for name in ("repeat", *_COUNTS, *_AMOUNTS)
    ]  # fmt: skip
    more = h("details", h("summary", text("job_more")), *others, *choices, *numbers)
    return form(address, *usual, labelled(text("job_prompt"), prompt), more)


def _choice(name: str, kind: type[StrEnum], chosen: str) -> Html:
    options = [
        h("option", text(f"job_{name}_{one.value}"), value=one.value, selected=one.value == chosen)
        for one in kind
    ]
    return labelled(text(f"job_{name}"), h("select", *options, name=name))
