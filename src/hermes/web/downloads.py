"""Read a file that the agent wrote, for download, under the rules for reading files."""

import os
from functools import partial
from pathlib import Path

from hermes.app.build import App
from hermes.config.home import user_home
from hermes.sandbox.filesystem_policy import private_paths
from hermes.sandbox.home_policy import protected_paths
from hermes.schema.errors import NotFound, ToolError
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.tools.files.sent_files import read_sent_file
from hermes.tools.paths import SessionPaths
from hermes.web.texts import text


def read_download(app: App, session: Session, name: str) -> tuple[str, bytes]:
    """The name and content of a file; private files, such as keys, are not sent.

    Relative names are below the folder of the session. Raises `NotFound`.
    """
    home = user_home(app.env)
    private = [*map(Path, private_paths(home, root=os.geteuid() == 0))]
    paths = SessionPaths(
        home,
        protected_paths(app.home),
        private=private,
        own_tmp=partial(app.sandboxes.tmp_on, session.source),
    )
    folder = session.cwd or str(app.home.workspace)
    scope = Scope(app.home.profile, session.id, "", folder)
    try:
        path = paths.resolve(scope, name)
        real, data = read_sent_file(paths, path, paths.blocked_for(scope, private=True))
    except ToolError as error:
        raise NotFound(text("no_download", reason=str(error))) from error
    return real.name, data
