"""`hermes doctor`: check the installation and suggest fixes."""

import logging
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

import anyio
from msgspec import structs

from hermes.cli.context import CliContext
from hermes.cli.output import Style
from hermes.cli.verbs.doctor.finding import CheckContext, Finding, Grade
from hermes.cli.verbs.doctor.home import check_disk, check_home, check_python, read_settings
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.kit.files import write_error_hint
from hermes.kit.redact import Redactor
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.logs import Logs, LogSettings
from hermes.schema.errors import ConfigError, HermesError, UsageError

log = logging.getLogger(__name__)

_COLORS = {
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
Check: TypeAlias = Callable[[CheckContext], Awaitable[Iterable[Finding]]]


def run(args: Namespace, context: CliContext) -> int:
    with _log_checks(context):
        findings = anyio.run(_all_findings, context)
    if args.fix:
        chosen = (True, *(finding.id for finding in findings))
        if args.fix not in chosen:
            raise UsageError(
                "This problem no longer exists.",
                hint="List the problems and their ids: hermes doctor --json",
            )
        findings = [
            _apply_fix(finding) if args.fix in {True, finding.id} else finding
            for finding in findings
        ]
    findings = [_for_profile(finding, context) for finding in findings]
    if args.json:
        fields = ("id", "check", "grade", "says", "fix", "is_fixable")
        context.print_json(
            [{name: getattr(finding, name) for name in fields} for finding in findings]
        )
    else:
        _print(context, findings)
        context.print(f"\n{context.with_profile(_summary(findings))}")
    return int(any(finding.grade is Grade.ERROR for finding in findings))


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
            logs = Logs(folder, LogSettings(), Redactor(()))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        if logs is not None:
            logs.close()


async def _all_findings(context: CliContext) -> list[Finding]:
    findings = [check_python()]
    try:
        home = context.home()
    except ConfigError as error:
        return [*findings, Finding.from_error("home", error, "export HERMES_HOME=~/.hermes")]
    findings += _home_findings(home)
    skipped = [name for name, writes in _CHECKS if writes] if _is_unusable(findings) else []
    check_context, settings = read_settings(context, home, SystemClock())
    findings += settings
    if check_context is None:
        names = [name for name, _ in _CHECKS]
        return [*findings, _skipped_checks(names, "until the settings can be read")]
    for check, (name, _) in zip(_later_checks(), _CHECKS, strict=True):
        if name not in skipped:
            findings += await _run_check(check, name, check_context)
    if skipped:
        findings.append(_skipped_checks(skipped, "until the home is writable"))
    return findings


def _home_findings(home: Home) -> list[Finding]:
    """Findings about the home and its disk; an unusable home is reported once."""
    try:
        found = list(check_home(home))
        return found if _is_unusable(found) else [*found, check_disk(home)]
    except OSError as error:
        return [_check_failed("home", error)]


def _is_unusable(findings: Sequence[Finding]) -> bool:
    return any(finding.check == "home" and finding.grade is Grade.ERROR for finding in findings)


def _skipped_checks(names: Sequence[str], until: str) -> Finding:
    """Say which checks were not made, so that they do not pass for successful."""
    says = f"Not checked {until}: {', '.join(names)}."
    return Finding(check="unchecked", grade=Grade.SKIPPED, says=says)


def _later_checks() -> Sequence[Check]:
    """Imported late: with broken settings these checks do not run."""
    from hermes.cli.verbs.doctor.execution import check_hooks, check_sandbox, check_servers
    from hermes.cli.verbs.doctor.gateway import check_channels, check_gateway, check_unsupported
    from hermes.cli.verbs.doctor.model import check_model
    from hermes.cli.verbs.doctor.storage import check_storage

    async def gateway_checks(context: CheckContext) -> Iterable[Finding]:
        return [
            *check_gateway(context.home),
            *check_channels(context),
            *check_unsupported(context),
        ]

    return (check_model, check_sandbox, check_storage, check_servers, check_hooks, gateway_checks)


async def _run_check(check: Check, name: str, context: CheckContext) -> Iterable[Finding]:
    """Run a check; an error becomes a finding, so that the other checks still run."""
    try:
        return await check(context)
    except HermesError as error:
        return [Finding.from_error(name, error, "hermes logs errors")]
    except OSError as error:
        return [_check_failed(name, error)]


def _check_failed(name: str, error: OSError) -> Finding:
    log.warning("check %s failed", name, exc_info=error)
    where = f" ({error.filename})" if error.filename else ""
    says = f"Could not be checked: {error.strerror or error}{where}."
    return Finding.error(name, says, write_error_hint(error, "hermes logs errors"))


def _for_profile(finding: Finding, context: CliContext) -> Finding:
    says, fix = context.with_profile(finding.says), context.with_profile(finding.fix)
    return structs.replace(finding, says=says, fix=fix)


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
    style = Style(context.stdout, context.env)
    width = max(len(grade) for grade in Grade)
    checks = max(len(finding.check) for finding in findings)
    for finding in findings:
        grade = style(f"{finding.grade:<{width}}", _COLORS[finding.grade])
        context.print(f"{grade}  {finding.check:<{checks}}  {single_line(finding.says)}")
        if finding.fix:
            space = " " * (width + checks + 4)
            context.print(f"{space}{style('→', 'dim')} {single_line(finding.fix)}")


def _summary(findings: Sequence[Finding]) -> str:
    counts = {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}
    if not counts[Grade.ERROR] and not counts[Grade.WARNING]:
        return "No problems found."
    totals = f"{plural(counts[Grade.ERROR], 'error')}, {plural(counts[Grade.WARNING], 'warning')}."
    problems = [finding for finding in findings if finding.grade in {Grade.ERROR, Grade.WARNING}]
    fixable = sum(problem.repair is not None for problem in problems)
    fix = f" {fixable} can be fixed automatically: hermes doctor --fix" if fixable else ""
    return totals + fix
