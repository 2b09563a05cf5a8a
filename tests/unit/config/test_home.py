from pathlib import Path

import pytest

from hermes.config.home import (
    INITIAL_FOLDERS,
    Home,
    check_new_name,
    ensure_home,
    hermes_root,
    named_profiles,
    profile_home,
    resolve_home,
)
from hermes.kit.errors import ConfigError, UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("work", "play"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    return tmp_path


def env(path: object) -> dict[str, str]:
    return {"HERMES_HOME": str(path), "HOME": "/home/somebody"}


def test_the_default_home_is_below_the_persons_own():
    assert resolve_home({"HOME": "/home/somebody"}) == Home(
        Path("/home/somebody/.hermes"), Path("/home/somebody/.hermes")
    )


@pytest.mark.parametrize("given", ["", "   "])
def test_an_empty_hermes_home_counts_as_none(given: str):
    assert hermes_root(env(given)) == Path("/home/somebody/.hermes")


def test_a_tilde_is_the_persons_home():
    assert hermes_root(env("~/agent")) == Path("/home/somebody/agent")


def test_dots_are_resolved(tmp_path):
    assert hermes_root(env(tmp_path / "a" / ".." / "b")) == tmp_path / "b"


def test_an_asked_for_profile_wins(root):
    (root / "active_profile").write_text("play\n")
    assert resolve_home(env(root), "work") == Home(root, root / "profiles" / "work", "work")
    assert resolve_home(env(root / "profiles" / "play"), "work").profile == "work"
    assert resolve_home(env(root), "default") == Home(root, root)


def test_a_home_inside_profiles_names_profile_and_root(root):
    (root / "active_profile").write_text("play\n")
    assert resolve_home(env(root / "profiles" / "work")) == profile_home(root, "work")


def test_the_sticky_choice_comes_last(root):
    assert resolve_home(env(root)).profile == "default"
    (root / "active_profile").write_text(" play \n")
    assert resolve_home(env(root)).profile == "play"
    (root / "active_profile").write_text("default")
    assert resolve_home(env(root)).path == root


def test_an_unknown_profile_names_those_that_exist(root):
    with pytest.raises(ConfigError) as caught:
        resolve_home(env(root), "wrok")
    assert str(caught.value) == ("No profile named 'wrok'; known profiles: default, play, work")
    assert caught.value.hint == "Did you mean work?"
    with pytest.raises(ConfigError, match="no profile named 'gone'"):
        resolve_home(env(root / "profiles" / "gone"))


@pytest.mark.parametrize("chosen", ["gone", "../..", "Work", "\0", "x" * 100])
def test_a_choice_that_does_not_exist_is_an_error_that_says_how_to_choose(root, chosen):
    (root / "active_profile").write_text(chosen)
    with pytest.raises(ConfigError) as caught:
        resolve_home(env(root))
    assert "hermes profile use" in caught.value.hint


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "Work", ".hidden", "a" * 65])
def test_a_name_never_leads_out_of_profiles(root, name):
    with pytest.raises(UsageError):
        profile_home(root, name)


@pytest.mark.parametrize("name", ["hermes", "default", "test", "tmp", "root", "sudo"])
def test_reserved_names_are_refused(name):
    with pytest.raises(UsageError, match="reserved"):
        check_new_name(name)


def test_reading_creates_nothing(tmp_path):
    resolve_home(env(tmp_path / "new"))
    named_profiles(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_no_directory_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="is not a directory"):
        resolve_home(env(file))
    with pytest.raises(ConfigError, match="Not a directory"):
        ensure_home(resolve_home(env(file / "below")))
    link = tmp_path / "dangling"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not a directory"):
        resolve_home(env(link))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError):
        resolve_home(env(loop))


def test_a_home_that_cannot_be_made_is_an_error():
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        ensure_home(resolve_home(env("/proc/hermes")))
    assert "HERMES_HOME" in caught.value.hint


def test_a_first_run_gets_folders_and_a_soul(tmp_path):
    home = resolve_home(env(tmp_path / "deep" / "home"))
    ensure_home(home)
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in home.path.iterdir()} == {*INITIAL_FOLDERS, "SOUL.md"}
    assert len(home.soul.read_text().strip().splitlines()) == 1


def test_what_exists_stays(tmp_path):
    home = resolve_home(env(tmp_path))
    home.soul.write_text("I am mine.")
    tmp_path.chmod(0o750)
    ensure_home(home)
    ensure_home(home)
    assert home.soul.read_text() == "I am mine."
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_kanban_is_shared_and_the_rest_is_not(root):
    home = profile_home(root, "work")
    assert (home.kanban, home.kanban_db) == (root / "kanban", root / "kanban.db")
    for own in (home.config, home.dotenv, home.state_db, home.cron, home.memories, home.skills):
        assert own.parent == root / "profiles" / "work"


def test_an_older_pairing_folder_is_kept_while_it_is_used(tmp_path):
    home = Home(tmp_path, tmp_path)
    assert home.pairing == tmp_path / "platforms" / "pairing"
    (tmp_path / "pairing").mkdir()
    assert home.pairing == tmp_path / "platforms" / "pairing"
    (tmp_path / "pairing" / "telegram-approved.json").write_text("{}")
    assert home.pairing == tmp_path / "pairing"
