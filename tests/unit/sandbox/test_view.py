"""What is hidden, what may be changed, and which of two rules counts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.ports.sandbox import ProcessPermissions
from hermes.sandbox.filesystem_policy import (
    FilesystemPolicy,
    PathAccess,
    PathRule,
    path_rules,
    policy_for,
    prune_tmp_folder,
)
from hermes.schema.scope import OWNER


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home/.ssh", "home/work/.git/hooks", "home/.hermes/skills", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/work/.git/config").write_text("")
    (tmp_path / "home/.netrc").write_text("")
    return tmp_path.resolve()


def seen(
    place: Path, view: FilesystemPolicy, *writable: str, read_only: tuple[str, ...] = ()
) -> dict[str, PathAccess]:
    reach = ProcessPermissions(
        writable=tuple(str(place / name) for name in writable),
        read_only=tuple(str(place / name) for name in read_only),
    )
    found = path_rules(view, reach)
    assert found == sorted(found, key=lambda rule: Path(rule.path).parts)
    return {str(Path(rule.path).relative_to(place)): rule.sight for rule in found}


def test_secrets_stay_hidden_in_a_folder_that_may_be_changed(place: Path):
    home = place / "home"
    view = FilesystemPolicy(tmp="/t", hidden=(f"{home}/.ssh", f"{home}/.n*rc", f"{home}/.aws"))
    assert seen(place, view, "home") == {
        "home": PathAccess.CHANGE,
        "home/.netrc": PathAccess.HIDDEN,
        "home/.ssh": PathAccess.HIDDEN,
    }


def test_of_a_home_only_what_is_there_and_not_hidden_may_be_changed(place: Path):
    home = place / "home"
    for name in ("bin", "notes", ".config"):
        (home / name).mkdir()
    (home / "list.txt").write_text("")
    (home / "link").symlink_to(place / "elsewhere")
    view = FilesystemPolicy(tmp="/t", person=str(home), guarded=())
    wanted = {
        "home/list.txt": PathAccess.CHANGE,
        "home/notes": PathAccess.CHANGE,
        "home/work": PathAccess.CHANGE,
    }
    assert seen(place, view, "home") == wanted
    above = seen(place, view, ".")
    assert above == {".": PathAccess.CHANGE, "home": PathAccess.READ} | wanted
    assert seen(place, view, "home/work") == {"home/work": PathAccess.CHANGE}


def test_a_lent_folder_may_be_changed_by_who_works_there(place: Path):
    hermes = place / "home/.hermes"
    (hermes / "workspace").mkdir()
    view = FilesystemPolicy(tmp="/t", hidden=(str(hermes),), lent=(f"{hermes}/workspace",))
    kept = {"home/.hermes": PathAccess.HIDDEN}
    assert seen(place, view) == kept | {"home/.hermes/workspace": PathAccess.READ}
    working = seen(place, view, "home/.hermes/workspace")
    assert working == kept | {"home/.hermes/workspace": PathAccess.CHANGE}


def test_some_things_are_shown_to_readers_only(place: Path):
    view = FilesystemPolicy(tmp="/t", hidden=(f"{place}/home",), to_readers=(f"{place}/home/work",))
    assert seen(place, view)["home/work"] is PathAccess.READ
    assert "home/work" not in seen(place, view, "elsewhere")


def test_everybody_but_the_owner_has_temporary_files_alone():
    view = FilesystemPolicy(tmp="/t/tmp")
    assert policy_for(view, OWNER) == view
    first, second = (policy_for(view, name).tmp for name in ("chat:1", "chat:2"))
    assert len({first, second, view.tmp}) == 3
    assert policy_for(view, "chat:1").tmp == first


def test_read_only_paths_are_read_only_in_the_workspace_and_stay_hidden_in_hidden_folders(
    place: Path,
):
    view = FilesystemPolicy(tmp="/t", hidden=(f"{place}/home/.ssh",))
    names = ("home/work/.git/hooks", "home/.ssh/config", "elsewhere")
    assert seen(place, view, "home", read_only=names) == {
        "home": PathAccess.CHANGE,
        "home/.ssh": PathAccess.HIDDEN,
        "home/work/.git/hooks": PathAccess.READ,
    }


def test_what_is_hidden_cannot_be_made_writable(place: Path):
    view = FilesystemPolicy(tmp="/t", hidden=(f"{place}/home/.ssh",))
    assert seen(place, view, "home/.ssh") == {"home/.ssh": PathAccess.HIDDEN}


def test_what_is_shown_in_something_hidden(place: Path):
    hermes = place / "home/.hermes"
    view = FilesystemPolicy(
        tmp="/t", hidden=(str(hermes),), shown=(f"{hermes}/skills", f"{hermes}/no")
    )
    assert seen(place, view) == {
        "home/.hermes": PathAccess.HIDDEN,
        "home/.hermes/skills": PathAccess.READ,
    }


def test_rules_that_say_nothing_new_are_left_out(place: Path):
    view = FilesystemPolicy(
        tmp="/t", hidden=(f"{place}/home", f"{place}/home/.ssh"), shown=(f"{place}/elsewhere",)
    )
    assert seen(place, view) == {"home": PathAccess.HIDDEN}


def test_a_link_counts_where_it_leads(place: Path):
    (place / "home/.aws").symlink_to(place / "elsewhere")
    (place / "home/.gnupg").symlink_to(place / "nowhere")
    view = FilesystemPolicy(tmp="/t", hidden=(f"{place}/home/.aws", f"{place}/home/.gnupg"))
    assert seen(place, view) == {"elsewhere": PathAccess.HIDDEN}


def test_the_whole_machine_may_be_given(place: Path):
    view = FilesystemPolicy(tmp="/t", hidden=(f"{place}/home/.ssh",))
    found = path_rules(view, ProcessPermissions(writable=("/",)))
    assert found[0] == PathRule("/", PathAccess.CHANGE)
    assert PathRule(f"{place}/home/.ssh", PathAccess.HIDDEN) in found


def test_only_old_temporary_files_are_taken_away(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    private = tmp_path / "private"
    (private / "folder").mkdir(parents=True)
    (private / "file").write_text("x")
    (private / "link").symlink_to(outside)
    now = datetime.now(UTC)
    prune_tmp_folder(str(private), now)
    assert {path.name for path in private.iterdir()} == {"folder", "file", "link"}
    prune_tmp_folder(str(private), now + timedelta(days=8))
    assert [*private.iterdir()] == []
    assert (outside / "kept").exists()
    prune_tmp_folder(str(tmp_path / "nowhere"), now)
