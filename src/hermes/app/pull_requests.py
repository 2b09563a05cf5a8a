"""Ask GitHub's command line `gh` whether the required checks of a pull request have passed."""

import shutil

from hermes.app.build import App
from hermes.kit.text import one_line
from hermes.ports.sandbox import ProcessSpec
from hermes.sandbox.local import LocalSandbox
from hermes.schema.scope import Scope

_SECONDS = 60.0
_PENDING = 8
"""The exit code of `gh pr checks` while some are running."""
_NONE = "checks reported"
"""In the message about a pull request without (required) checks."""


async def check_problem(app: App, address: str) -> str:
    """Return why the required checks have not passed; empty if they have or there are none."""
    scope = Scope(profile=app.home.profile, session="", run="", workspace=str(app.home.path))
    environment = app.child_env(scope)
    program = shutil.which("gh", path=environment.get("PATH"))
    if program is None:
        return "GitHub's command line, gh, is needed to check it and is not installed."
    spec = ProcessSpec(
        argv=(program, "pr", "checks", address, "--required"),
        cwd=str(app.home.path),
        env=environment,
        timeout=_SECONDS,
    )
    result = await LocalSandbox(app.spawner).run(spec)
    text = one_line(app.redactor.redact(result.output.decode("utf-8", "replace")), 300)
    if result.exit_code == 0 or (_NONE in text and text.startswith("no ")):
        return ""
    if result.exit_code == _PENDING:
        return f"its checks are still running. {text}"
    return text or f"gh ended with exit code {result.exit_code}."
