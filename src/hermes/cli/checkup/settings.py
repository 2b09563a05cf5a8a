"""Whether `.env` and `config.yaml` can be read, and what is odd in them."""

from collections.abc import Sequence

from hermes.cli.checkup.finding import Finding, Patient, odd, well, wrong
from hermes.cli.context import CliContext
from hermes.cli.odd_values import BACKEND, PROVIDER, check_settings, gathered
from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.problems import Problem, Severity
from hermes.kit.clock import Clock
from hermes.schema.errors import ConfigError

_EDIT = "hermes config edit"


def read_settings(
    context: CliContext, home: Home, clock: Clock
) -> tuple[Patient | None, Sequence[Finding]]:
    """What all other checks need; None when it cannot be had."""
    try:
        env = env_of(home.dotenv, context.env)
    except ConfigError as error:
        advice = error.hint.rstrip(".") or "Correct it by hand"
        return None, [wrong("settings", str(error), f"{advice}: ${{EDITOR:-vi}} {home.dotenv}")]
    # Of a provider or a sandbox that there is not, their own checks tell.
    told_later = (PROVIDER, BACKEND)
    problems = [one for one in check_settings(home, env) if one.path not in told_later]
    findings = [_finding(one) for one in gathered(problems)]
    patient = _patient(home, env, clock)
    if not findings:
        there = f"{home.config} is fine" if home.config.exists() else "all have their defaults"
        findings = [well("settings", there)]
    return patient, findings


def _patient(home: Home, env: Env, clock: Clock) -> Patient | None:
    try:
        return Patient(home=home, env=env, config=load_config(home, env).config, clock=clock)
    except ConfigError:
        return None


def _finding(problem: Problem) -> Finding:
    grade = wrong if problem.severity is Severity.ERROR else odd
    return grade("settings", str(problem), problem.hint or _EDIT)
