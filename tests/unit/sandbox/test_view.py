"""What is hidden, what may be changed, and which of two rules counts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.ports.sandbox import Reach
from hermes.sandbox.view import Rule, Sight, View, prune_private, rules, view_for
from hermes.schema.scope import OWNER


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home/.ssh", "home/work/.git/hooks", "home/.hermes/skills", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/work/.git/config").write_text("")
    (tmp_path / "home/.netrc").write_text("")
    return tmp_path.resolve()


def seen(
    place: Path, view: View, *writable: str, read_only: tuple[str, ...] = ()
) -> dict[str, Sight]:
    reach = Reach(
        writable=tuple(str(place / name) for name in writable),
        read_only=tuple(str(place / name) for name in read_only),
    )
    found = rules(view, reach)
    assert found == sorted(found, key=lambda rule: Path(rule.path).parts)
    return {str(Path(rule.path).relative_to(place)): rule.sight for rule in found}


def test_secrets_stay_hidden_in_a_folder_that_may_be_changed(place: Path):
    home = place / "home"
    view = View(tmp="/t", hidden=(f"{home}/.ssh", f"{home}/.n*rc", f"{home}/.aws"))
    assert seen(place, view, "home") == {
        "home": Sight.CHANGE,
        "home/.netrc": Sight.HIDDEN,
        "home/.ssh": Sight.HIDDEN,
    }


def test_of_a_home_only_what_is_there_and_not_hidden_may_be_changed(place: Path):
    home = place / "home"
    for name in ("bin", "notes", ".config"):
        (home / name).mkdir()
    (home / "list.txt").write_text("")
    (home / "link").symlink_to(place / "elsewhere")
    view = View(tmp="/t", person=str(home), guarded=())
    wanted = {
        "home/list.txt": Sight.CHANGE,
        "home/notes": Sight.CHANGE,
        "home/work": Sight.CHANGE,
    }
    assert seen(place, view, "home") == wanted
    above = seen(place, view, ".")
    assert above == {".": Sight.CHANGE, "home": Sight.READ} | wanted
    assert seen(place, view, "home/work") == {"home/work": Sight.CHANGE}


def test_a_lent_folder_may_be_changed_by_who_works_there(place: Path):
    hermes = place / "home/.hermes"
    (hermes / "workspace").mkdir()
    view = View(tmp="/t", hidden=(str(hermes),), lent=(f"{hermes}/workspace",))
    kept = {"home/.hermes": Sight.HIDDEN}
    assert seen(place, view) == kept | {"home/.hermes/workspace": Sight.READ}
    working = seen(place, view, "home/.hermes/workspace")
    assert working == kept | {"home/.hermes/workspace": Sight.CHANGE}


def test_some_things_are_shown_to_readers_only(place: Path):
    view = View(tmp="/t", hidden=(f"{place}/home",), to_readers=(f"{place}/home/work",))
    assert seen(place, view)["home/work"] is Sight.READ
    assert "home/work" not in seen(place, view, "elsewhere")


def test_everybody_but_the_owner_has_temporary_files_alone():
    view = View(tmp="/t/tmp")
    assert view_for(view, OWNER) == view
    first, second = (view_for(view, name).tmp for name in ("chat:1", "chat:2"))
    assert len({first, second, view.tmp}) == 3
    assert view_for(view, "chat:1").tmp == first


def test_read_only_paths_are_read_only_in_the_workspace_and_stay_hidden_in_hidden_folders(
    place: Path,
):
    view = View(tmp="/t", hidden=(f"{place}/home/.ssh",))
    names = ("home/work/.git/hooks", "home/.ssh/config", "elsewhere")
    assert seen(place, view, "home", read_only=names) == {
        "home": Sight.CHANGE,
        "home/.ssh": Sight.HIDDEN,
        "home/work/.git/hooks": Sight.READ,
    }


def test_what_is_hidden_cannot_be_made_writable(place: Path):
    view = View(tmp="/t", hidden=(f"{place}/home/.ssh",))
    assert seen(place, view, "home/.ssh") == {"home/.ssh": Sight.HIDDEN}


def test_what_is_shown_in_something_hidden(place: Path):
    hermes = place / "home/.hermes"
    view = View(tmp="/t", hidden=(str(hermes),), shown=(f"{hermes}/skills", f"{hermes}/no"))
    assert seen(place, view) == {
        "home/.hermes": Sight.HIDDEN,
        "home/.hermes/skills": Sight.READ,
    }


def test_rules_that_say_nothing_new_are_left_out(place: Path):
    view = View(
        tmp="/t", hidden=(f"{place}/home", f"{place}/home/.ssh"), shown=(f"{place}/elsewhere",)
    )
    assert seen(place, view) == {"home": Sight.HIDDEN}


def test_a_link_counts_where_it_leads(place: Path):
    (place / "home/.aws").symlink_to(place / "elsewhere")
    (place / "home/.gnupg").symlink_to(place / "nowhere")
    view = View(tmp="/t", hidden=(f"{place}/home/.aws", f"{place}/home/.gnupg"))
    assert seen(place, view) == {"elsewhere": Sight.HIDDEN}


def test_the_whole_machine_may_be_given(place: Path):
    view = View(tmp="/t", hidden=(f"{place}/home/.ssh",))
    found = rules(view, Reach(writable=("/",)))
    assert found[0] == Rule("/", Sight.CHANGE)
    assert Rule(f"{place}/home/.ssh", Sight.HIDDEN) in found


def test_only_old_temporary_files_are_taken_away(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    private = tmp_path / "private"
    (private / "folder").mkdir(parents=True)
    (private / "file").write_text("x")
    (private / "link").symlink_to(outside)
    now = datetime.now(UTC)
    prune_private(str(private), now)
    assert {path.name for path in private.iterdir()} == {"folder", "file", "link"}
    prune_private(str(private), now + timedelta(days=8))
    assert [*private.iterdir()] == []
    assert (outside / "kept").exists()
    prune_private(str(tmp_path / "nowhere"), now)
