import os
from pathlib import Path

import pytest

from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.places import Places
from hermes.tools.recent import Recent


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / ".env").write_text("KEY=1")
    return Places(tmp_path, [tmp_path / ".hermes/.env", tmp_path / ".hermes/state.db*"])


def test_paths_are_found_from_where_the_session_stands(
    places: Places, scope: Scope, tmp_path: Path
):
    work = Path(scope.workspace)
    assert places.find(scope, "a/../b") == work / "b"
    assert places.find(scope, "~/x") == tmp_path / "x"
    assert places.find(scope, "~") == tmp_path
    assert places.find(scope, "/etc/hosts") == Path("/etc/hosts")
    (work / "sub").mkdir()
    places.move(scope.session, work / "sub")
    assert places.find(scope, "c") == work / "sub" / "c"
    other = Scope("default", "session-2", "run", scope.workspace)
    assert places.find(other, "c") == work / "c"
    (work / "sub").rmdir()
    assert places.cwd(scope) == work


@pytest.mark.parametrize("path", ["", "  ", "a\0b"])
def test_an_impossible_path_is_refused(places: Places, scope: Scope, path: str):
    with pytest.raises(ToolError, match="path"):
        places.find(scope, path)


def test_secrets_are_closed_by_every_name(places: Places, tmp_path: Path):
    secret = tmp_path / ".hermes" / ".env"
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    os.link(secret, tmp_path / "hard")
    for path in ("link", "folder/.env", "hard", ".hermes/.env", ".hermes/state.db-wal"):
        with pytest.raises(ToolError, match="belongs to Hermes"):
            places.guard(tmp_path / path)
    for path in (".hermes/.env.example", ".hermes/config.yaml", ".env", ".hermes", "state.db"):
        assert places.guard(tmp_path / path) == tmp_path / path


def test_a_loop_of_links_is_no_crash(places: Places, tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert places.guard(tmp_path / "loop")


def test_recent_forgets_what_was_not_used_for_longest():
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)
