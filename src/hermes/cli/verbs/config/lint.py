"""Warn about valid settings that name something unknown or have no effect."""

from collections.abc import Sequence

from hermes.app.setting_problems import name_problems, with_positions
from hermes.app.unused_platform_settings import unused_keys, unused_variables
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import check_config, load_config
from hermes.config.problems import Finding, Problem
from hermes.config.setting_warnings import UNUSED, unused_settings
from hermes.schema.errors import ConfigError

_MAX_UNGROUPED = 3
_MAX_NAMED = 10


def check_settings(home: Home, env: Env) -> list[Problem]:
    """All errors and warnings about the settings, in file order."""
    problems = [*check_config(home, env), *lint_values(home, env)]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def group_unused(problems: Sequence[Problem]) -> list[Problem]:
    """Merge many "has no effect" warnings into one."""
    unused = [one for one in problems if one.message == UNUSED]
    if len(unused) <= _MAX_UNGROUPED:
        return list(problems)
    sections: dict[str, list[Problem]] = {}
    for problem in unused:
        sections.setdefault(str(problem.path[0]), []).append(problem)
    names = [
        group[0].key if len(group) == 1 else f"{len(group)} of {section}"
        for section, group in sections.items()
    ]
    named = ", ".join([*names[:_MAX_NAMED], *["…"] * (len(names) > _MAX_NAMED)])
    first = unused[0]
    message = f"{len(unused)} settings have no effect: {named}"
    hint = "List them all: hermes config check --verbose"
    merged = Problem(severity=first.severity, file=first.file, message=message, hint=hint)
    return [*(one for one in problems if one.message != UNUSED), merged]


def lint_values(home: Home, env: Env) -> list[Problem]:
    """Warnings about single values; none if the file is invalid."""
    try:
        loaded = load_config(home, env)
    except ConfigError:
        return []
    # A similar name was suggested when the file was loaded.
    known = {problem.path for problem in loaded.warnings}
    settings = [*unused_settings(loaded.raw), *unused_keys(loaded.raw)]
    unused = [one for one in settings if one.path not in known]
    return [
        *name_problems(loaded, home, env),
        *(with_positions(unused, home) if unused else ()),
        *(_in_environment(one, home) for one in unused_variables(loaded.config, env)),
    ]


def _in_environment(finding: Finding, home: Home) -> Problem:
    return Problem(
        severity=finding.severity,
        file=home.dotenv,
        path=finding.path,
        message=finding.message,
        hint=finding.hint,
    )
