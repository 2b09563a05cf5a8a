"""Run `hermes doctor` for a profile, and fix what it can fix.

It runs as a process: its checks take seconds, and belong to the command line.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence

import anyio
import msgspec
from msgspec import Struct

from hermes.config.env import process_env
from hermes.config.home import DEFAULT_PROFILE, Home
from hermes.kit.json_errors import JSON_ERRORS
from hermes.schema.errors import UsageError
from hermes.web.html import Child, Html, h, join
from hermes.web.texts import text

TIMEOUT = 60.0
_PAGES = {
    "model": ("/settings?section=model", "nav_settings"),
    "settings": ("/settings", "nav_settings"),
    "channels": ("/settings/channels", "tab_channels"),
    "pairing": ("/settings/people", "tab_people"),
    "mcp": ("/settings/mcp", "tab_mcp"),
    "hooks": ("/settings/hooks", "tab_hooks"),
    "memory": ("/learning", "nav_learning"),
}
"""Where a person can fix what a check has found, and the name of that page."""
_TAGS = {"error": "tag bad", "warning": "tag bad", "ok": "tag", "fixed": "tag live"}


class Finding(Struct, frozen=True, kw_only=True):
    id: str
    check: str
    grade: str
    says: str
    fix: str = ""
    is_fixable: bool = False


async def run_doctor(home: Home, fix: str = "") -> Sequence[Finding]:
    """Return the findings, after fixing the one with this id. Raises `UsageError`."""
    command = [sys.executable, "-P", "-m", "hermes"]
    if home.profile != DEFAULT_PROFILE:
        command += ["--profile", home.profile]
    command += ["doctor", "--json", *([f"--fix={fix}"] if fix else [])]
    env = {**process_env(), "HERMES_HOME": str(home.root)}
    try:
        with anyio.fail_after(TIMEOUT):
            done = await anyio.run_process(
                command, env=env, cwd=home.root, check=False, stderr=subprocess.PIPE
            )
    except (TimeoutError, OSError) as error:
        raise UsageError(text("doctor_failed")) from error
    try:
        return msgspec.json.decode(done.stdout, type=list[Finding])
    except JSON_ERRORS as error:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(errors[-1] if errors else text("doctor_failed")) from error


def findings_list(base: str, findings: Sequence[Finding], redact: Callable[[str], str]) -> Html:
    """List problems first, with buttons for fixable ones; successful checks are folded.

    Other problems have a link to the page where they can be fixed.
    """
    order = ("error", "warning", "fixed", "skipped", "ok")
    found = sorted(findings, key=lambda one: order.index(one.grade) if one.grade in order else 0)
    fine = [one for one in found if one.grade == "ok"]
    lines = [h("li", h("b", one.check), " ", redact(one.says)) for one in fine]
    cards = [_finding(base, one, redact) for one in found if one.grade != "ok"]
    return join([
        h("ul", *cards, class_="cards"),
        h("details", h("summary", text("doctor_fine", count=str(len(fine)))), h("ul", *lines),
          class_="panel"),
    ])  # fmt: skip


def _finding(base: str, one: Finding, redact: Callable[[str], str]) -> Html:
    says, page = redact(one.says), _PAGES.get(one.check)
    button: Child = None
    if page is not None:
        button = h("a", text("open_page", name=text(page[1])), href=base + page[0], class_="button")
    if one.is_fixable:
        button = h("button", text("fix"), type="button", data_action="fix", data_fix=one.id,
                   aria_label=text("fix_this", what=says))  # fmt: skip
    return h(
        "li",
        h("p", h("span", one.grade, class_=_TAGS.get(one.grade, "tag")), h("b", one.check),
          class_="facts"),
        h("p", says, dir="auto"),
        h("p", h("code", redact(one.fix))) if one.fix else None,
        button,
    )  # fmt: skip
