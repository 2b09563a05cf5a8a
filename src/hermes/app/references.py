"""Build what expands the references in messages typed on this machine."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.app.prompt_context import file_provenance
from hermes.config.home import user_home
from hermes.sandbox.filesystem_policy import private_paths
from hermes.sandbox.home_policy import protected_paths
from hermes.tools.paths import SessionPaths
from hermes.tools.references import References, ReferenceSources, blocked_sites

if TYPE_CHECKING:
    from hermes.app.build import App


def build_references(app: "App") -> References:
    """References for the user of this machine."""
    path, home = app.env.get("PATH", ""), user_home(app.env)
    private = [*map(Path, private_paths(home, root=os.geteuid() == 0))]
    return References(
        ReferenceSources(
            paths=SessionPaths(home, protected_paths(app.home), private=private),
            sandbox=app.sandboxes.local,
            git=shutil.which("git", path=path),
            path=path,
            redact=app.redactor.redact_values,
            provenance=partial(file_provenance, app.home, app.clock),
            allow_internal=True,
            allow_internal_redirects=app.config.security.allow_private_urls,
            blocked_sites=partial(blocked_sites, app.config.security.website_blocklist, app.home),
        )
    )
