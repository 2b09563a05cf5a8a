"""Run all checks of `hermes doctor`, apply safe fixes and print the findings."""

import logging
import os
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress

import anyio
import msgspec
from msgspec import structs

from hermes.cli.context import CliContext, with_profile_flag
from hermes.cli.output import Style
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    Grade,
    error_finding,
    finding_of_error,
)
from hermes.cli.verbs.doctor.home import check_disk, check_home, check_python, read_settings
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.kit.files import write_error_hint
from hermes.kit.redact import Redactor
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.logs import LogSettings, set_up_logs
from hermes.schema.errors import ConfigError, HermesError

log = logging.getLogger(__name__)

_COLOURS = {
    Grade.OK: "green",
    Grade.WARNING: "yellow",
    Grade.ERROR: "red",
    Grade.FIXED: "cyan",
    Grade.SKIPPED: "dim",
}
_CHECKS = (
    ("model", False), ("sandbox", True), ("database", True), ("mcp", False), ("hooks", False),
    ("gateway", False),
)  # fmt: skip
"""The checks that need settings, and whether they write into the home."""


def run_doctor(args: Namespace, context: CliContext) -> int:
    with _log_checks(context):
        findings = anyio.run(_all, context)
    if args.fix:
        findings = [_apply_fix(one) for one in findings]
    findings = [_for_profile(one, context.profile) for one in findings]
    if args.json:
        rows = [{name: getattr(one, name) for name in _FIELDS} for one in findings]
        context.stdout.write(msgspec.json.encode(rows).decode() + "\n")
    else:
        _print(context, findings)
        context.stdout.write(f"\n{with_profile_flag(_summary(findings), context.profile)}\n")
    return int(any(one.grade is Grade.ERROR for one in findings))


_FIELDS = ("check", "grade", "says", "fix")


@contextmanager
def _log_checks(context: CliContext) -> Generator[None]:
    """Send the checks' log records to the log files, never to the screen."""
    handler = logging.NullHandler()
    logger = logging.getLogger("hermes")
    logger.addHandler(handler)
    logs = None
    with suppress(ConfigError):
        folder = context.home().logs
        if os.access(folder, os.W_OK | os.X_OK):
            logs = set_up_logs(folder, LogSettings(), Redactor(()))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        if logs is not None:
            logs.close()


async def _all(context: CliContext) -> list[Finding]:
    return [one async for one in _findings(context)]


async def _findings(context: CliContext) -> AsyncIterator[Finding]:
    yield check_python()
    try:
        home = context.home()
    except ConfigError as error:
        yield finding_of_error("home", error, "export HERMES_HOME=~/.hermes")
        return
    for one in (home_findings := _home_findings(home)):
        yield one
    usable = not _home_is_unusable(home_findings)
    check_context, settings = read_settings(context, home, SystemClock())
    for one in settings:
        yield one
    if check_context is None:
        yield _skipped_checks([name for name, _ in _CHECKS], "until the settings can be read")
        return
    skipped = [] if usable else [name for name, writes in _CHECKS if writes]
    for check, name in await _later_checks():
        if name not in skipped:
            for one in await _run_check(check, name, check_context):
                yield one
    if skipped:
        yield _skipped_checks(skipped, "until the home is writable")


def _home_findings(home: Home) -> list[Finding]:
    """Findings about the home and its disk; an unusable home is reported once."""
    try:
        found = list(check_home(home))
        if _home_is_unusable(found):
            return found
        return [*found, check_disk(home)]
    except OSError as error:
        return [_check_failed("home", error)]


def _home_is_unusable(findings: Sequence[Finding]) -> bool:
    return any(one.check == "home" and one.grade is Grade.ERROR for one in findings)


def _skipped_checks(names: Sequence[str], until: str) -> Finding:
    """Say which checks were not made, so that they do not pass for successful."""
    return Finding(
        check="unchecked",
        grade=Grade.SKIPPED,
        says=f"Not checked {until}: {', '.join(names)}.",
    )


async def _later_checks() -> Sequence[
    tuple[Callable[[CheckContext], Awaitable[Iterable[Finding]]], str]
]:
    """Imported late: with broken settings these checks do not run."""
    from hermes.cli.verbs.doctor.execution import check_hooks, check_sandbox, check_servers
    from hermes.cli.verbs.doctor.gateway import check_channels, check_gateway
    from hermes.cli.verbs.doctor.model import check_model
    from hermes.cli.verbs.doctor.storage import check_storage

    async def gateway_checks(context: CheckContext) -> Iterable[Finding]:
        return [*check_gateway(context.home), *check_channels(context)]

    checks = (check_model, check_sandbox, check_storage, check_servers, check_hooks, gateway_checks)
    return [(check, name) for check, (name, _) in zip(checks, _CHECKS, strict=True)]


async def _run_check(
    check: Callable[[CheckContext], Awaitable[Iterable[Finding]]], name: str, context: CheckContext
) -> Iterable[Finding]:
    """Run a check; an error becomes a finding, so that the other checks still run."""
    try:
        return await check(context)
    except HermesError as error:
        return [finding_of_error(name, error, "hermes logs errors")]
    except OSError as error:
        return [_check_failed(name, error)]


def _check_failed(name: str, error: OSError) -> Finding:
    log.warning("check %s failed", name, exc_info=error)
    where = f" ({error.filename})" if error.filename else ""
    says = f"Could not be checked: {error.strerror or error}{where}."
    return error_finding(name, says, write_error_hint(error, "hermes logs errors"))


def _for_profile(one: Finding, profile: str | None) -> Finding:
    return structs.replace(
        one, says=with_profile_flag(one.says, profile), fix=with_profile_flag(one.fix, profile)
    )


def _apply_fix(finding: Finding) -> Finding:
    if finding.repair is None:
        return finding
    try:
        finding.repair()
    except HermesError as error:
        return structs.replace(finding, grade=Grade.ERROR, fix=error.sentence)
    except OSError as error:
        why = f"{finding.fix}   (failed: {error.strerror})"
        return structs.replace(finding, grade=Grade.ERROR, fix=why)
    return structs.replace(finding, grade=Grade.FIXED, fix="")


def _print(context: CliContext, findings: Sequence[Finding]) -> None:
    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    width = max(len(grade) for grade in Grade)
    checks = max(len(one.check) for one in findings)
    for one in findings:
        grade = style(f"{one.grade:<{width}}", _COLOURS[one.grade])
        context.stdout.write(f"{grade}  {one.check:<{checks}}  {single_line(one.says)}\n")
        if one.fix:
            space = " " * (width + checks + 4)
            context.stdout.write(f"{space}{style('→', 'dim')} {single_line(one.fix)}\n")


def _summary(findings: Sequence[Finding]) -> str:
    counts = {grade: sum(one.grade is grade for one in findings) for grade in Grade}
    if not counts[Grade.ERROR] and not counts[Grade.WARNING]:
        return "No problems found."
    totals = f"{plural(counts[Grade.ERROR], 'error')}, {plural(counts[Grade.WARNING], 'warning')}."
    fixable = sum(
        one.repair is not None and one.grade in {Grade.ERROR, Grade.WARNING} for one in findings
    )
    return (
        f"{totals} {fixable} can be fixed automatically: hermes doctor --fix" if fixable else totals
    )
